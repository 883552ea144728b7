"""How long a search for counterexamples goes on."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings


def properties(examples: int, **more: Any) -> settings:
    """Repeatable in CI; a failure prints how to repeat it anywhere."""
    return settings(
        max_examples=examples, deadline=None, print_blob=True, derandomize="CI" in os.environ, **more
    )
