"""Moves of a task that no attempt holds: by people, by the coordinator, by its dependencies."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from muster.model import commands as c
from muster.model.errors import IllegalMove
from muster.model.events import COORDINATOR, Event, Level
from muster.model.moves.decision import NO_WAIT, Decision, Facts, close, decided, left_running, refuse_no_json
from muster.model.moves.publishing import refuse_while_publishing
from muster.model.notices import with_note
from muster.model.pools import CLOSING
from muster.model.states import AttemptStatus, PauseReason, TaskStatus
from muster.model.task import CANCELLED, FIELDS_OF_STATE, REMOVED, Now, Task

_OF_STATE = attrgetter(*FIELDS_OF_STATE)
_ADDED = Task(
    id=0,
    workspace_id=0,
    plan_id=None,
    lane_id=0,
    status=TaskStatus.PENDING,
    generation=1,
    epoch=0,
    event_seq=1,
    unmet=0,
    next_attempt_at_ms=None,
    timeout_factor=1,
    retries=0,
    losses=0,
    percent=0,
    step="",
    error_kind=None,
    error="",
    note="",
    paused_reason=None,
    question="",
    pinned_agent=None,
    pinned_until_ms=None,
    expires_at_ms=None,
    overdue_at_ms=None,
    fresh_after_epoch=0,
    updated_at_ms=0,
    started_at_ms=None,
    ended_at_ms=None,
    **dict(zip(FIELDS_OF_STATE, _OF_STATE(c.Spec(title="-")), strict=True)),
)
"""What all new tasks have alike: naming it for each costs a microsecond more."""


def enqueued(
    spec: c.Spec,
    *,
    task_id: int,
    workspace_id: int,
    plan_id: int,
    lane_id: int,
    unmet: int,
    actor: str,
    now: Now,
    empty: bool = False,
) -> Decision:
    """A task's first event.  A box that is ticked already gives a task that a person has completed.

    `empty`: a group that waits for the first task to be put below it.
    """
    done = spec.done
    task = replace(
        _ADDED,
        id=task_id,
        workspace_id=workspace_id,
        plan_id=plan_id,
        lane_id=lane_id,
        unmet=unmet,
        expires_at_ms=spec.ends_at_ms(now.wall_ms),
        updated_at_ms=now.wall_ms,
        **dict(zip(FIELDS_OF_STATE, _OF_STATE(spec), strict=True)),
    )
    if done:
        task = replace(task, status=TaskStatus.COMPLETED, percent=100, ended_at_ms=now.wall_ms)
    elif (begins_at_ms := spec.begins_at_ms(now.wall_ms)) is not None:
        task = replace(task, next_attempt_at_ms=begins_at_ms)
    message = "added, already ticked in the plan" if done else "added"
    level, now_ms = Level.INFO, now.wall_ms
    event = Event(
        task.id, 1, now_ms, level, "enqueued", message, "{}", None, task.status, 1, task.epoch, actor
    )
    if empty or not task.all_below_done:
        return Decision(task, events=(event,))
    closed = close_group(task, Facts(), c.CloseGroup(task_id=task.id), now)
    return replace(closed, events=(event, *closed.events))


_BETWEEN_TRIES = frozenset({TaskStatus.ABORTED, TaskStatus.PENDING})


def promote(task: Task, facts: Facts, command: c.Promote, now: Now, **changes: Any) -> Decision:
    due_at_ms = task.next_attempt_at_ms
    by_hand = task.status is TaskStatus.PAUSED and task.paused_reason is PauseReason.HAND
    left_alone = by_hand and command.term is not None
    if not (_waits_to_try(task) or left_alone):
        raise IllegalMove(f"task {task.id} is {task.status} and waits for no due time")
    if command.term is not None and (due_at_ms is None or due_at_ms > now.wall_ms):
        raise IllegalMove(f"task {task.id} is not due yet")
    return decided(
        task,
        now,
        "promoted",
        "nobody has taken it over: it is its agent's again" if left_alone else "may be claimed again",
        command.actor,
        status=TaskStatus.PENDING,
        paused_reason=None,
        next_attempt_at_ms=None,
        **changes,
    )


def _waits_to_try(task: Task) -> bool:
    """Between two attempts: for a time, or for the provider that has refused the last one."""
    waits = task.next_attempt_at_ms is not None or task.error_kind in CLOSING
    return task.status in _BETWEEN_TRIES and waits


def cancel(task: Task, facts: Facts, command: c.Cancel, now: Now) -> Decision:
    if task.status is TaskStatus.CANCELLED:
        return Decision(task)
    if task.final:
        raise IllegalMove(f"task {task.id} is {task.status} already and cannot be cancelled")
    refuse_while_publishing(task, facts.attempt)
    said = f"{CANCELLED} by {command.actor}" + (f": {command.reason}" if command.reason else "")
    attempt = facts.attempt
    return decided(
        task,
        now,
        "cancelled",
        said,
        command.actor,
        level=Level.WARN,
        status=TaskStatus.CANCELLED,
        **NO_WAIT,
        error=REMOVED if command.removed else said,
        ended_at_ms=now.wall_ms,
        lingering_epoch=left_running(attempt) or task.lingering_epoch,
        done_epoch=None,
        attempt=close(attempt, AttemptStatus.CANCELLED, now) if attempt and attempt.open else None,
    )


_BEGINS_INSTEAD = {
    TaskStatus.ARCHIVED: "add it anew under another name: muster task add TITLE --key KEY",
    TaskStatus.PAUSED: "muster why {} names what lets it go on",
}


def retry(task: Task, facts: Facts, command: c.Retry, now: Now) -> Decision:
    if _waits_to_try(task):
        if command.fresh:
            raise IllegalMove(
                f"task {task.id} waits for its next try, which goes on from its last checkpoint",
                "cancel it first; then a retry may begin from the start",
            )
        # A note is for an agent: then one is to run, also where work is only to be published.
        anew = {"done_epoch": None, "accepted": None} if command.note else {}
        at_once = c.Promote(task_id=task.id, actor=command.actor)
        return promote(task, facts, at_once, now, **anew, **_noted(task, command))
    if task.status not in {TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.COMPLETED}:
        raise IllegalMove(
            f"task {task.id} is {task.status}: only a failed, cancelled or completed task starts anew",
            _BEGINS_INSTEAD.get(task.status, "cancel it first, or wait until it has ended").format(task.id),
        )
    publishes = task.done_epoch is not None and not (command.fresh or command.note)
    return decided(
        task,
        now,
        "retried",
        f"generation {task.generation + 1} opened by {command.actor}",
        command.actor,
        status=TaskStatus.PENDING,
        generation=task.generation + 1,
        **NO_WAIT,
        timeout_factor=1,
        retries=0,
        losses=0,
        percent=0,
        step="",
        error="",
        expires_at_ms=None,
        fresh_after_epoch=task.epoch if command.fresh else task.fresh_after_epoch,
        done_epoch=task.done_epoch if publishes else None,
        ended_at_ms=None,
        skipped=False,
        rounds=0,
        sent_back=task.sent_back if publishes else "",
        accepted=task.accepted if publishes else None,
        verdicts="",
        **_noted(task, command),
    )


def _noted(task: Task, command: c.Retry) -> dict[str, Any]:
    if not command.note:
        return {}
    note = with_note(task.note, command.note)
    return {"note": note, "details": {"note": command.note}}


def complete_by_person(task: Task, facts: Facts, command: c.CompleteByPerson, now: Now) -> Decision:
    if task.status is TaskStatus.COMPLETED:
        return Decision(task)
    if task.status not in {TaskStatus.PENDING, TaskStatus.PAUSED, TaskStatus.FAILED}:
        raise IllegalMove(
            f"task {task.id} is {task.status}: a person completes what is PENDING, PAUSED or FAILED",
            ""
            if task.status is TaskStatus.ARCHIVED
            else f"muster task retry {task.id}, then muster task complete {task.id}"
            if task.final
            else f"muster task pause {task.id} first",
        )
    done = decided(
        task,
        now,
        "completed",
        f"completed by {command.actor}",
        command.actor,
        status=TaskStatus.COMPLETED,
        **NO_WAIT,
        percent=100,
        error="",
        ended_at_ms=now.wall_ms,
        done_epoch=None,
        unblocks=True,
    )
    if command.result is not None:
        refuse_no_json(command.result)
    return replace(done, result=command.result, summary=command.summary)


def close_group(task: Task, facts: Facts, command: c.CloseGroup, now: Now) -> Decision:
    if not task.all_below_done:
        raise IllegalMove(f"task {task.id} is no group whose tasks are done")
    return decided(
        task,
        now,
        "completed",
        "all its tasks are done",
        COORDINATOR,
        status=TaskStatus.COMPLETED,
        **NO_WAIT,
        percent=100,
        error="",
        ended_at_ms=now.wall_ms,
        unblocks=True,
    )


def unblock(task: Task, facts: Facts, command: c.Unblock, now: Now) -> Decision:
    unmet = task.unmet - command.count
    if unmet < 0:
        raise IllegalMove(f"task {task.id} has {task.unmet} unmet dependencies, not {command.count}")
    if unmet or task.status is not TaskStatus.PENDING:
        return Decision(replace(task, unmet=unmet))
    return decided(task, now, "unblocked", "all its dependencies are done", COORDINATOR, unmet=0)
