"""What a person has not committed outlives a merge that git refuses, also where git resets what it knows."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
from git_projects import commit_first, commits_as_ann, git, make_project, publish
from stand_in_git import git_that

from muster_command import run_muster as muster

PLAN = "# Site\n\n- [ ] Page {#page}\n  true\n"
NAMES = ("a.txt", "notes.txt", "deep/x.txt", "deep/y.txt")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    commits_as_ann(monkeypatch)
    folder = make_project(tmp_path / "project", config='agent = "shell"\n', plan=PLAN)
    (folder / ".gitignore").write_text(".muster/\n*.log\n")
    (folder / "deep").mkdir()
    for name in NAMES:
        (folder / name).write_text("one\n")
    commit_first(folder, ".")
    assert muster(folder, "plan", "add", "plan.md").returncode == 0
    publish(folder, "site/page", {"a.txt": "two\n", "deep/x.txt": "two\n"})
    return folder


def refused(project: Path, **more: dict[str, str]) -> str:
    done = muster(project, "plan", "merge", "site", **more)
    assert done.returncode == 6 and not (project / ".git" / "muster-merge").exists(), done.stderr
    return done.stderr


@pytest.mark.parametrize("link", [False, True])
def test_what_lies_in_the_place_of_a_folder_is_named_and_stays(project: Path, *, link: bool) -> None:
    shutil.rmtree(project / "deep")
    place = project / "deep"
    if link:
        place.symlink_to("elsewhere")
    else:
        place.write_text("mine\n")
    told = refused(project)
    assert "deep, which you have not committed, lies in the place" in told and "nothing was changed" in told
    assert place.readlink() == Path("elsewhere") if link else place.read_text() == "mine\n"
    assert (project / "a.txt").read_text() == "one\n"


def test_a_folder_in_the_place_of_a_file_of_no_merge_stays(project: Path, tmp_path: Path) -> None:
    """Git would remove it where it refuses for an edit that comes after Muster has looked."""
    (project / "notes.txt").unlink()
    (project / "notes.txt").mkdir()
    (project / "notes.txt" / "mine.log").write_text("mine\n")
    env = git_that(tmp_path, 'echo dirty > a.txt; exec "$real" "$@"')
    assert "notes.txt, which you have not committed, lies in the place" in refused(project, env=env)
    assert (project / "notes.txt" / "mine.log").read_text() == "mine\n"


def test_a_folder_that_is_gone_or_empty_is_in_nobody_s_way(project: Path) -> None:
    shutil.rmtree(project / "deep")
    (project / "notes.txt").unlink()
    (project / "notes.txt").mkdir()
    done = muster(project, "plan", "merge", "site")
    assert done.returncode == 0, done.stderr
    assert (
        git(project, "show", "HEAD:deep/x.txt") == (project / "deep" / "x.txt").read_text().strip() == "two"
    )


def test_an_edited_bystander_outlives_a_reset_whose_filter_fails(project: Path, tmp_path: Path) -> None:
    (project / ".git" / "info").mkdir(exist_ok=True)
    (project / ".git" / "info" / "attributes").write_text("notes.txt filter=big\n")
    git(project, "config", "filter.big.clean", "cat")
    git(project, "config", "filter.big.smudge", "false")
    git(project, "config", "filter.big.required", "true")
    (project / "notes.txt").write_text("mine\n")
    env = git_that(tmp_path, 'echo dirty > a.txt; exec "$real" "$@"')
    refused(project, env=env)
    assert (project / "notes.txt").read_text() == "mine\n" and (project / "a.txt").read_text() == "dirty\n"


def test_what_cannot_be_put_aside_is_told_before_anything_is_changed(project: Path) -> None:
    (project / ".git" / "muster-merge").write_text("")
    done = muster(project, "plan", "merge", "site")
    assert "what a merge may touch cannot be put aside first" in done.stderr, done.stderr
    assert "nothing was changed" in done.stderr and (project / "a.txt").read_text() == "one\n"


def test_what_a_killed_merge_has_reset_is_kept_until_somebody_has_looked(
    project: Path, tmp_path: Path
) -> None:
    """Git resets an edit that the merge has nothing for, and nobody is there any more to put it back."""
    notes, kept = project / "notes.txt", project / ".git" / "muster-merge" / "edited" / "notes.txt"
    notes.write_text("mine\n")
    killed = git_that(tmp_path, "rm notes.txt; echo one >notes.txt; kill -9 $PPID; exit 1")
    assert muster(project, "plan", "merge", "site", env=killed).returncode == -signal.SIGKILL
    done = muster(project, "plan", "merge", "site")
    assert done.returncode == 6 and "notes.txt may have lost what was not committed then" in done.stderr
    assert kept.read_text() == "mine\n" and (project / "a.txt").read_text() != "two\n"
    kept.replace(notes)
    shutil.rmtree(kept.parents[1])
    assert muster(project, "plan", "merge", "site").returncode == 0
    assert notes.read_text() == "mine\n" and (project / "a.txt").read_text() == "two\n"


def test_a_killed_merge_that_has_reset_nothing_is_in_nobodys_way(project: Path, tmp_path: Path) -> None:
    (project / "notes.txt").write_text("mine\n")
    killed = git_that(tmp_path, "kill -9 $PPID; exit 1")
    assert muster(project, "plan", "merge", "site", env=killed).returncode == -signal.SIGKILL
    assert muster(project, "plan", "merge", "site").returncode == 0
    assert (project / "notes.txt").read_text() == "mine\n"
