"""Finished work on its way: sent back, reviewed, accepted, about to be published."""

from __future__ import annotations

from typing import Any

import pytest
from machine_makers import NOW, fail, make_attempt, make_task, refusal, run, running
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.retry import RetryPolicy
from muster.model.states import AttemptStatus, ErrorKind, PauseReason, StopAction, TaskStatus

PUBLISH = c.Publish(task_id=7, epoch=4, branch="muster/plan/p", old="0" * 40, new="1" * 40)
CANCEL = c.Cancel(task_id=7, actor="ada")


@pytest.mark.promise("S18")
def test_it_goes_back_at_once_and_without_a_retry() -> None:
    task, attempt = running(done_epoch=4, retries=1)
    decision = run(task, attempt, fail(ErrorKind.REWORK))
    after = decision.task
    assert (after.status, after.rounds, after.retries, after.done_epoch) == (TaskStatus.ABORTED, 1, 1, None)
    assert after.sent_back == "it was rework" and after.next_attempt_at_ms == NOW.wall_ms
    assert decision.attempt is not None and decision.attempt.status is AttemptStatus.FAILED
    assert [type(command) for command in decision.follow_ups] == [c.Promote]


@pytest.mark.promise("S18")
def test_after_its_rounds_it_waits_for_a_person_with_its_work() -> None:
    task, attempt = running(done_epoch=3, rounds=2)
    after = run(task, attempt, fail(ErrorKind.REWORK), retry=RetryPolicy(rounds_max=2)).task
    assert (after.status, after.paused_reason, after.done_epoch) == (TaskStatus.PAUSED, PauseReason.REVIEW, 3)


def test_a_pause_that_was_asked_for_holds_also_for_what_goes_back() -> None:
    task = make_task(TaskStatus.RUNNING, done_epoch=4, paused_reason=PauseReason.USER)
    attempt = make_attempt(AttemptStatus.STOPPING, stop_action=StopAction.PAUSE)
    (command,) = run(task, attempt, fail(ErrorKind.REWORK)).follow_ups
    assert isinstance(command, c.Pause) and command.reason is PauseReason.USER


def review(**more: object) -> object:
    return make_task(
        TaskStatus.PAUSED, epoch=4, paused_reason=PauseReason.REVIEW, done_epoch=4, rounds=3, **more
    )


def test_what_a_person_accepts_is_only_published() -> None:
    after = run(review(), None, c.Accept(task_id=7, actor="ada")).task
    assert (after.status, after.accepted, after.done_epoch) == (TaskStatus.PENDING, 4, 4)


@pytest.mark.parametrize(
    ("how", "accepted"), [({}, 4), ({"note": "in blue"}, None), ({"fresh": True}, None)], ids=str
)
def test_accepted_work_that_could_not_be_published_is_not_reviewed_again(how: Any, accepted: object) -> None:
    task = make_task(TaskStatus.FAILED, epoch=9, done_epoch=4, accepted=4, sent_back="mend it")
    after = run(task, None, c.Retry(task_id=7, actor="ada", **how)).task
    assert (after.accepted, after.done_epoch) == (accepted, accepted)
    assert after.sent_back == ("mend it" if accepted else "")


@pytest.mark.promise("S18")
def test_accepted_work_that_is_gone_is_checked_once_it_is_done_anew() -> None:
    """As where another host has it: its worker gives the task back, and an agent begins again."""
    task, attempt = running(done_epoch=3, accepted=3, sent_back="mend it")
    gone = run(task, attempt, c.Release(task_id=7, epoch=4, reason="its work is gone", undone=True)).task
    grant = c.Grant(task_id=7, worker_id="w", agent="claude", request_id="r5", lease_ms=1000)
    anew = run(gone, None, grant).task
    assert (anew.epoch, anew.done_epoch, anew.accepted) == (5, None, None)
    kept = run(replace(gone, done_epoch=3), None, grant).task
    assert (kept.done_epoch, kept.accepted) == (3, 3), "only to be published"


def test_what_a_person_gives_back_has_all_its_rounds_again() -> None:
    after = run(review(), None, c.Resume(task_id=7, actor="ada", note="in blue")).task
    assert (after.status, after.rounds, after.done_epoch, after.note) == (
        TaskStatus.PENDING,
        0,
        None,
        "in blue",
    )


def test_only_reviewed_work_can_be_accepted() -> None:
    accept = c.Accept(task_id=7, actor="ada")
    assert (
        refusal(make_task(TaskStatus.PAUSED, paused_reason=PauseReason.USER), None, accept) == "illegal_move"
    )


@pytest.mark.promise("S11")
def test_nobody_cancels_what_is_being_published() -> None:
    task, attempt = running(done_epoch=4)
    begun = run(task, attempt, PUBLISH)
    assert begun.attempt is not None and begun.attempt.intent.split(" ")[0] == "muster/plan/p"
    assert refusal(begun.task, begun.attempt, CANCEL) == "being_published"
    assert run(begun.task, begun.attempt, PUBLISH).events == (), "said twice"
    given_up = run(begun.task, begun.attempt, c.Published(task_id=7, epoch=4, done=False))
    assert run(given_up.task, given_up.attempt, CANCEL).task.status is TaskStatus.CANCELLED


@pytest.mark.promise("S11")
def test_who_has_looked_at_an_older_intent_ends_no_newer_one() -> None:
    """Of several servers one may look at the branch while another one begins to move it anew."""
    task, attempt = running(done_epoch=4)
    first = run(task, attempt, replace(PUBLISH, turn="2" * 40))
    again = run(first.task, first.attempt, replace(PUBLISH, turn="3" * 40))
    assert first.attempt is not None and again.attempt is not None
    looked = c.Published(task_id=7, epoch=4, done=False, intent=first.attempt.intent)
    assert refusal(again.task, again.attempt, looked) == "being_published"
    told = run(again.task, again.attempt, replace(looked, intent=again.attempt.intent)).attempt
    assert told is not None and told.intent == ""


@pytest.mark.promise("S18")
def test_what_the_branch_has_is_done_whatever_became_of_its_worker() -> None:
    task, _ = running(done_epoch=4)
    begun = run(task, make_attempt(declared="120"), PUBLISH)
    done = run(begun.task, begun.attempt, c.Published(task_id=7, epoch=4, done=True))
    assert (done.task.status, done.result, done.unblocks) == (TaskStatus.COMPLETED, "120", True)


def test_who_has_not_said_that_it_is_done_publishes_nothing() -> None:
    task, attempt = running()
    assert refusal(task, attempt, PUBLISH) == "illegal_move"
