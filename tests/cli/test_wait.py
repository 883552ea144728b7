"""`--wait` of every command that sets something going, or stops it."""

from __future__ import annotations

import json
import time

import pytest

from muster.cli.surface import surface
from muster.model import commands as c
from muster.model.states import ErrorKind
from patience import PATIENCE_S, until

WORKER = "worker-abcdefgh"
WAITS = [
    *("task add", "task run", "task retry", "task resume", "task transfer", "task cancel", "task pause"),
    *("task accept", "tell"),
    *("plan add", "plan resume", "plan pause", "plan cancel", "answer", "dead retry"),
    *("worker stop", "claim take", "claim release"),
]
PLAN = "- [ ] Say it {#say}\n  true\n"
CONFIG = 'agent = "shell"\n[task]\nretries = 0\n'


def work(owner, key, *, well=True):
    """A worker takes the task as soon as it can be had, and ends it."""
    jobs = {}
    until(lambda: jobs.update(owner.claim(f"for {key} {time.monotonic_ns()}", slots=1)) or key in jobs)
    job = jobs[key]
    owner.begin(job)
    if well:
        owner.do(c.Complete(task_id=job.task_id, epoch=job.epoch, result=None, exit_code=0))
    else:
        owner.do(c.Fail(task_id=job.task_id, epoch=job.epoch, kind=ErrorKind.INVALID, message="no"))


def add_worker(owner):
    """Another one: the last of a crew is not stopped."""
    owner.register("worker-zyxwvuts", pid=2)


def ended(process, code):
    out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, err
    return out.decode()


def test_it_is_there():
    nodes = [node for command in surface() for node in command.walk()]
    offered = {" ".join(n.path) for n in nodes if any("--wait" in option.names for option in n.options)}
    assert offered == set(WAITS)


@pytest.mark.parametrize(("well", "code"), [(True, 0), (False, 5)])
@pytest.mark.parametrize(
    "words",
    ["task resume docs2", "task transfer docs2 --to shell", "dead retry --kind crash", "answer docs2 yes"],
)
def test_until_the_task_has_ended(cli, owner, start, words, well, code):
    key = "tests" if words.startswith("dead") else "docs2"
    spec = c.Spec(title="More docs", key="docs2", max_retries=0)
    owner.do(c.Enqueue(plan="web", source=None, tasks=(spec,), actor="user:ann"))
    if words.startswith("task resume"):
        cli("task", "pause", "docs2")
    elif words.startswith("answer"):
        job = owner.claim("first")["docs2"]
        owner.begin(job)
        owner.do(c.Ask(task_id=job.task_id, epoch=1, question="so?"))
        owner.do(c.ProcessesExited(task_id=job.task_id, epoch=1))
    process = start(*words.split(), "--wait")
    pinned_agent = "shell" if "transfer" in words else None
    until(lambda: (task := owner.tasks()[key]).status == "PENDING" and task.pinned_agent == pinned_agent)
    work(owner, key, well=well)
    assert ("completed" if well else "failed") in ended(process, code)


def test_a_cancel_until_its_processes_are_gone(owner, start):
    api = owner.tasks()["api"]
    process = start("task", "cancel", "--wait", "api", "--json")
    until(lambda: owner.tasks()["api"].lingering_epoch == 1)
    with pytest.raises(Exception, match="timed out"):
        process.wait(0.3)
    owner.do(c.ProcessesExited(task_id=api.id, epoch=1))
    assert [row["status"] for row in json.loads(ended(process, 0))] == ["CANCELLED"]


@pytest.mark.parametrize(("end", "code"), [("stopped", 0), ("completed", 0), ("failed", 5)])
def test_a_pause_until_nothing_runs(owner, start, end, code):
    api = owner.tasks()["api"]
    process = start("task", "pause", "api", "--wait")
    until(lambda: owner.tasks()["api"].attempt_status == "stopping")
    attempt = {"task_id": api.id, "epoch": 1}
    owner.do(
        {
            "stopped": c.Release(**attempt, reason="asked to stop"),
            "completed": c.Complete(**attempt, result=None, exit_code=0),
            "failed": c.Fail(**attempt, kind=ErrorKind.INVALID, message="no"),
        }[end]
    )
    ended(process, code)


@pytest.mark.parametrize(("well", "code"), [(True, 0), (False, 5)])
@pytest.mark.parametrize(
    "words", ["plan add plan.md --wait", "plan add --update --wait plan.md", "plan resume plan --wait 30s"]
)
def test_until_the_plan_has_settled(cli, owner, start, words, well, code):
    (owner.root / "muster.toml").write_text(CONFIG)
    (owner.root / "plan.md").write_text(PLAN)
    if "resume" in words:
        cli("plan", "add", "plan.md")
        cli("plan", "pause", "plan")
    process = start(*words.split())
    until(lambda: "say" in owner.tasks())
    work(owner, "say", well=well)
    assert f"plan  {int(well)} of 1" in ended(process, code)


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_until_nothing_of_a_plan_runs(owner, start, verb):
    api = owner.tasks()["api"]
    process = start("plan", verb, "billing", "--wait")
    if verb == "cancel":
        until(lambda: owner.tasks()["api"].lingering_epoch == 1)
        owner.do(c.ProcessesExited(task_id=api.id, epoch=1))
    else:
        owner.do(c.Complete(task_id=api.id, epoch=1, result=None, exit_code=0))
    ended(process, 0)


def test_until_a_worker_has_ended(owner, start):
    add_worker(owner)
    process = start("worker", "stop", "--wait", "abcdefgh")
    assert b"ends when it has finished billing/api#1" in process.stdout.readline()
    owner.do(c.Deregister(worker_id=WORKER))
    assert "worker-abcdefgh  has ended" in ended(process, 0)


def test_a_claim_until_the_task_is_free_and_until_it_has_ended(cli, owner, start):
    taking = start("claim", "take", "docs", "--wait", "--json")
    for key in ("api", "tests"):
        assert cli("task", "skip", key).code in (0, 6)
    owner.do(c.Complete(task_id=owner.tasks()["api"].id, epoch=1, result=None, exit_code=0))
    assert json.loads(ended(taking, 0))["job"]["key"] == "docs"
    process = start("claim", "release", "docs", "--wait")
    until(lambda: owner.tasks()["docs"].status == "PENDING")
    work(owner, "docs")
    assert "completed" in ended(process, 0)


def test_a_claim_of_what_never_will_be_free(cli, owner):
    ran = cli("claim", "take", "model", "--wait")
    assert (ran.code, ran.raw) == (6, b"")
    assert "billing/model cannot be taken now" in ran.err


TIMED_OUT = [
    "task cancel api",
    "task pause api",
    "plan pause billing",
    "plan resume billing",
    "worker stop abcdefgh",
]


@pytest.mark.parametrize("words", [*TIMED_OUT, "task retry tests", "dead retry --all", "claim take docs"])
def test_a_wait_that_is_too_long(cli, owner, words):
    add_worker(owner)
    if words == "plan resume billing":
        cli("plan", "pause", "billing")
    ran = cli(*words.split(), "--wait", "--timeout", "100ms")
    assert ran.code == 8, ran.err
    assert "waited 0" in ran.err and "hint  muster" in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("task cancel api --timeout 5s", "--timeout is for --wait"),
        ("task pause api --wait 5s --timeout 5s", "both say how long"),
        ("dead retry --all --timeout 5s", "--timeout is for --wait"),
        ("plan cancel billing --timeout 5s", "--timeout is for --wait"),
        ("worker stop abcdefgh --timeout 5s", "--timeout is for --wait"),
        ("answer api yes --wait 5y", "'5y' is not a duration"),
    ],
)
def test_times_that_are_wrong_change_nothing(refused, owner, words, message):
    refused(*words.split(), code=2, message=message)


NEEDS_CREW = [
    *("task add X", "task retry tests", "task resume other", "dead retry --all", "plan resume billing"),
    *("plan add plan.md", "answer api yes", "claim release api"),
]


@pytest.mark.parametrize("words", NEEDS_CREW)
def test_without_a_crew_nothing_is_done_that_could_not_be_waited_for(cli, owner, words):
    (owner.root / "muster.toml").write_text(CONFIG)
    (owner.root / "plan.md").write_text(PLAN)
    owner.close()
    before = cli("task", "list", "--json").out
    ran = cli(*words.split(), "--wait")
    assert (ran.code, ran.raw) == (7, b""), ran.err
    assert "muster up" in ran.err
    assert cli("task", "list", "--json").out == before
