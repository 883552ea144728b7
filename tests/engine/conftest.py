from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_rig import Rig, audited


@pytest.fixture
def rig() -> Iterator[Rig]:
    with audited() as made:
        yield made
