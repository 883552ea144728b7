"""The stub, and a bench in front of it for the CLI that the module's `cli` names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_stub import ModelStub
from scenarios import SCENARIOS

from bench import MODES, Bench


@pytest.fixture(scope="session", autouse=True)
def litter() -> Iterator[None]:
    """What the CLIs themselves leave in the temporary folder is not for Muster to clear away."""
    folder = Path(os.environ["TMPDIR"]).parent / "clis"  # a short name: some of them listen there
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        yield


@pytest.fixture(scope="module")
def stub() -> Iterator[ModelStub]:
    with ModelStub(dict(SCENARIOS)) as stub:
        yield stub


@pytest.fixture
def bench(tmp_path: Path, stub: ModelStub, cli: str) -> Bench:
    stub.seen.clear()
    stub.refused.clear()
    stub.served.clear()
    return Bench(tmp_path, cli, stub.url, MODES[cli])
