"""`task wait | run | next`, `--wait` and `--fields`."""

from __future__ import annotations

import json

import pytest

from muster.model import commands as c
from muster.model.states import ErrorKind
from patience import PATIENCE_S

WORDS = ["ref", "state", "priority"]


@pytest.mark.parametrize(("kind", "code", "word"), [(None, 0, "completed"), (ErrorKind.INVALID, 5, "failed")])
def test_wait_ends_on_any_end(owner, start, kind, code, word):
    api = owner.tasks()["api"]
    waiting = start("task", "wait", "billing/api", "billing/model")
    owner.log(api.id, 1, b"working\n")
    if kind is None:
        owner.do(c.Complete(task_id=api.id, epoch=1, result=None, exit_code=0))
    else:
        owner.do(c.Fail(task_id=api.id, epoch=1, kind=kind, message="no such model"))
    out, err = waiting.communicate(timeout=PATIENCE_S)
    assert waiting.returncode == code, err
    last = out.decode().splitlines()[-2:]
    assert word in last[0] and "billing/api" in last[0]
    assert "completed" in last[1] and "billing/model" in last[1]


def test_wait_times_out_and_says_what_it_waited_for(cli, owner):
    before = owner.fingerprint()
    ran = cli("task", "wait", "api", "--timeout", "200ms")
    assert (ran.code, ran.raw) == (8, b"")
    assert "billing/api" in ran.err and "muster task wait billing/api" in ran.err
    assert owner.fingerprint() == before


def test_wait_for_what_has_ended_says_so_at_once(cli, owner):
    assert cli("task", "wait", "model").code == 0
    ran = cli("task", "wait", "model", "tests", "--json")
    assert ran.code == 5
    assert [task["status"] for task in json.loads(ran.out)] == ["COMPLETED", "FAILED"]


def test_wait_without_an_owner_does_not_wait(cli, owner):
    owner.close()
    ran = cli("task", "wait", "api")
    assert ran.code == 7
    assert "no owner is up, so billing/api will not end" in ran.err
    ran = cli("task", "run", "Build it")
    assert (ran.code, ran.raw) == (7, b"")
    assert "nothing was changed" in ran.err
    assert "Build it" not in cli("task", "list", "--json").out


def complete(owner, process, key, epoch):
    """As a worker would once the command has made the task; returns what the command has said by its own end."""
    while key not in (jobs := owner.claim("again")):
        pass
    owner.begin(jobs[key])
    owner.do(c.Complete(task_id=jobs[key].task_id, epoch=epoch, result=None, exit_code=0))
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    return out.decode()


def test_run_adds_a_task_and_waits_for_its_end(owner, start):
    running = start("task", "run", "Build it", "--plan", "loose", "--key", "k", "--json")
    task = json.loads(complete(owner, running, "k", 1))
    assert (task["key"], task["status"], task["added"]) == ("k", "COMPLETED", True)


def test_a_retry_may_be_waited_for(owner, start):
    retrying = start("task", "retry", "tests", "--note", "half-even", "--wait", "20s")
    text = complete(owner, retrying, "tests", 2)
    assert "starts anew (generation 2)" in text
    assert "running" in text and "completed" in text


def test_next_is_in_the_order_of_claims_and_leaves_out_paused_plans(cli, owner):
    specs = [("low", 2, 0), ("late", 8, 9), ("early", 8, 1), ("high", 10, 0)]
    tasks = tuple(c.Spec(title=key, key=key, priority=number, sort_key=sort) for key, number, sort in specs)
    owner.do(c.Enqueue(plan="queue", source=None, tasks=tasks, actor="user:ann"))
    refs = cli("task", "next", "--fields", "ref").out.split()
    assert refs == ["queue/high", "queue/early", "queue/late", "billing/other", "queue/low"]
    assert (
        cli("task", "next", "--limit", "2", "--fields", "ref,priority").out
        == "queue/high\t10\nqueue/early\t8\n"
    )
    assert cli("plan", "pause", "queue").code == 0
    assert cli("task", "next", "--fields", "ref").out.split() == ["billing/other"]
    assert "billing/other" in cli("task", "next").out


def test_fields_are_picked_in_the_order_that_was_asked_for(cli, owner):
    lines = cli("task", "list", "--fields", ",".join(WORDS)).out.splitlines()
    assert lines[0] == "billing/model\tcompleted\t5"
    rows = json.loads(cli("task", "list", "--fields", ",".join(WORDS), "--json").out)
    assert [list(row) for row in rows] == [WORDS] * 5


def test_fields_that_are_not_there(cli, owner):
    ran = cli("task", "list", "--fields", "ref,stat")
    assert (ran.code, ran.raw) == (2, b"")
    assert "there is no field 'stat'; did you mean 'state'?" in ran.err or "did you mean 'status'?" in ran.err
    ran = cli("task", "cancel", "api", "--fields", "ref")
    assert ran.code == 2
    assert owner.tasks()["api"].status == "RUNNING"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("task", "wait"), "required: REF"),
        (("task", "wait", "api", "--timeout", "soon"), "soon"),
        (("task", "next", "--limit", "0"), "'0' is not a number from 1"),
        (("task", "retry", "tests", "--wait", "never"), "never"),
    ],
)
def test_wrong_input(refused, owner, argv, message):
    refused(*argv, code=2, message=message)


def test_wait_for_a_task_that_is_not_there(cli, owner):
    assert cli("task", "wait", "nope").code == 3
