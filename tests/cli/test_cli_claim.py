"""`muster claim`: with an owner, without one, and with wrong words."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from muster.cli.context import actor
from muster.model import commands as c
from patience import PATIENCE_S

_EXPORT = re.compile(r"^export (\w+)=(.*)$", re.MULTILINE)


@pytest.fixture
def ready(owner):
    """As `owner`, with a task `new` that waits for an agent that nobody has."""
    task = c.Spec(title="By hand", key="new", agent="ghost", description="Two\nlines")
    owner.do(c.Enqueue(plan="billing", source=None, tasks=(task,), actor="user:ann"))
    return owner


@pytest.fixture
def mine(cli, ready):
    """The environment of a shell that has taken `new`."""
    return dict(_EXPORT.findall(cli("claim", "take", "new", "--env").out))


def test_taken_shown_and_done(cli, ready):
    ran = cli("claim", "take", "new", "--lease", "10m")
    assert ran.code == 0, ran.err
    assert "billing/new  By hand" in ran.out and "yours as attempt 1 until" in ran.out
    assert "(10m from now)" in ran.out
    assert "Two\n" in ran.out and "export MUSTER_TOKEN=" in ran.out
    listed = cli("claim", "list")
    row = next(line for line in listed.out.splitlines() if line.startswith("billing/new"))
    assert row.split()[1:4] == [actor(), "by", "hand"]
    assert "(30m from now)" in cli("claim", "renew", "new", "--lease", "30m").out
    assert cli("claim", "release", "new", "--done", "--result", '{"n": 1}').code == 0
    shown = json.loads(cli("task", "show", "new", "--json").out)
    assert (shown["task"]["status"], shown["result"]) == ("COMPLETED", '{"n": 1}')


def test_reports_work_in_the_shell_that_took_it(cli, ready, mine):
    assert set(mine) >= {"MUSTER_SOCKET", "MUSTER_TOKEN", "MUSTER_TASK_ID", "MUSTER_EPOCH"}
    assert cli("report", "progress", "40", "--step", "half", env=mine).code == 0
    assert cli("report", "checkpoint", "--text", "state", env=mine).code == 0
    assert cli("claim", "renew", env=mine).code == 0
    assert "40 % half" in cli("task", "show", "new").out
    assert cli("report", "done", "--result", "[1]", env=mine).code == 0
    assert ready.tasks()["new"].status == "COMPLETED", "nobody waits for a process to end"
    late = cli("claim", "renew", env=mine)
    assert (late.code, "it ended as completed" in late.err) == (6, True)


def test_a_report_keeps_the_lease(cli, ready):
    env = dict(_EXPORT.findall(cli("claim", "take", "new", "--lease", "100s", "--env").out))
    (before,) = (row for row in json.loads(cli("claim", "list", "--json").out) if row["key"] == "new")
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        assert cli("report", "artifact", "x", "y", env=env).code == 0
        (after,) = (row for row in json.loads(cli("claim", "list", "--json").out) if row["key"] == "new")
        if after["leaseEndsAtMs"] > before["leaseEndsAtMs"]:
            break
        assert time.monotonic() < deadline_s


def test_given_back_and_failed(cli, ready, mine):
    assert "given back" in cli("claim", "release", env=mine).out
    assert cli("claim", "take", "new", "--json").code == 0
    ran = cli("claim", "release", "new", "--fail", "no idea")
    assert ran.code == 0 and "no idea" in ran.out
    task = ready.tasks()["new"]
    assert (task.status, task.retries, task.error) == ("ABORTED", 1, "no idea")


def test_answers_for_programs(cli, ready):
    taken = json.loads(cli("claim", "take", "new", "--json").out)
    assert (taken["job"]["epoch"], taken["holder"], taken["env"]["MUSTER_EPOCH"]) == (1, actor(), "1")
    assert json.loads(cli("claim", "renew", "new", "--json").out)["leaseEndsAtMs"] > time.time() * 1000
    assert json.loads(cli("claim", "release", "new", "--json").out)["status"] == "PENDING"


def test_without_an_owner_everything_works_as_well(root):
    def muster(script, code=0):
        env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        ran = subprocess.run(
            ["sh", "-c", script], cwd=root, env=env, capture_output=True, text=True, check=False
        )
        assert ran.returncode == code, ran.stderr
        return ran.stdout

    muster("muster init && muster task add 'By hand' --key new --plan p")
    muster(
        'set -e; eval "$(muster claim take p/new --env)"; muster report checkpoint --text half; '
        'test "$(muster report checkpoint --show)" = half; muster claim renew; muster report done'
    )
    assert "completed" in muster("muster task list")
    assert muster("muster claim list") == "nobody holds a task\n"


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (("take", "nowhere"), 3, "there is no task 'nowhere'"),
        (("take", "api"), 6, "billing/api cannot be taken now: running on worker-abcdefgh"),
        (("take", "docs"), 6, "billing/docs cannot be taken now: waits for tests (FAILED)"),
        (("take", "model"), 6, "cannot be taken now: done by attempt 1"),
        (("take", "tests"), 6, "cannot be taken now: failed after 1 run"),
        (("take", "api#1"), 2, "names an attempt"),
        (("take",), 2, "TASK"),
        (("take", "new", "--lease", "0s"), 2, "'0s' is not between 1s and 7d"),
        (("take", "new", "--lease", "8d"), 2, "'8d' is not between 1s and 7d"),
        (("take", "new", "--lease", "soon"), 2, "'soon' is not a duration"),
        (("take", "new", "--env", "--leas", "1m"), 2, "--lease"),
        (("renew",), 2, "this shell has taken none"),
        (("renew", "new"), 6, "was never taken"),
        (("renew", "api"), 6, "is an agent's"),
        (("renew", "api#7"), 3, "has no attempt 7"),
        (("release", "new"), 6, "was never taken"),
        (("release", "api", "--done"), 6, "is an agent's"),
        (("release", "model"), 6, "is an agent's"),
        (("release", "new", "--done", "--fail", "x"), 2, "exclude each other"),
        (("release", "new", "--result", "1"), 2, "--result is for what is done"),
        (("release", "new", "--done", "--result", "{"), 2, "--result is not JSON"),
        (("release", "new", "--done", "--result", "@none.json"), 2, "cannot read none.json"),
        (("release", "new", "--fail", " "), 2, "says no reason"),
        (("list", "new"), 2, "knows no argument 'new'"),
        (("grab", "new"), 2, "'grab' is not one of"),
        ((), 2, "VERB"),
    ],
)
def test_wrong_words_change_nothing(refused, ready, argv, code, message):
    refused("claim", *argv, code=code, message=message)


def test_what_somebody_else_holds_stays_theirs(cli, ready, monkeypatch):
    assert cli("claim", "take", "new").code == 0
    before = ready.fingerprint()
    monkeypatch.setattr("muster.cli.context.actor", lambda: "user:somebody-else")
    for argv in (("take", "new"), ("renew", "new"), ("release", "new")):
        ran = cli("claim", *argv)
        assert ran.code == 6
        assert "by hand, by" in ran.err or "is held by" in ran.err
    assert ready.fingerprint() == before


def test_a_task_that_cannot_be_taken_is_called_by_its_name(cli, owner):
    number = str(owner.tasks()["tests"].id)
    ran = cli("claim", "take", "tests")
    assert ran.code == 6
    assert "billing/tests cannot be taken now" in ran.err and "muster task show billing/tests" in ran.err
    assert number not in ran.err
