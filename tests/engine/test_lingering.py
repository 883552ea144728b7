"""A task is not given out again while the processes of an ended attempt may still be at work."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import LEASE_S, W1, W2, Rig, cancel, complete
from test_reaper import TICK_S, Post

from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.marks import attempt_mark, worker_mark
from muster.model.states import FailedDependency
from muster.ports.runtime import READY


def gone(job: ClaimedJob) -> c.ProcessesExited:
    return c.ProcessesExited(task_id=job.task_id, epoch=job.epoch)


def retry(job: ClaimedJob) -> c.Retry:
    return c.Retry(task_id=job.task_id, actor="ada")


def cancel_and_retry(rig: Rig, job: ClaimedJob) -> None:
    rig.do(cancel(job.task_id))
    rig.do(retry(job))


def ask_and_answer(rig: Rig, job: ClaimedJob) -> None:
    rig.do(c.Ask(task_id=job.task_id, epoch=job.epoch, question="which?"))
    rig.do(c.AnswerQuestion(task_id=job.task_id, actor="ada", text="this"))


def ask_and_complete(rig: Rig, job: ClaimedJob) -> None:
    rig.do(c.Ask(task_id=job.task_id, epoch=job.epoch, question="which?"))
    rig.do(c.CompleteByPerson(task_id=job.task_id, actor="ada"))
    rig.do(retry(job))


def ask_and_skip(rig: Rig, job: ClaimedJob) -> None:
    rig.do(c.Ask(task_id=job.task_id, epoch=job.epoch, question="which?"))
    rig.do(c.Skip(task_id=job.task_id, actor="ada"))
    rig.do(retry(job))


@pytest.mark.parametrize("again", [cancel_and_retry, ask_and_answer, ask_and_complete, ask_and_skip])
def test_the_next_attempt_waits_for_the_word_that_the_processes_are_gone(rig: Rig, again: Any) -> None:
    rig.register(W1)
    rig.register(W2)
    rig.enqueue({"a": []})
    (job,) = rig.started(W1)
    again(rig, job)
    assert rig.claim(W2) == ()
    assert rig.views()["a"].why == "waits until the processes of attempt 1 have stopped"
    assert not drive(rig.reads.any_ready()), "a held claim need not look again"
    applied = rig.apply(gone(job))
    assert READY in applied.topics, "a held claim is woken"
    before = len(rig.events())
    rig.do(gone(job))  # its first answer was lost
    assert len(rig.events()) == before
    (second,) = rig.claim(W2)
    assert second.epoch == 2
    assert rig.batch(gone(job)) == ["stale_epoch"]
    rig.start(second)
    rig.do(complete(second))


def test_what_never_began_has_nothing_to_wait_for(rig: Rig) -> None:
    rig.register(W1)
    rig.enqueue({"a": []})
    (job,) = rig.claim(W1)
    cancel_and_retry(rig, job)
    assert [again.epoch for again in rig.claim(W1)] == [2]


def test_children_do_not_wait_for_a_skipped_parents_processes(rig: Rig) -> None:
    rig.register(W1)
    rig.enqueue({"a": [], "b": ["a"]}, specs={"b": {"on_failed": FailedDependency.RUN}})
    (job,) = rig.started(W1)
    rig.do(cancel(job.task_id))
    assert [child.key for child in rig.claim(W1)] == ["b"]


def test_a_heartbeat_alone_does_not_free_it(rig: Rig) -> None:
    """One that was sent before the attempt began may arrive after the cancel."""
    rig.register(W1)
    rig.enqueue({"a": []})
    (job,) = rig.started(W1)
    cancel_and_retry(rig, job)
    rig.beat(W1)
    assert rig.claim(W1) == ()


@pytest.fixture
def post(rig: Rig) -> Post:
    rig.register(W1)
    rig.register(W2)
    rig.enqueue({"a": []})
    return Post(rig)


def test_the_workers_proven_death_frees_it_after_its_tree_is_dead(post: Post) -> None:
    (job,) = post.rig.started(W1)
    cancel_and_retry(post.rig, job)
    assert post.tick() == []
    post.host.dead.add(100)
    done = post.tick()
    assert done.index(("kill", worker_mark(W1))) < done.index("ProcessesExited")
    assert [again.epoch for again in post.rig.claim(W2)] == [2]


def test_its_lease_frees_it_and_never_before(post: Post) -> None:
    (job,) = post.rig.started(W1)
    cancel_and_retry(post.rig, job)
    for _ in range(round(LEASE_S / TICK_S) - 1):
        post.rig.clock.advance(TICK_S)
        post.rig.beat(W1)
        post.rig.beat(W2)
        assert post.tick() == []
    assert post.ticks(TICK_S)[:2] == [("kill", attempt_mark(W1, job.task_id, 1)), "ProcessesExited"]
    assert [again.epoch for again in post.rig.claim(W2)] == [2]


def test_a_worker_that_has_said_goodbye_frees_it(post: Post) -> None:
    (job,) = post.rig.started(W1)
    cancel_and_retry(post.rig, job)
    post.rig.do(c.Deregister(worker_id=W1))
    assert post.tick() == [("kill", attempt_mark(W1, job.task_id, 1)), "ProcessesExited"]
    assert len(post.rig.claim(W2)) == 1


def test_a_deposed_coordinators_word_counts_for_nothing(post: Post) -> None:
    (job,) = post.rig.started(W1)
    cancel_and_retry(post.rig, job)
    post.rig.new_boot()
    command = c.ProcessesExited(task_id=job.task_id, epoch=1, term=post.term)
    assert post.rig.batch(command) == ["term_over"]
    assert post.rig.claim(W2) == ()
