"""A plan's branch comes into the user's, whose files stay safe; the plan's own file is merged by its boxes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from git_projects import commit_first, git, make_project, publish

from muster_command import run_muster as muster

PLAN = """\
# Site

- [ ] Page {#page}
  echo hello > page.txt
- [ ] Index {#index after=page}
  ls > index.txt
- [ ] Style {#style}
  echo blue > style.txt
- [ ] Gate {#gate}
  true
"""
TICKED = PLAN.replace("[ ] Page", "[x] Page")
BRANCH = "muster/plan/site"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """`page` has published; all but `gate` is completed."""
    folder = make_project(tmp_path / "project", config='agent = "shell"\n', plan=PLAN)
    (folder / ".gitignore").write_text(".muster/\n")
    (folder / "notes.txt").write_text("one\n")
    commit_first(folder, ".")
    assert muster(folder, "plan", "add", "plan.md").returncode == 0
    assert muster(folder, "task", "complete", "site/page", "site/index", "site/style").returncode == 0
    git(folder, "checkout", "plan.md")
    publish(folder, "site/page", {"page.txt": "hello\n"})
    return folder


@pytest.fixture(autouse=True)
def _identity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "Ann")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "ann@example.org")


def parents(folder: Path) -> list[str]:
    return git(folder, "log", "-1", "--format=%P").split()


def test_it_is_a_merge_commit_with_both_parents(project: Path) -> None:
    head, tip = git(project, "rev-parse", "HEAD"), git(project, "rev-parse", BRANCH)
    shown = muster(project, "plan", "merge", "site", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert "1 commit, 1 file would come from muster/plan/site into" in shown.stdout
    assert "site/page  The work of site/page" in shown.stdout and "A page.txt" in shown.stdout
    assert git(project, "rev-parse", "HEAD") == head and not (project / "page.txt").exists()

    (project / "notes.txt").write_text("not committed\n")
    (project / "plan.md").write_text(TICKED)
    done = muster(project, "plan", "merge", "site", "--json")
    assert done.returncode == 0, done.stderr
    assert parents(project) == [head, tip], "although it could have been moved forward"
    told = json.loads(done.stdout)
    assert told["commit"] == git(project, "rev-parse", "HEAD") and told["conflicts"] == []
    assert [one["task"] for one in told["commits"]] == ["site/page"]
    assert told["files"] == [{"change": "A", "path": "page.txt"}]
    assert "- site/page: The work of site/page" in git(project, "log", "-1", "--format=%B")
    assert (project / "page.txt").read_text() == "hello\n"
    assert (project / "notes.txt").read_text() == "not committed\n"
    assert (project / "plan.md").read_text() == TICKED
    assert git(project, "status", "--porcelain") == " M notes.txt\n M plan.md"

    again = muster(project, "plan", "merge", "site")
    assert again.returncode == 0 and "nothing to merge: muster/plan/site has nothing that" in again.stdout
    assert git(project, "rev-parse", "HEAD") == told["commit"]


@pytest.mark.parametrize("mine", [".env", "build/cache.txt", "cache"])
def test_what_git_ignores_is_not_overwritten_either(project: Path, mine: str) -> None:
    """Theirs: a file of the same name, one where a folder of mine is, one below what is a file of mine."""
    (project / ".gitignore").write_text(".muster/\n.env\nbuild\ncache\n")
    git(project, "commit", "-qam", "ignores")
    theirs = {".env": ".env", "build/cache.txt": "build", "cache": "cache/deep/file"}[mine]
    publish(project, "site/index", {theirs: "theirs\n"}, force=True)
    (project / mine).parent.mkdir(exist_ok=True)
    (project / mine).write_text("mine\n")
    before = git(project, "rev-parse", "HEAD"), git(project, "status", "--porcelain")
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 6, refused.stdout
    assert f"have not committed, and git ignores: {mine}; nothing was changed" in refused.stderr
    assert (git(project, "rev-parse", "HEAD"), git(project, "status", "--porcelain")) == before
    (project / mine).rename(project / "aside")
    done = muster(project, "plan", "merge", "site")
    assert done.returncode == 0, done.stderr
    assert (project / theirs).read_text() == "theirs\n" and (project / "aside").read_text() == "mine\n"


def test_the_hooks_of_a_merge_run(project: Path) -> None:
    hooks = project / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name, script in {
        "pre-merge-commit": "test -e allowed || { echo not now >&2; exit 1; }",
        "post-merge": "echo $1 > ran",
    }.items():
        (hooks / name).write_text(f"#!/bin/sh\n{script}\n")
        (hooks / name).chmod(0o755)
    head = git(project, "rev-parse", "HEAD")
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 6 and "made and not committed: not now" in refused.stderr
    assert git(project, "rev-parse", "HEAD") == head and not (project / "ran").exists()
    git(project, "merge", "--abort")
    (project / "allowed").touch()
    done = muster(project, "plan", "merge", "site")
    assert done.returncode == 0, done.stderr
    assert (project / "ran").read_text() == "0\n"


def test_a_lock_that_somebody_has_left_is_named(project: Path) -> None:
    lock = project / ".git" / "index.lock"
    lock.touch()
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 6 and "File exists" in refused.stderr, refused.stderr
    assert f"rm {lock}" in refused.stderr and "nothing was changed" in refused.stderr
    lock.unlink()
    assert muster(project, "plan", "merge", "site").returncode == 0


def test_nothing_is_merged_during_a_rebase(project: Path) -> None:
    (project / ".git" / "rebase-merge").mkdir()
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 6 and "a rebase is under way" in refused.stderr, refused.stderr
    assert "git rebase --abort" in refused.stderr


def test_another_branch_that_is_checked_out_meanwhile_gets_nothing(project: Path) -> None:
    """A filter of git's stands for a person: it runs once all has been looked at."""
    publish(project, "site/index", {"plan.md": TICKED})
    begun, head = git(project, "branch", "--show-current"), git(project, "rev-parse", "HEAD")
    git(project, "branch", "release")
    switch = "cat; git symbolic-ref HEAD refs/heads/release"
    git(project, "config", "filter.switches.clean", switch)
    (project / ".git" / "info").mkdir(exist_ok=True)
    (project / ".git" / "info" / "attributes").write_text("plan.md filter=switches\n")
    git(project, "symbolic-ref", "HEAD", f"refs/heads/{begun}")
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 6, refused.stderr
    assert f"release is checked out by now, and not {begun}; nothing was changed" in refused.stderr
    assert {git(project, "rev-parse", name) for name in (begun, "release")} == {head}
    assert not (project / "page.txt").exists()


def test_what_was_not_committed_is_never_overwritten(project: Path) -> None:
    publish(project, "site/index", {"notes.txt": "by an agent\n"})
    (project / "notes.txt").write_text("mine\n")
    (project / "page.txt").write_text("mine as well\n")
    before = git(project, "rev-parse", "HEAD"), git(project, "status", "--porcelain")
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 6, refused.stdout
    assert "it would overwrite what you have not committed: notes.txt" in refused.stderr
    assert "git stash" in refused.stderr
    assert (git(project, "rev-parse", "HEAD"), git(project, "status", "--porcelain")) == before
    git(project, "checkout", "notes.txt")
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 6 and "page.txt" in refused.stderr
    assert (project / "page.txt").read_text() == "mine as well\n"


def test_boxes_of_both_sides_are_ticked_and_the_text_stays(project: Path) -> None:
    theirs = PLAN.replace("[ ] Index", "[x] Index").replace("[ ] Gate", "[x] Gate")
    theirs += "- [x] More {#more}\n  echo more\n"
    publish(project, "site/index", {"plan.md": theirs})
    (project / "plan.md").write_text(TICKED.replace("# Site\n", "# Site\n\nA word of mine.\n"))
    done = muster(project, "plan", "merge", "site")
    assert done.returncode == 0, done.stderr
    mine = (project / "plan.md").read_text()
    assert "[x] Page" in mine and "[x] Index" in mine and "[ ] Style" in mine
    assert "A word of mine." in mine and "#more" in mine
    committed = git(project, "show", "HEAD:plan.md")
    assert "[ ] Page" in committed and "[x] Index" in committed and "#more" in committed
    assert "A word of mine." not in committed, "what was not committed still is not"
    for text in (mine, committed):
        assert "[ ] Gate" in text and "[ ] More" in text, (
            "an agent completes nobody's task by ticking its box"
        )
    assert len(parents(project)) == 2 and git(project, "rev-parse", BRANCH) == parents(project)[1]
    assert git(project, "status", "--porcelain") == " M plan.md"


def test_a_plan_that_was_never_committed_is_merged_by_its_boxes(tmp_path: Path) -> None:
    folder = make_project(tmp_path / "project", config='agent = "shell"\n', plan=TICKED)
    (folder / ".gitignore").write_text(".muster/\n")
    commit_first(folder, ".gitignore")
    assert muster(folder, "plan", "add", "plan.md").returncode == 0
    assert muster(folder, "task", "complete", "site/index").returncode == 0
    (folder / "plan.md").write_text(TICKED)
    publish(folder, "site/index", {"plan.md": PLAN.replace("[ ] Index", "[x] Index")})
    done = muster(folder, "plan", "merge", "site")
    assert done.returncode == 0, done.stderr
    assert (folder / "plan.md").read_text() == TICKED.replace("[ ] Index", "[x] Index")
    assert git(folder, "status", "--porcelain", "plan.md") == ""


def test_text_of_the_plan_that_both_have_changed_is_left_for_the_person(project: Path) -> None:
    publish(project, "site/index", {"plan.md": TICKED.replace("echo hello", "echo theirs")})
    (project / "plan.md").write_text(PLAN.replace("echo hello", "echo mine"))
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 6 and "yours is not committed; nothing was changed" in refused.stderr
    assert "git add plan.md" in refused.stderr and "echo mine" in (project / "plan.md").read_text()
    assert parents(project) == []

    git(project, "commit", "-qam", "mine")
    head = git(project, "rev-parse", "HEAD")
    assert json.loads(muster(project, "plan", "merge", "site", "--dry-run", "--json").stdout)[
        "conflicts"
    ] == ["plan.md"]
    left = muster(project, "plan", "merge", "site")
    assert (
        left.returncode == 6 and "conflicts in plan.md" in left.stderr and "git merge --abort" in left.stderr
    )
    text = (project / "plan.md").read_text()
    assert "[x] Page" in text and text.count("<<<<<<<") == 1
    assert "UU plan.md" in git(project, "status", "--porcelain")
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 6 and "a merge is under way" in refused.stderr
    git(project, "merge", "--abort")
    assert git(project, "status", "--porcelain") == "" and "echo mine" in (project / "plan.md").read_text()
    muster(project, "plan", "merge", "site")
    (project / "plan.md").write_text(TICKED)
    git(project, "add", "plan.md")
    git(project, "commit", "-qm", "solved")
    assert parents(project) == [head, git(project, "rev-parse", BRANCH)]


def test_a_conflict_is_named_and_an_abort_gives_back_the_boxes(project: Path) -> None:
    publish(
        project, "site/index", {"notes.txt": "theirs\n", "plan.md": PLAN.replace("[ ] Style", "[x] Style")}
    )
    (project / "notes.txt").write_text("mine\n")
    git(project, "commit", "-qam", "mine")
    (project / "plan.md").write_text(TICKED)
    shown = muster(project, "plan", "merge", "site", "--dry-run")
    assert shown.returncode == 0 and "conflicts: notes.txt" in shown.stdout
    left = muster(project, "plan", "merge", "site")
    assert left.returncode == 6 and "conflicts in notes.txt" in left.stderr and "git add" in left.stderr
    assert git(project, "rev-parse", "MERGE_HEAD") == git(project, "rev-parse", BRANCH)
    assert (project / "page.txt").exists()
    both = TICKED.replace("[ ] Style", "[x] Style")
    assert (project / "plan.md").read_text() == both
    git(project, "merge", "--abort")
    assert (project / "plan.md").read_text() == both, "no tick is lost"
    assert (project / "notes.txt").read_text() == "mine\n" and not (project / "page.txt").exists()


def test_it_says_why_there_is_nothing_to_merge(project: Path, tmp_path: Path) -> None:
    git(project, "branch", "-D", BRANCH)
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 3 and "there is no branch muster/plan/site" in refused.stderr
    refused = muster(project, "plan", "merge", "other")
    assert refused.returncode == 3 and "other" in refused.stderr
    outside = make_project(tmp_path / "outside", config='agent = "shell"\n', plan=PLAN)
    assert muster(outside, "plan", "add", "plan.md").returncode == 0
    refused = muster(outside, "plan", "merge", "site")
    assert refused.returncode == 3 and "in no git repository" in refused.stderr


def test_an_agent_does_not_merge(project: Path) -> None:
    command = 'env -i PATH="$PATH" muster -C $MUSTER_ROOT plan merge site'
    (project / "other.md").write_text(f"# Other\n- [ ] Try {{#try retries=0}}\n  {command}\n")
    head = git(project, "rev-parse", "HEAD")
    assert muster(project, "run", "other.md").returncode == 5
    assert "merge is for a person" in muster(project, "logs", "other/try").stdout, muster(
        project, "logs", "other/try"
    )
    assert git(project, "rev-parse", "HEAD") == head
