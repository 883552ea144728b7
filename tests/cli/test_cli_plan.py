"""`muster plan`: list, pause, resume."""

from __future__ import annotations

import json

import pytest

from muster.model import commands as c
from muster.model.states import ErrorKind


def break_it(owner):
    """Four more failures after the seed's one."""
    tasks = tuple(c.Spec(title=key, key=key, max_retries=0) for key in ("f1", "f2", "f3", "f4", "rest"))
    owner.do(c.Enqueue(plan="billing", source=None, tasks=tasks, actor="user:ann"))
    jobs = owner.claim("r3", slots=4)
    for number, job in enumerate(jobs.values()):
        owner.begin(job)
        owner.do(c.Fail(task_id=job.task_id, epoch=1, kind=ErrorKind.CRASH, message=f"no {number}"))


def test_list_pause_and_resume(cli, owner):
    assert cli("plan", "list").out.startswith("billing  ")
    ran = cli("plan", "pause", "billing")
    assert (ran.code, ran.out) == (0, "billing  paused; what runs goes on\n")
    assert owner.claim("r8") == {}
    assert "plan billing: by a person; `muster plan resume billing` goes on" in cli("plan", "list").out
    assert json.loads(cli("plan", "list", "--json").out)[0]["paused"] == "user"
    assert "plan billing is paused" in cli("task", "show", "other").out
    assert "paused" in cli("status").out
    ran = cli("plan", "resume", "billing", "--json")
    assert json.loads(ran.out) == {"plan": "billing", "paused": None, "failures": 0}
    assert cli("plan", "resume", "billing").code == 6


def test_the_breaker_is_told_everywhere(cli, owner):
    break_it(owner)
    assert "5 tasks failed in a row" in cli("plan", "list").out
    assert "because 5 of its tasks failed in a row" in cli("task", "show", "rest").out


@pytest.mark.parametrize("verb", ["pause", "resume"])
@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ((), 2, "NAME"),
        (("biling",), 3, "there is no plan 'biling'"),
        (("",), 3, "plan"),
        (("a/../b",), 3, "there is no plan"),
        (("\x00",), 3, "there is no plan"),
        (("billing", "more"), 2, "knows no argument 'more'"),
    ],
)
def test_wrong_input(cli, owner, verb, argv, code, message):
    before = owner.fingerprint()
    ran = cli("plan", verb, *argv)
    assert ran.code == code and message in ran.err
    assert owner.fingerprint() == before


def test_an_unknown_verb(cli, owner):
    ran = cli("plan", "pauze", "billing")
    assert ran.code == 2 and "did you mean 'pause'?" in ran.err


def test_no_plans(cli, empty):
    assert cli("plan", "list").out == "0 plans: muster run PLAN.md\n"
