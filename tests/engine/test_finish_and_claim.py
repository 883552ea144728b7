"""A finish that claims what comes next, and a claim that starts: one transaction each."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_rig import TOKEN, W1, Rig, cancel, complete, fail, reap, release
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.answers import ClaimedJob, Moved
from muster.model.errors import StaleEpoch
from muster.model.states import CrewStatus, ErrorKind, TaskStatus
from muster.ports.runtime import orders_for


def finish(rig: Rig, word: c.Finish, **fields: object) -> tuple[Moved, list[str]]:
    """The answer, with the keys of what comes next."""
    moved: Moved = rig.do(replace(word, then=rig.claim_command(W1, 1, **fields)))
    assert moved.next is not None
    return moved, [job.key for job in moved.next.jobs]


@pytest.fixture
def job(rig: Rig) -> ClaimedJob:
    """The first of a, b and c, which runs."""
    rig.register(slots=1)
    rig.enqueue({"a": [], "b": [], "c": []})
    (job,) = rig.started(slots=1)
    return job


def test_a_claim_may_start_what_it_gives(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": []})
    claim = rig.claim_command(start=True)
    first = rig.do(claim)
    assert rig.statuses() == {"a": "RUNNING", "b": "RUNNING"}
    assert rig.names("a") == ["enqueued", "claimed", "started"]
    attempt = rig.attempt(first.jobs[0])
    assert (attempt.status, attempt.started_at_ms) == ("running", rig.clock.present.wall_ms)
    assert rig.do(claim) == first
    rig.do(complete(first.jobs[0]))
    assert rig.statuses() == {"a": "COMPLETED", "b": "RUNNING"}


def test_a_claim_may_start_only_what_was_never_given_out(rig: Rig) -> None:
    """What was may have ended its worker's process: it is to start alone."""
    rig.register()
    rig.enqueue({"a": [], "b": [], "c": []})
    (lost,) = rig.claim(slots=1, start=True)
    rig.do(release(lost))
    claim = rig.claim_command(start_new=True)
    first = rig.do(claim)
    assert {job.key: job.started for job in first.jobs} == {"a": False, "b": True, "c": True}
    assert rig.statuses() == {"a": "ASSIGNED", "b": "RUNNING", "c": "RUNNING"}
    assert rig.do(claim) == first
    again = next(job for job in first.jobs if job.key == "a")
    rig.start(again)
    assert {job.key: job.started for job in rig.do(claim).jobs} == {"a": True, "b": True, "c": True}


@pytest.mark.promise("S2")
def test_after_a_restore_nothing_is_known_to_be_given_out_never(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": []})
    rig.do(c.Restored(actor="ada", incarnation="another", granted=40))
    rig.do(c.SetCrew(status=CrewStatus.RUNNING))
    rig.register()
    assert [(job.epoch > 40, job.started) for job in rig.claim(start_new=True)] == [(True, False)] * 2


def test_what_a_claim_has_started_cannot_be_started_by_another_process(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.claim(start=True)
    assert rig.batch(c.Start(task_id=job.task_id, epoch=job.epoch, token_hash=TOKEN)) == ["illegal_move"]


def test_what_a_claim_has_started_lingers_after_a_cancel(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.claim(start=True)
    rig.do(cancel(job.task_id))
    assert rig.task("a").lingering_epoch == job.epoch


@pytest.mark.parametrize(
    ("word", "status"),
    [
        (complete, TaskStatus.COMPLETED),
        (lambda job: fail(job, ErrorKind.INVALID), TaskStatus.FAILED),
        (fail, TaskStatus.ABORTED),
    ],
)
def test_a_finish_claims_what_comes_next(rig: Rig, job: ClaimedJob, word: object, status: str) -> None:
    moved, following = finish(rig, word(job))  # type: ignore[operator]
    assert (moved.task_id, moved.status, following) == (job.task_id, status, ["b"])
    assert rig.statuses()["b"] == "ASSIGNED"


def test_a_release_may_get_its_own_task_again(rig: Rig, job: ClaimedJob) -> None:
    moved, following = finish(rig, release(job))
    assert (moved.status, moved.epoch, following) == (TaskStatus.PENDING, 1, ["a"])
    assert rig.task("a").epoch == 2


def test_what_waited_for_the_finished_task_can_be_next(rig: Rig) -> None:
    rig.register(slots=1)
    rig.enqueue({"a": [], "b": ["a"]})
    (job,) = rig.claim(start=True)
    _, following = finish(rig, complete(job), start=True)
    assert (following, rig.statuses()) == (["b"], {"a": "COMPLETED", "b": "RUNNING"})


@pytest.mark.promise("S1", "S4")
def test_a_finish_that_is_repeated_gives_the_same_and_writes_nothing(rig: Rig, job: ClaimedJob) -> None:
    word = replace(complete(job), then=rig.claim_command(slots=1))
    first = rig.do(word)
    events = len(rig.events())
    assert rig.do(word) == first
    assert len(rig.events()) == events
    (following,) = first.next.jobs
    rig.start(following)
    rig.do(complete(following))
    late = rig.do(word)
    assert (late.status, late.next.jobs, late.next.over) == (TaskStatus.COMPLETED, (), True)


@pytest.mark.promise("S1", "S6")
def test_a_finish_whose_owner_has_died_before_it_answered_is_repeated(tmp_path: Path) -> None:
    rig = Rig(path=tmp_path / "state.db")
    rig.register(slots=1)
    rig.enqueue({"a": [], "b": [], "c": []})
    (job,) = rig.claim(start=True)
    word = replace(complete(job), then=rig.claim_command(slots=1, start=True))
    lost = rig.do(word)
    rig.reopen()
    assert rig.do(word) == lost
    assert rig.statuses() == {"a": "COMPLETED", "b": "RUNNING", "c": "PENDING"}
    rig.audit()
    rig.store.close()


@pytest.mark.promise("S3")
def test_a_finish_that_is_refused_claims_nothing(rig: Rig, job: ClaimedJob) -> None:
    term = rig.new_boot().term
    rig.do(reap(job, term))
    with pytest.raises(StaleEpoch):
        finish(rig, fail(job))
    assert set(rig.statuses().values()) == {"PENDING"}


def test_the_word_of_a_worker_that_was_given_up_counts_and_it_gets_nothing(rig: Rig, job: ClaimedJob) -> None:
    term = rig.new_boot().term
    rig.do(c.MarkWorkerDead(worker_id=W1, term=term, reason="gone", heard_mono_ms=None, permanent=True))
    moved = rig.do(replace(complete(job), then=rig.claim_command()))
    assert (moved.status, moved.next) == (TaskStatus.COMPLETED, None)


@pytest.mark.parametrize("status", [CrewStatus.PAUSED, CrewStatus.STOPPED])
def test_a_finish_gets_nothing_while_the_crew_takes_no_work(
    rig: Rig, job: ClaimedJob, status: CrewStatus
) -> None:
    rig.do(c.SetCrew(status=status))
    moved, following = finish(rig, complete(job))
    assert (following, moved.next and moved.next.drain) == ([], status is CrewStatus.STOPPED)


def test_two_finishes_in_one_batch_never_share_what_comes_next(rig: Rig) -> None:
    rig.register()
    rig.enqueue({key: [] for key in "abc"})
    first, second = rig.claim(slots=2, start=True)
    words = [replace(complete(job), then=rig.claim_command(slots=1)) for job in (first, second)]
    given = [[job.key for job in moved.next.jobs] for moved in rig.apply(*words).outcomes]  # type: ignore[union-attr]
    assert given == [["c"], []]


def test_only_what_others_do_to_an_attempt_wakes_its_worker(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": []})
    first, second = rig.claim(start=True)
    assert orders_for(W1) not in rig.apply(complete(first)).topics, "its own word is no order"
    assert orders_for(W1) in rig.apply(cancel(second.task_id)).topics
