"""A merge by those who are not at the folder is made as a whole, or not at all."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
from stand_in_git import git_that

from muster.app.works import LocalWorks
from muster.config.project import Project
from muster.model.errors import Conflict
from muster.model.works import PlanMerged
from muster.ports.works import WorkSeen
from muster.worker.git import find_repository
from patience import PATIENCE_S, until
from reviewed_work import Repo

PLAN = "# Site\n\n- [ ] Page {#page}\n  true\n"
TICKED = PLAN.replace("[ ]", "[x]")


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    root = tmp_path / "project"
    root.mkdir()
    made = Repo(root)
    for name, text in {"plan.md": PLAN, "a.txt": "one\n", "mine.txt": "one\n", "hidden.txt": "one\n"}.items():
        (root / name).write_text(text)
    made.git("add", ".")
    made.git("commit", "-qm", "plan")
    made.publish("site", "page", {"a.txt": "two\n", "new.txt": "new\n", "plan.md": f"{PLAN}\nA note.\n"})
    made.git("update-index", "--assume-unchanged", "hidden.txt")
    (root / "plan.md").write_text(TICKED)
    (root / "mine.txt").write_text("mine\n")
    (root / "hidden.txt").write_text("hidden\n")
    return made


def hook(repo: Repo, name: str, script: str) -> None:
    file = repo.root / ".git" / "hooks" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def works_of(repo: Repo, step_s: float = PATIENCE_S) -> LocalWorks:
    found = find_repository(repo.root)
    assert found is not None
    return LocalWorks(found, Project(repo.root), step_s)


def merge(works: LocalWorks) -> PlanMerged:
    return asyncio.run(works.merge("site", "plan.md", (), WorkSeen(None, None)))


def assert_untouched(repo: Repo, head: str) -> None:
    assert repo.git("rev-parse", "HEAD") == head
    assert repo.git("status", "--porcelain", "-uno") == " M mine.txt\n M plan.md"
    texts = {"a.txt": "one\n", "mine.txt": "mine\n", "hidden.txt": "hidden\n", "plan.md": TICKED}
    assert {name: (repo.root / name).read_text() for name in texts} == texts
    assert not (repo.root / "new.txt").exists()
    assert not list(repo.root.glob(".git/MERGE_*")) and not (repo.root / ".git" / "muster-merge").exists()


@pytest.mark.parametrize("name", ["pre-merge-commit", "pre-commit", "prepare-commit-msg", "commit-msg"])
def test_what_a_hook_refuses_is_undone(repo: Repo, name: str) -> None:
    head = repo.git("rev-parse", "HEAD")
    hook(repo, name, "echo no commits today; exit 1")
    with pytest.raises(
        Conflict, match="could not be committed: no commits today; it was undone, nothing was"
    ):
        merge(works_of(repo))
    assert_untouched(repo, head)
    (repo.root / ".git" / "hooks" / name).unlink()
    assert merge(works_of(repo)).commit == repo.git("rev-parse", "HEAD")
    assert repo.git("show", "HEAD:plan.md") == f"{PLAN}\nA note."
    assert (repo.root / "plan.md").read_text() == f"{TICKED}\nA note.\n"


def test_what_cannot_be_signed_is_undone(repo: Repo) -> None:
    head = repo.git("rev-parse", "HEAD")
    repo.git("config", "commit.gpgSign", "true")
    repo.git("config", "gpg.program", "false")
    with pytest.raises(Conflict, match="gpg failed to sign"):
        merge(works_of(repo))
    assert_untouched(repo, head)


def test_what_was_changed_while_a_hook_ran_is_not_lost(repo: Repo) -> None:
    """A formatter's changes of what has come, and what a person stages meanwhile."""
    head = repo.git("rev-parse", "HEAD")
    (repo.root / "later.txt").write_text("later\n")
    hook(repo, "pre-commit", "echo formatted >> a.txt; git add later.txt; exit 1")
    with pytest.raises(Conflict, match=r"what a\.txt held by then: git show [0-9a-f]+:FILE") as refused:
        merge(works_of(repo))
    assert_untouched(repo, head)
    assert (repo.root / "later.txt").read_text() == "later\n"
    kept = refused.value.message.rpartition("git show ")[2].partition(":")[0]
    assert repo.git("show", f"{kept}:a.txt") == "two\nformatted"


def test_what_cannot_be_saved_is_not_overwritten(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the disk is full: what a hook has written is nowhere but in the folder."""
    hook(repo, "pre-commit", "echo formatted >> a.txt; exit 1")
    monkeypatch.setenv("PATH", git_that(tmp_path, "exit 1", "create")["PATH"])  # of `git stash create`
    with pytest.raises(Conflict, match=r"could not be undone: a\.txt, new\.txt"):
        merge(works_of(repo))
    assert (repo.root / "a.txt").read_text() == "two\nformatted\n"
    assert (repo.root / "plan.md").read_text() == TICKED
    # Committed by hand, it can be merged again: the plan's file has not come yet.
    assert repo.git("rev-parse", "MERGE_HEAD") != repo.git("rev-parse", "muster/plan/site")


def test_a_hook_that_hangs_is_ended(repo: Repo) -> None:
    head = repo.git("rev-parse", "HEAD")
    hook(repo, "pre-merge-commit", "echo $$ > .git/pid; until test -e .git/never; do sleep 0.02; done")
    with pytest.raises(Conflict, match="took more than 3 s, and was ended"):
        merge(works_of(repo, step_s=3))
    assert_untouched(repo, head)
    for begun in repo.root.glob(".git/pid"):  # a busy machine may not have come to the hook
        pid = begun.read_text().strip()
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists())


def test_a_server_that_ends_undoes_what_it_has_begun(repo: Repo) -> None:
    head = repo.git("rev-parse", "HEAD")
    hook(repo, "pre-commit", "touch .git/begun; until test -e .git/never; do sleep 0.02; done")
    works, told = works_of(repo), []

    def press() -> None:
        try:
            merge(works)
        except Conflict as error:
            told.append(error.message)

    pressing = threading.Thread(target=press)
    pressing.start()
    until((repo.root / ".git" / "begun").exists)
    works.close()
    assert_untouched(repo, head)
    pressing.join(PATIENCE_S)
    assert told and "it was undone, nothing was changed" in told[0]


def test_what_is_committed_stays_whatever_a_late_hook_does(repo: Repo) -> None:
    hook(repo, "post-commit", "mkdir .git/bumped && git commit --quiet --allow-empty -m bump; exit 1")
    hook(repo, "post-merge", "exit 1")
    made = merge(works_of(repo)).commit
    assert made == repo.git("rev-parse", "HEAD^")
    assert repo.git("log", "-1", "--format=%P", made or "").split()[1] == repo.git(
        "rev-parse", "muster/plan/site"
    )
