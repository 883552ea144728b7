"""S18: what an agent says is done is given out once more to be published; only then are its children ready."""

from __future__ import annotations

import pytest
from engine_rig import W1, W2, Rig, complete, reap

from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.answers import ClaimedJob

SAID = '{"rows": 120}'


@pytest.fixture
def said(rig: Rig) -> ClaimedJob:
    """Its agent has said that it is done; `after` waits for it, and so do tasks that nobody has begun."""
    rig.register(W1)
    rig.register(W2, agents=("codex",), general=("codex",))
    rig.enqueue({"a": [], "after": ["a"], "fresh": []}, specs={"fresh": {"priority": 9}})
    rig.do(c.Pause(task_id=rig.id("fresh"), actor="ada"))
    (job,) = rig.started(W1, 1)
    rig.do(c.Resume(task_id=rig.id("fresh"), actor="ada"))
    rig.do(c.Declare(task_id=job.task_id, epoch=job.epoch, text=SAID))
    return job


def lose(rig: Rig, job: ClaimedJob, how: str) -> None:
    if how == "reaped":
        rig.do(reap(job, rig.new_boot().term))
    elif how == "left":
        rig.do(c.Deregister(worker_id=W1))
    else:
        rig.do(c.Release(task_id=job.task_id, epoch=job.epoch, reason="stopped"))


@pytest.mark.promise("S18")
@pytest.mark.parametrize("how", ["reaped", "left", "stopped"])
def test_the_next_worker_publishes_it_before_anything_fresh(rig: Rig, said: ClaimedJob, how: str) -> None:
    lose(rig, said, how)
    assert rig.statuses()["a"] == "PENDING" and not rig.task("after").ready
    assert "attempt 1 is done, its work is to be published" in rig.views()["a"].why
    claim = rig.claim_command(W2, 1)
    (job,) = rig.do(claim).jobs
    assert (job.key, job.epoch, job.publishes) == ("a", 2, 1)
    assert job.agent == "claude", "whose work it is, whoever has the slot"
    assert rig.do(claim).jobs == (job,), "repeated"
    rig.start(job)
    assert "publishes its work" in rig.views()["a"].why
    assert not rig.task("after").ready
    rig.do(c.Complete(task_id=job.task_id, epoch=2))
    assert rig.statuses()["a"] == "COMPLETED" and rig.task("after").ready
    assert drive(rig.reads.texts(job.task_id)).result == SAID
    assert rig.names("a").count("completed") == 1
    rig.audit()


def test_a_pause_keeps_it_until_it_is_resumed(rig: Rig, said: ClaimedJob) -> None:
    rig.do(c.Pause(task_id=said.task_id, actor="ada"))
    lose(rig, said, "stopped")
    assert rig.statuses()["a"] == "PAUSED"
    rig.do(c.Resume(task_id=said.task_id, actor="ada"))
    assert rig.claim(W2, 1)[0].publishes == 1


def test_its_own_worker_completes_it_without_another_attempt(rig: Rig, said: ClaimedJob) -> None:
    assert rig.claim(W2, 1)[0].key == "fresh"
    rig.do(complete(said))
    assert rig.statuses()["a"] == "COMPLETED" and rig.task("a").done_epoch is None


def test_whoever_comes_back_publishes_its_own_work(rig: Rig) -> None:
    rig.register(W1, hostname="elsewhere")
    rig.enqueue({"a": []})
    (job,) = rig.started(W1, 1)
    rig.do(c.Declare(task_id=job.task_id, epoch=1, text=SAID))
    silent = c.Reap(
        task_id=job.task_id, epoch=1, term=rig.new_boot().term, reason="s", proven=True, tree_killed=False
    )
    rig.do(silent)
    assert rig.beat(W1, job).attempts[0].current
    rig.do(c.Complete(task_id=job.task_id, epoch=1))
    assert rig.statuses()["a"] == "COMPLETED" and rig.names("a").count("claimed") == 1


def test_one_who_takes_it_by_hand_and_gives_it_back_has_an_agent_do_it_again(
    rig: Rig, said: ClaimedJob
) -> None:
    lose(rig, said, "reaped")
    rig.do(c.Take(task_id=said.task_id, actor="ada", token_hash="a" * 64))
    rig.do(c.GiveBack(task_id=said.task_id, epoch=2, actor="ada"))
    jobs = {job.key: job for job in rig.claim(W1)}
    assert jobs["a"].publishes is None
