"""Following a pull request where the forge, its people, the network or another follower do something odd."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from forge_stub import StubForge, check_run
from git_projects import git
from test_pr import BRANCH, forge, project, remote, repository  # noqa: F401

from muster.app.pull_request_targets import Target
from muster.app.pull_requests import publish
from muster.outbound.forge_api import HttpApi
from muster.outbound.forges import GitHub
from muster_command import MUSTER
from muster_command import run_muster as muster
from patience import PATIENCE_S, until

FOLLOW = (*MUSTER, "pr", "site", "--follow", "--every", "50ms")


@contextmanager
def crew(project: Path) -> Iterator[None]:  # noqa: F811
    with subprocess.Popen([*MUSTER, "up"], cwd=project, stdout=subprocess.DEVNULL) as up:
        try:
            until(lambda: "worker-" in muster(project, "worker", "list").stdout)
            yield
        finally:
            muster(project, "down", "--now")
            up.wait(PATIENCE_S)


def following(project: Path, *more: str) -> subprocess.Popen[str]:  # noqa: F811
    pipe = subprocess.PIPE
    return subprocess.Popen([*FOLLOW, *more], cwd=project, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def proposed(project: Path) -> list[str]:  # noqa: F811
    shown = muster(project, "pr", "status", "--json")
    assert shown.returncode == 0, shown.stderr
    return [one["note"] for record in json.loads(shown.stdout) for one in record["proposed"]]


def updates(forge: StubForge) -> int:  # noqa: F811
    return sum(method == "PATCH" for method, *_ in forge.asked)


def test_who_has_lost_write_access_is_not_heard_any_more(forge: StubForge) -> None:  # noqa: F811
    hub = GitHub(HttpApi(forge.api, "Bearer", forge.token, "X"), "acme/site")
    forge.comment("ann", "shorter", path="page.txt", line=1)
    assert [one.writes for one in hub.comments(7)] == [True]
    forge.writers.clear()
    assert [one.writes for one in hub.comments(7)] == [False]


def test_comments_that_are_edited_deleted_resolved_or_odd(project: Path, forge: StubForge) -> None:  # noqa: F811
    assert muster(project, "pr", "site").returncode == 0
    forge.comment("ann", "say hello to all", path="page.txt", line=1)
    forge.comment("ann", "done since", path="page.txt", line=1)
    forge.resolved = {2}
    forge.comments.append({"id": 9, "user": None, "body": None, "html_url": ""})
    forge.comment("ann", "half a \ud800 and a \0 character")
    notes = "\n".join(proposed(project))
    assert "say hello to all" in notes and "half a ? and a  character" in notes and "done since" not in notes
    assert muster(project, "pr", "retry", "site").returncode == 0
    assert proposed(project) == []
    forge.comments[0]["body"] = "say goodbye"
    assert "say goodbye" in "\n".join(proposed(project)), "an edited one is a new one"
    del forge.comments[0]
    assert proposed(project) == []


def test_what_does_not_fit_into_one_note_is_told_in_the_next_one(project: Path, forge: StubForge) -> None:  # noqa: F811
    assert muster(project, "pr", "site").returncode == 0
    for number in range(6):
        forge.comment("ann", f"number {number} {'x' * 1400}", path="page.txt", line=1)
    (first,) = proposed(project)
    assert muster(project, "pr", "retry", "site").returncode == 0
    (second,) = proposed(project)
    assert [sum(f"number {n} " in note for note in (first, second)) for n in range(6)] == [1] * 6


def test_a_second_follower_is_refused_and_an_absent_forge_waited_for(project: Path, forge: StubForge) -> None:  # noqa: F811
    with crew(project):
        one = following(project, "--rounds", "1")
        until(lambda: list(project.glob(".muster/*.follow")), "it follows")
        other = muster(project, "pr", "site", "--follow")
        assert other.returncode == 6 and "follows the pull request of site already" in other.stderr
        forge.status, asked = 503, len(forge.asked)
        until(lambda: len(forge.asked) > asked + 2, "it asks on")
        forge.pulls[0].update(state="closed", merged=True)
        forge.status = 0
        out, _ = one.communicate(timeout=PATIENCE_S)
    assert one.returncode == 0, out
    assert "the forge answers 503" in out


def test_what_is_merged_between_a_look_and_its_update_is_not_opened_anew(forge: StubForge) -> None:  # noqa: F811
    hub = GitHub(HttpApi(forge.api, "Bearer", forge.token, "X"), "acme/site")
    given = {"remote": "origin", "base": "main", "new_base": ""}
    opened, new = publish(hub, Target("site", False, "site", BRANCH, "a" * 40), "first", **given)
    assert new
    forge.pulls[0].update(state="closed", merged=True)
    forge.head = lambda _: "a" * 40
    pushed = Target("site", False, "site", BRANCH, "b" * 40)
    record, new = publish(hub, pushed, "second", **given, number=opened.number)
    assert (record.number, record.state, new) == (opened.number, "merged", False)
    assert record.commit == "a" * 40, "the other one came too late"
    assert len(forge.pulls) == 1 and "second" not in forge.pulls[0]["body"]
    assert publish(hub, pushed, "unasked no more", **given)[1], "a person's own command opens another one"


def test_a_branch_that_was_moved_at_the_forge_ends_the_following(project: Path, forge: StubForge) -> None:  # noqa: F811
    forge.every_check = [check_run("ci", None)]
    with crew(project):
        one = following(project)
        until(lambda: forge.pulls, "it is open")
        forced = git(project, "commit-tree", "main^{tree}", "-m", "mine")
        remote(project, "fetch", "-q", str(project), forced)
        remote(project, "update-ref", f"refs/heads/{BRANCH}", forced)
        asked = len(forge.asked)
        until(lambda: one.poll() is not None or len(forge.asked) > asked + 20, "it looks")
        forge.every_check = [check_run("ci", "failure", "red")]
        out, _ = one.communicate(timeout=PATIENCE_S)
        assert one.returncode == 5, out
        assert "was moved at the forge, and not by Muster" in out and "round" not in out
    assert remote(project, "rev-parse", BRANCH) == forced


@pytest.mark.parametrize("twice", [False, True], ids=["once", "killed in the next one too"])
def test_a_round_whose_follower_was_killed_is_published_by_the_next_one(
    project: Path,  # noqa: F811
    forge: StubForge,  # noqa: F811
    *,
    twice: bool,
) -> None:
    tip = git(project, "rev-parse", BRANCH)
    gate, config = project.parent / "go", project / "muster.toml"
    waits = f"until test -e {gate}; do sleep 0.05; done"
    config.write_text(config.read_text().replace("test -e page.txt", waits))
    forge.comment("ann", "say hello to all")
    with crew(project):
        for _ in range(1 + twice):
            one = following(project)
            until(lambda: "RUNNING" in muster(project, "task", "show", "site/index", "--json").stdout)
            one.kill()
            one.communicate()
        told = updates(forge)
        gate.touch()
        last = following(project)
        until(lambda: last.poll() is not None or updates(forge) >= told + 2, "it is pushed, and told")
        assert remote(project, "rev-parse", BRANCH) != tip
        forge.pulls[0].update(state="closed", merged=True)
        out, _ = last.communicate(timeout=PATIENCE_S)
        assert last.returncode == 0, out
        assert "round 1" not in out, "it was begun already"
    assert "say hello to all" in remote(project, "show", f"{BRANCH}:tries.txt")
