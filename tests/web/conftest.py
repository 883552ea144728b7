from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from web_site import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path).up() as up:
        yield up
