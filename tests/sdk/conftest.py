from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from quick_retries import SETTINGS

import muster


@pytest.fixture
def app(tmp_path: Path) -> Iterator[muster.App]:
    """One whose retries do not wait."""
    (tmp_path / "muster.toml").write_text(SETTINGS)
    yield muster.App("reports", project=tmp_path)
