"""How long a search for counterexamples goes on, and where it begins."""

from __future__ import annotations

import os
import random
from typing import Any

from hypothesis import settings


def properties(examples: int, **more: Any) -> settings:
    """Repeatable in CI; a failure prints how to repeat it anywhere."""
    return settings(
        max_examples=examples, deadline=None, print_blob=True, derandomize="CI" in os.environ, **more
    )


def new_seed() -> int:
    """Another one with each run; in CI always the same."""
    return 0 if "CI" in os.environ else random.SystemRandom().randrange(1 << 30)
