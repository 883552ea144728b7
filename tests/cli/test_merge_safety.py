"""`muster plan merge` says what is so: one at a time, whatever settings, hooks, filters and others do."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from git_projects import commit_first, commits_as_ann, git, make_project, publish
from stand_in_git import git_that

from muster.app.merge_lock import one_merge
from muster.hosts.user_git import UserGit
from muster.model.errors import Conflict
from muster_command import MUSTER
from muster_command import run_muster as muster
from patience import PATIENCE_S, until

PLAN = "# Site\n\n- [ ] Page {#page}\n  true\n- [ ] Index {#index}\n  true\n"
NOTED = PLAN + "\nA note of the agent.\n"
TICKED = PLAN.replace("[ ] Page", "[x] Page")
BRANCH, OTHER = "muster/plan/site", "muster/plan/other"
ABORT = "git merge --abort"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two plans have published."""
    commits_as_ann(monkeypatch)
    folder = make_project(tmp_path / "project", config='agent = "shell"\n', plan=PLAN)
    (folder / "other.md").write_text("# Other\n\n- [ ] Do {#do}\n  true\n")
    (folder / ".gitignore").write_text(".muster/\nmarks/\n")
    for name in ("a.txt", "b.txt", "notes.txt", "zone.txt"):
        (folder / name).write_text("one\n")
    commit_first(folder, ".")
    (folder / "marks").mkdir()
    assert muster(folder, "plan", "add", "plan.md").returncode == 0
    assert muster(folder, "plan", "add", "other.md").returncode == 0
    publish(folder, "site/page", {"a.txt": "two\n", "page/new.txt": "new\n"})
    publish(folder, "other/do", {"b.txt": "two\n"})
    return folder


def hook(project: Path, name: str, script: str) -> None:
    hooks = project / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    (hooks / name).write_text(f"#!/bin/sh\n{script}\n")
    (hooks / name).chmod(0o755)


WAITS = "touch marks/begun; until test -e marks/go; do sleep 0.02; done"


def state(project: Path) -> tuple[str, ...]:
    files = sorted(file for file in project.rglob("*.*") if not {".git", ".muster"} & set(file.parts))
    return (
        git(project, "rev-parse", "HEAD"),
        git(project, "status", "--porcelain"),
        *(f"{file} {file.read_text()}" for file in files if file.is_file()),
    )


def begin(project: Path, plan: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*MUSTER, "plan", "merge", plan],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out + err


def waits(process: subprocess.Popen[str]) -> bool:
    """It has opened the lock, or has ended."""
    files = Path(f"/proc/{process.pid}/fd")

    def told(file: Path) -> str:
        try:
            return str(file.readlink())
        except OSError:
            return ""

    return process.poll() is not None or any("muster-merge.lock" in told(file) for file in files.iterdir())


def test_two_merges_at_once_come_one_after_the_other(project: Path) -> None:
    hook(project, "pre-merge-commit", WAITS)
    first = begin(project, "site")
    until((project / "marks" / "begun").exists)
    with (
        pytest.raises(
            Conflict, match=f"process {first.pid} merges plan site here since .*nothing was changed"
        ),
        one_merge(UserGit(project), "other", wait_s=0),
    ):
        raise AssertionError
    second = begin(project, "other")
    until(lambda: waits(second))
    (project / "marks" / "go").touch()
    for process in (first, second):
        code, told = end(process)
        assert code == 0 and "merged" in told, told
    for plan in (BRANCH, OTHER):
        git(project, "merge-base", "--is-ancestor", plan, "HEAD")
    assert git(project, "show", "HEAD:a.txt") == git(project, "show", "HEAD:b.txt") == "two"


def test_a_killed_merge_frees_the_others(project: Path) -> None:
    hook(project, "pre-merge-commit", WAITS)
    first = begin(project, "site")
    until((project / "marks" / "begun").exists)
    first.kill()
    first.wait(PATIENCE_S)
    refused = muster(project, "plan", "merge", "other")
    (project / "marks" / "go").touch()
    end(first)
    assert refused.returncode == 6 and "a merge is under way" in refused.stderr, refused.stderr
    git(project, "merge", "--abort")
    assert muster(project, "plan", "merge", "other").returncode == 0


@pytest.mark.parametrize("ticked", [False, True])
def test_what_is_told_of_a_killed_merge_works(project: Path, *, ticked: bool) -> None:
    publish(project, "site/index", {"plan.md": NOTED})
    if ticked:
        (project / "plan.md").write_text(TICKED)
    hook(project, "pre-merge-commit", WAITS)
    first = begin(project, "site")
    until((project / "marks" / "begun").exists)
    first.kill()
    (project / "marks" / "go").touch()
    end(first)
    refused = muster(project, "plan", "merge", "site")
    undo = refused.stderr.partition("or undo it: ")[2]
    assert undo.strip().endswith(ABORT), refused.stderr
    subprocess.run(["sh", "-ec", undo], cwd=project, check=True, capture_output=True)
    assert not (project / "page").exists() and (project / "a.txt").read_text() == "one\n"
    assert muster(project, "plan", "merge", "site").returncode == 0
    assert git(project, "show", "HEAD:plan.md") == NOTED.rstrip("\n")


def test_a_merge_that_is_cut_off_loses_nothing_of_the_plan_s_file(project: Path, tmp_path: Path) -> None:
    publish(project, "site/index", {"plan.md": NOTED})
    killed = git_that(tmp_path, '"$real" "$@"; kill -9 $PPID')
    assert muster(project, "plan", "merge", "site", env=killed).returncode == -signal.SIGKILL
    git(project, "commit", "--no-edit", "--quiet")
    done = muster(project, "plan", "merge", "site")
    assert done.returncode == 0, done.stderr
    assert git(project, "show", "HEAD:plan.md") == NOTED.rstrip("\n")
    assert git(project, "show", "HEAD:a.txt") == "two"


@pytest.mark.parametrize("when", ["before", "index", "hook"])
def test_another_git_at_the_same_moment_is_not_taken_for_ours(
    project: Path, tmp_path: Path, when: str
) -> None:
    """A person's own `git merge` has begun before ours; has written the index; is there before the commit."""
    tip = git(project, "rev-parse", OTHER)
    crossed = f"echo {tip} > .git/MERGE_HEAD"
    env = None
    if when == "before":
        env = git_that(tmp_path, f'{crossed}; "$real" "$@"')
    elif when == "index":
        blob = git(project, "rev-parse", f"{OTHER}:b.txt")
        entry = f"git update-index --cacheinfo 100644,{blob},b.txt"
        env = git_that(tmp_path, f'"$real" "$@"; code=$?; {entry}; exit $code')
    else:
        hook(project, "pre-merge-commit", crossed)
    head = git(project, "rev-parse", "HEAD")
    refused = muster(project, "plan", "merge", "site", env=env)
    assert refused.returncode == 6, refused.stdout
    words = {"before": "another merge", "index": "git's index is not", "hook": "MERGE_HEAD is another one"}
    assert words[when] in refused.stderr
    assert git(project, "rev-parse", "HEAD") == head
    if when != "index":
        assert git(project, "rev-parse", "MERGE_HEAD") == tip


HIDING = {"--assume-unchanged": "--no-assume-unchanged", "--skip-worktree": "--no-skip-worktree"}


@pytest.mark.parametrize("how", HIDING)
def test_what_git_was_told_to_pass_over_is_not_overwritten(project: Path, how: str) -> None:
    git(project, "update-index", how, "a.txt")
    (project / "a.txt").write_text("mine\n")
    before = state(project)
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 6 and "pass over: a.txt; nothing was changed" in refused.stderr
    assert f"git update-index {HIDING[how]} FILE" in refused.stderr
    assert state(project) == before and (project / "a.txt").read_text() == "mine\n"
    git(project, "update-index", HIDING[how], "a.txt")
    git(project, "stash")
    assert muster(project, "plan", "merge", "site").returncode == 0


@pytest.mark.parametrize("seen", [True, False])
def test_a_bystander_that_git_passes_over_outlives_a_refusal(
    project: Path, tmp_path: Path, *, seen: bool
) -> None:
    """Not `seen`: the edit for which git refuses comes after Muster has looked."""
    git(project, "update-index", "--assume-unchanged", "notes.txt")
    (project / "notes.txt").write_text("mine\n")
    if seen:
        (project / "a.txt").write_text("dirty\n")
    env = None if seen else git_that(tmp_path, 'echo dirty > a.txt; exec "$real" "$@"')
    refused = muster(project, "plan", "merge", "site", env=env)
    assert refused.returncode == 6 and "not committed: a.txt" in refused.stderr, refused.stderr
    assert (project / "notes.txt").read_text() == "mine\n" and (project / "a.txt").read_text() == "dirty\n"


def test_what_a_failed_filter_has_left_is_put_back(project: Path) -> None:
    files = {".gitattributes": "*.big filter=big\n", "kept.big": "old\n"}
    for name, text in files.items():
        (project / name).write_text(text)
    for what in ("smudge", "clean"):
        git(project, "config", f"filter.big.{what}", "cat")
    git(project, "config", "filter.big.required", "true")
    git(project, "add", ".")
    git(project, "commit", "-qm", "filtered")
    git(project, "branch", "-f", BRANCH, "HEAD")
    publish(project, "site/page", {"a.txt": "two\n", "deep/er/x.txt": "x\n", "kept.big": "new\n", "z": "z\n"})
    git(project, "config", "filter.big.smudge", "echo no connection >&2; false")
    (project / "notes.txt").write_text("mine\n")
    before = state(project)
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 6 and "nothing was changed" in refused.stderr
    assert "no connection" in refused.stderr, refused.stderr
    assert state(project) == before and not (project / "deep").exists()
    git(project, "config", "filter.big.smudge", "cat")
    done = muster(project, "plan", "merge", "site")
    assert done.returncode == 0, done.stderr
    assert (project / "kept.big").read_text() == "new\n"


def test_what_others_have_written_meanwhile_is_named_and_stays(project: Path, tmp_path: Path) -> None:
    dies = git_that(tmp_path, "rm a.txt; echo two > a.txt; mkdir page; echo mine > page/new.txt; exit 128")
    refused = muster(project, "plan", "merge", "site", env=dies)
    assert refused.returncode == 6 and "meanwhile: page/new.txt" in refused.stderr, refused.stderr
    assert "nothing was changed" not in refused.stderr
    assert (project / "page" / "new.txt").read_text() == "mine\n"
    assert (project / "a.txt").read_text() == "one\n"


@pytest.mark.parametrize("at", ["hook", "git"])
def test_ctrl_c_says_what_state_it_is_in(project: Path, at: str) -> None:
    before = state(project)
    if at == "hook":
        hook(project, "pre-merge-commit", WAITS)
    else:
        git(project, "config", "filter.slow.smudge", f"{{ {WAITS}; }} >&2; cat")
        (project / ".git" / "info").mkdir(exist_ok=True)
        (project / ".git" / "info" / "attributes").write_text("new.txt filter=slow\n")
    process = begin(project, "site")
    until((project / "marks" / "begun").exists)
    os.killpg(process.pid, signal.SIGINT)
    code, told = end(process)
    assert code == -signal.SIGINT
    if at == "hook":
        assert f"interrupted; the merge is made and not committed: git commit; or undo it: {ABORT}" in told
        git(project, "merge", "--abort")
    else:
        assert "interrupted; nothing was changed" in told, told
    (project / "marks" / "begun").unlink()
    assert state(project) == before


def test_ticks_do_not_keep_a_merge_that_a_hook_refuses_from_its_abort(project: Path) -> None:
    publish(project, "site/index", {"plan.md": NOTED})
    (project / "plan.md").write_text(TICKED)
    hook(project, "pre-merge-commit", "echo not now; exit 1")
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 6 and f"undo it: {ABORT}" in refused.stderr
    git(project, "merge", "--abort")
    assert "[x] Page" in (project / "plan.md").read_text() and not (project / "page").exists()


def test_what_rerere_resolves_is_named_and_not_committed(project: Path) -> None:
    git(project, "config", "rerere.enabled", "true")
    git(project, "config", "rerere.autoUpdate", "true")
    (project / "a.txt").write_text("ours\n")
    git(project, "commit", "-qam", "ours")
    head = git(project, "rev-parse", "HEAD")
    assert "there are conflicts in a.txt" in muster(project, "plan", "merge", "site").stderr
    (project / "a.txt").write_text("both\n")
    git(project, "commit", "-qam", "resolved")
    git(project, "reset", "-q", "--hard", head)
    again = muster(project, "plan", "merge", "site")
    assert again.returncode == 6 and "resolved the conflicts in a.txt as they were before" in again.stderr
    assert git(project, "rev-parse", "HEAD") == head
    git(project, "commit", "-q", "--no-edit")
    assert git(project, "show", "HEAD:a.txt") == "both"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("branch.main=x.mergeOptions", value)
            for value in ("-s ours", "--squash", "--ff-only", "--no-such")
        ),
        ("pull.twohead", "ours"),
        ("merge.ff", "only"),
        ("merge.log", "true"),
        ("merge.autoStash", "true"),
    ],
)
def test_no_setting_bends_what_comes(project: Path, name: str, value: str) -> None:
    git(project, "checkout", "-q", "-b", "main=x")
    git(project, "config", name, value)
    head = git(project, "rev-parse", "HEAD")
    done = muster(project, "plan", "merge", "site")
    assert done.returncode == 0, done.stderr
    assert (project / "a.txt").read_text() == "two\n"
    assert git(project, "log", "-1", "--format=%P").split() == [head, git(project, "rev-parse", BRANCH)]
    assert "without" not in git(project, "log", "-1", "--format=%B")


def test_options_do_not_hide_a_conflict(project: Path) -> None:
    branch = git(project, "symbolic-ref", "--short", "HEAD")
    git(project, "config", f"branch.{branch}.mergeOptions", "-X theirs")
    (project / "a.txt").write_text("ours\n")
    git(project, "commit", "-qam", "ours")
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 6 and "there are conflicts in a.txt" in refused.stderr


def test_what_is_staged_is_named(project: Path) -> None:
    (project / "notes.txt").write_text("staged\n")
    git(project, "add", "notes.txt")
    before = state(project)
    refused = muster(project, "plan", "merge", "site")
    words = "you have staged what is not committed: notes.txt; nothing was changed\n"
    assert refused.returncode == 6 and words in refused.stderr and "git stash" in refused.stderr
    assert state(project) == before


def test_a_branch_that_was_deleted_is_put_back(project: Path) -> None:
    tip = git(project, "rev-parse", BRANCH)
    git(project, "update-ref", "refs/muster/site/@published", tip)
    git(project, "branch", "-qD", BRANCH)
    refused = muster(project, "plan", "merge", "site")
    put_back = f"git branch {BRANCH} {tip[:12]}"
    assert refused.returncode == 3 and "it was deleted; what was published" in refused.stderr
    assert put_back in refused.stderr
    git(project, *put_back.split()[1:])
    assert muster(project, "plan", "merge", "site").returncode == 0
    git(project, "branch", "-qD", BRANCH)
    refused = muster(project, "plan", "merge", "site")
    assert refused.returncode == 3 and "it was deleted; all that was published" in refused.stderr
