"""The fixture `muster_kit`, in every test suite where Muster is installed.

Nothing of Muster is imported before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from muster.sdk.kit import MusterKit


@pytest.fixture
def muster_kit(tmp_path: Path) -> Iterator[MusterKit]:
    """Muster on a store of this test's own, with a clock that the test moves: see `docs/sdk.md`."""
    from muster.sdk.kit import MusterKit

    with MusterKit(tmp_path) as kit:
        yield kit
