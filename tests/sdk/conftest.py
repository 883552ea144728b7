from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import muster

SETTINGS = """\
[task]
retries = 2
[task.backoff]
first = "10ms"
max = "20ms"
"""


@pytest.fixture
def app(tmp_path: Path) -> Iterator[muster.App]:
    """One whose retries do not wait."""
    (tmp_path / "muster.toml").write_text(SETTINGS)
    yield muster.App("reports", project=tmp_path)
