"""How often git is started by those who only look: each start costs a command 4 ms of CPU."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from repositories import make_repository

from muster.worker.git import find_repository


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What git was called with, a line for each call."""
    log, folder = tmp_path / "calls", tmp_path / "bin"
    folder.mkdir()
    git = folder / "git"
    git.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {shutil.which("git")} "$@"\n')
    git.chmod(0o755)
    log.touch()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return log


def test_outside_of_a_repository_git_is_not_asked(tmp_path: Path, calls: Path) -> None:
    assert find_repository(tmp_path) is None
    assert calls.read_text() == ""


def test_who_commits_is_asked_once_somebody_needs_to_know(tmp_path: Path, calls: Path) -> None:
    home = make_repository(tmp_path / "home")
    calls.write_text("")
    repository = find_repository(home, "Ann <ann@example.org>")
    assert repository is not None and repository.committer is not None
    assert calls.read_text().count("\n") == 1
    assert [repository.run("var", "GIT_AUTHOR_IDENT").split(" 1")[0] for _ in range(2)] == [
        "Ann <ann@example.org>"
    ] * 2
    assert calls.read_text().count("var GIT_COMMITTER_IDENT") == 1
