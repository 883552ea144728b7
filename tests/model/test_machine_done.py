"""S18: what an attempt says is done is done once it is published, by this attempt or a later one."""

from __future__ import annotations

import pytest
from machine_makers import (
    NOW,
    TOKEN,
    commands,
    fail,
    make_attempt,
    make_task,
    reap,
    refusal,
    run,
    running,
)
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.moves.decision import Decision
from muster.model.moves.ending import PUBLISH_TRIES
from muster.model.retry import RetryPolicy
from muster.model.states import AttemptStatus, ErrorKind, TaskStatus
from muster.model.task import BY_HAND, Attempt, Task

K = ErrorKind


def declared(kind: ErrorKind | None, text: str) -> c.Declare:
    return c.Declare(task_id=7, epoch=4, kind=kind, text=text)


def said(kind: ErrorKind | None, text: str) -> tuple[Task, Attempt]:
    decision = run(*running(), declared(kind, text))
    assert decision.attempt is not None
    return decision.task, decision.attempt


@pytest.mark.parametrize(
    "command", [reap(), commands()["release"], fail(K.LOST), fail(K.CRASH, done=True)], ids=str
)
def test_what_is_said_to_be_done_is_published_by_the_next_attempt(command: c.Command) -> None:
    """When its worker died, when it was stopped first, and when it could not be published."""
    decision = run(*said(None, "42"), command)
    after = decision.task
    assert (after.done_epoch, decision.result, decision.unblocks) == (4, None, False)
    assert after.status in {TaskStatus.PENDING, TaskStatus.ABORTED}
    ready = replace(after, status=TaskStatus.PENDING, next_attempt_at_ms=None)
    granted = run(ready, decision.attempt, commands()["grant"])
    assert granted.events[0].message.endswith("to publish the work of attempt 4")
    lost = run(granted.task, granted.attempt, reap(epoch=5))
    again = run(lost.task, lost.attempt, commands()["grant"])
    begun = run(again.task, again.attempt, c.Start(task_id=7, epoch=6, token_hash=TOKEN))
    ended = run(begun.task, begun.attempt, c.Complete(task_id=7, epoch=6))
    assert (ended.task.status, ended.result, ended.unblocks) == (TaskStatus.COMPLETED, "42", True)
    assert ended.task.done_epoch is None


def test_what_could_not_be_kept_is_not_done_and_costs_nothing() -> None:
    """Its host had no room: who comes next is not to publish what is nowhere."""
    before, attempt = said(None, "42")
    command = c.Release(task_id=7, epoch=4, reason="the disk of h is full", undone=True)
    after = run(before, attempt, command).task
    assert (after.status, after.done_epoch, after.retries) == (TaskStatus.PENDING, None, before.retries)


@pytest.mark.promise("S18")
@pytest.mark.parametrize("failure", [reap(), fail(K.CRASH, done=True)], ids=str)
def test_publishing_has_tries_of_its_own(failure: c.Command) -> None:
    """However few losses and retries are allowed, and whatever was lost before the work was done."""
    strict = RetryPolicy(losses_max=1)
    task, attempt = running(losses=7, max_retries=0)
    declaration = run(task, attempt, declared(None, "42"))
    task, attempt = declaration.task, declaration.attempt
    for tries in range(1, PUBLISH_TRIES + 1):
        decision = run(task, attempt, failure, retry=strict)
        assert (decision.task.losses, decision.task.done_epoch) == (tries, 4)
        assert decision.task.status is (TaskStatus.FAILED if tries == PUBLISH_TRIES else TaskStatus.ABORTED)
        task = replace(decision.task, status=TaskStatus.RUNNING)
    assert decision.task.retries == 0


@pytest.mark.parametrize("name", ["crash", "quota", "invalid", "ask", "cancel", "declared failure"])
def test_an_agent_runs_again_where_it_did_not_end_well_after_all(name: str) -> None:
    command = (commands() | {"declared failure": declared(K.CRASH, "no, it is not")})[name]
    assert run(*said(None, "42"), command).task.done_epoch is None


def test_a_failed_publication_is_tried_again_by_a_retry_unless_an_agent_is_wanted() -> None:
    task = make_task(TaskStatus.FAILED, epoch=4, done_epoch=4)
    retry = c.Retry(task_id=7, actor="ada")
    assert run(task, None, retry).task.done_epoch == 4
    assert run(task, None, replace(retry, fresh=True)).task.done_epoch is None
    assert run(task, None, replace(retry, note="do it in blue")).task.done_epoch is None


def test_who_takes_it_by_hand_does_it_anew() -> None:
    task, lost = make_task(epoch=4, done_epoch=4), make_attempt(AttemptStatus.LOST, declared="1")
    granted = run(task, lost, replace(commands()["grant"], agent=BY_HAND))
    assert granted.attempt is not None
    assert (granted.task.done_epoch, granted.attempt.declared) == (None, None)


def test_what_is_done_does_not_expire() -> None:
    task, attempt = running(expires_at_ms=NOW.wall_ms)
    assert run(task, attempt, declared(None, "1")).task.expires_at_ms is None


def test_a_workers_word_that_its_agent_is_done_comes_after_the_agents_own() -> None:
    done = c.Declare(task_id=7, epoch=4, text="1", by_worker=True)
    assert run(*running(), done).task.done_epoch == 4
    first = said(None, "42")
    assert run(*first, done) == Decision(first[0])
    assert refusal(*said(K.CRASH, "no"), done) == "illegal_move"
