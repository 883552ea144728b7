"""The user's repository."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from repositories import make_repository, snapshot, tree

from muster.worker.git import Repository, find_repository
from muster.worker.worktree import Worktree


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """The user's repository, with uncommitted and untracked work, and a hook that must not run."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    folder = make_repository(tmp_path / "home")
    (folder / "a.txt").write_text("a\nchanged, not committed\n")
    (folder / "new.txt").write_text("untracked\n")
    (folder / "x.log").write_text("ignored\n")
    hooks = folder / ".git" / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "pre-commit", "post-commit", "reference-transaction"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\nexit 1\n")
        (hooks / name).chmod(0o755)
    return folder


@pytest.fixture
def repository(home) -> Repository:
    found = find_repository(home)
    assert found is not None
    return found


@pytest.fixture
def made(repository) -> Worktree:
    """The working tree of a task that has begun."""
    begun = tree(repository)
    begun.prepare()
    return begun


@pytest.fixture
def untouched(home, tmp_path) -> Iterator[None]:
    before = snapshot(home)
    yield
    assert snapshot(home) == before
    assert not (tmp_path / "hook-ran").exists(), "a hook of the user's has run"
