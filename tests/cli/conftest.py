"""The command line in front of a real owner."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from live_console import Console

from cli_owner import Cli, Owner, Ran
from hook_receiver import Hook, receiving
from muster.cli.main import main


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that commands run in, with nothing of our own environment."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in [
        name for name in os.environ if name.startswith("MUSTER_") or name in {"NO_COLOR", "COLUMNS"}
    ]:
        monkeypatch.delenv(name)
    return folder


@pytest.fixture
def empty(root: Path) -> Iterator[Owner]:
    """An owner without any task."""
    made = Owner(root)
    made.start()
    yield made
    made.close()


@pytest.fixture
def owner(empty: Owner) -> Owner:
    empty.seed()
    return empty


@pytest.fixture
def cli(root: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Runs a command in this process."""

    def run(*argv: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Ran:
        capfdbinary.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            for name, value in (env or {}).items():
                patch.setenv(name, value)
            code = main(argv)
        out, err = capfdbinary.readouterr()
        return Ran(code, out, err.decode())

    return run


@pytest.fixture
def refused(cli: Cli, empty: Owner) -> Cli:
    """Runs a command that has to be refused: it says why, has no output, and changes nothing."""

    def run(*argv: str, code: int, message: str, **options: Any) -> Ran:
        before = empty.fingerprint()
        ran = cli(*argv, **options)
        assert (ran.code, ran.raw, message in ran.err) == (code, b"", True), ran.err
        assert empty.fingerprint() == before
        return ran

    return run


class Process(subprocess.Popen[bytes]):
    """`muster ARGV` as a process of its own; lines of its output arrive as they are written."""

    def __init__(self, root: Path, *argv: str, **options: Any) -> None:
        env = {**os.environ, **options.pop("env", {})}
        command = [sys.executable, "-m", "muster.cli.main", *argv]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        super().__init__(command, cwd=root, env=env, **(streams | options))


@pytest.fixture
def start(root: Path) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def run(*argv: str, **options: Any) -> Process:
        started.append(Process(root, *argv, **options))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def hook() -> Iterator[Hook]:
    with receiving() as server:
        yield server


@pytest.fixture
def console(root: Path) -> Iterator[Callable[..., Console]]:
    """Runs a command on a terminal."""
    made: list[Console] = []

    def run(*argv: str, **options: Any) -> Console:
        made.append(Console(root, *argv, **options))
        return made[-1]

    yield run
    for each in made:
        each.close()
