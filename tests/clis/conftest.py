"""The stub, and a bench in front of it for the CLI that the module's `cli` names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from model_stub import ModelStub
from scenarios import SCENARIOS

from bench import MODES, Bench


@pytest.fixture(scope="module")
def stub() -> Iterator[ModelStub]:
    with ModelStub(dict(SCENARIOS)) as stub:
        yield stub


@pytest.fixture
def bench(tmp_path: Path, stub: ModelStub, cli: str) -> Bench:
    stub.seen.clear()
    stub.refused.clear()
    return Bench(tmp_path, cli, stub.url, MODES[cli])
