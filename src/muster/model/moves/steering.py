"""Moves by which people, and limits of time, steer a task: pause, answer, transfer, skip, expire."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from muster.model import commands as c
from muster.model.errors import BadInput, IllegalMove
from muster.model.events import COORDINATOR, Level
from muster.model.moves.decision import NO_WAIT, Decision, Facts, decided, paused_for, taken_over
from muster.model.moves.ending import stop
from muster.model.notices import TOLD, with_note, with_notice
from muster.model.people import THE_FILE
from muster.model.permissions import with_verdict
from muster.model.states import (
    FOR_ITS_FILE,
    HELD,
    MAY_BEGIN,
    STOP_BY_S,
    ErrorKind,
    PauseReason,
    StopAction,
    TaskStatus,
)
from muster.model.task import REMOVED, Attempt, Now, Task
from muster.model.wording import EDITED_BOX, OTHERWISE, counted

_FOR_ITS_FILE = {PauseReason.EDIT: EDITED_BOX, PauseReason.FILE: OTHERWISE}


def pause(task: Task, facts: Facts, command: c.Pause, now: Now) -> Decision:
    """A running attempt saves a checkpoint and stops first.  What is held for its file is the person's then."""
    reason = PauseReason.HAND if command.take else command.reason
    for_file = task.paused_reason in FOR_ITS_FILE and task.paused_reason is not reason
    if task.status is TaskStatus.PAUSED and not for_file:
        return Decision(task)
    if task.status in HELD:
        return _stop_for(task, facts, StopAction.PAUSE, command.actor, now, paused_reason=reason)
    if task.status not in MAY_BEGIN and not for_file:
        raise IllegalMove(f"task {task.id} is {task.status} and cannot be paused")
    return decided(
        task,
        now,
        "paused",
        _FOR_ITS_FILE.get(reason, f"paused by {command.actor} ({reason})"),
        command.actor,
        **paused_for(task, reason, now),
    )


def _stop_for(task: Task, facts: Facts, action: StopAction, actor: str, now: Now, **changes: Any) -> Decision:
    attempt = facts.attempt
    assert attempt is not None, "a held task has an open attempt"
    if attempt.stop_action is action:
        return Decision(task)
    return stop(task, attempt, action, STOP_BY_S, actor, now, **changes)


def resume(task: Task, facts: Facts, command: c.Resume, now: Now) -> Decision:
    """Also takes back a pause whose attempt has not stopped yet: then it goes on after its stop."""
    attempt = facts.attempt
    if task.status in HELD and attempt is not None and attempt.stop_action is StopAction.PAUSE:
        return _changed_stop(task, attempt, command, now)
    if task.status is not TaskStatus.PAUSED:
        raise IllegalMove(f"task {task.id} is {task.status}, not paused")
    if task.paused_reason is PauseReason.QUESTION:
        raise IllegalMove(
            f"task {task.id} waits for an answer: {task.question}", f"muster answer {task.id} TEXT"
        )
    if task.paused_reason in FOR_ITS_FILE and command.actor != THE_FILE:
        raise IllegalMove(
            f"task {task.id} waits: {_FOR_ITS_FILE[task.paused_reason]}",
            "muster plan sync PLAN --accept KEY, or --reject KEY to go on as it is"
            if task.paused_reason is PauseReason.FILE
            else "muster plan sync PLAN takes it in at once",
        )
    # After a review it is its agent's again, with all its rounds.
    changes: dict[str, Any] = (
        {"done_epoch": None, "rounds": 0} if task.paused_reason is PauseReason.REVIEW else {}
    )
    changes |= taken_over(task, now) | _noted(task, command)
    return _resumed(task, "resumed", f"resumed by {command.actor}", command.actor, now, **changes)


def _noted(task: Task, command: c.Resume) -> dict[str, Any]:
    if not command.note:
        return {}
    return {"note": with_note(task.note, command.note), "details": {"note": command.note}}


def _changed_stop(task: Task, attempt: Attempt, command: c.Resume, now: Now) -> Decision:
    going, said = (
        replace(attempt, stop_action=StopAction.RELEASE),
        f"goes on after its stop, by {command.actor}",
    )
    noted = _noted(task, command)
    return decided(task, now, "resumed", said, command.actor, attempt=going, paused_reason=None, **noted)


def _resumed(task: Task, name: str, message: str, actor: str, now: Now, **changes: Any) -> Decision:
    return decided(
        task,
        now,
        name,
        message,
        actor,
        status=TaskStatus.PENDING,
        paused_reason=None,
        question="",
        **changes,
    )


def answer(task: Task, facts: Facts, command: c.AnswerQuestion, now: Now) -> Decision:
    if task.status is not TaskStatus.PAUSED or task.paused_reason is not PauseReason.QUESTION:
        raise IllegalMove(f"task {task.id} has asked nothing; it is {task.status}", "muster inbox")
    if command.allow is None:
        if not command.text or command.always:
            raise BadInput("an answer is a text, or --allow or --deny; nothing was changed")
        note = with_note(task.note, f"You asked: {task.question}\nThe answer: {command.text}")
        return _resumed(task, "answered", f"{command.actor}: {command.text}", command.actor, now, note=note)
    if not task.wish:
        raise IllegalMove(
            f"task {task.id} asks for an answer, not whether it may do something: {task.question}",
            f"muster answer {task.id} TEXT",
        )
    said, then = (
        ("allows", "do exactly that now") if command.allow else ("does not allow", "go on without it")
    )
    more = f": {command.text}" if command.text else ""
    all_tasks = " for all tasks of the plan" if command.always else ""
    return _resumed(
        task,
        "answered",
        f"{command.actor} {said}{all_tasks}: {task.wish}{more}",
        command.actor,
        now,
        note=with_note(task.note, f"You wanted to do this: {task.wish}\nA person {said} it; {then}{more}"),
        verdicts=with_verdict(task.verdicts, task.wish, allow=command.allow),
    )


def tell(task: Task, facts: Facts, command: c.Tell, now: Now) -> Decision:
    """An open attempt is told as with a notice of ours; whoever comes after it finds it in the note."""
    if task.final:
        raise IllegalMove(
            f"task {task.id} is {task.status}: no agent is at it", f"muster task retry {task.id} --note TEXT"
        )
    if task.paused_reason is PauseReason.QUESTION:
        raise IllegalMove(f"task {task.id} has asked: {task.question}", f"muster answer {task.id} TEXT")
    text = "\n".join(line for line in command.text.splitlines() if line.strip())
    note = with_note(task.note, text)
    told, attempt = None, facts.attempt
    if attempt is not None and attempt.open:
        told = replace(attempt, notice=with_notice(attempt.notice, f"{TOLD}{text}"))
    return decided(task, now, "told", text, command.actor, attempt=told, note=note)


def transfer(task: Task, facts: Facts, command: c.Transfer, now: Now) -> Decision:
    """Aims the task at one agent, until `timeout_s` has passed; then any agent may take it again."""
    pinned_agent: dict[str, Any] = {
        "pinned_agent": command.agent,
        "pinned_until_ms": now.wall_ms + int(command.timeout_s * 1000),
        "lane_id": command.lane_id,
    }
    attempt = facts.attempt
    if task.status in HELD and attempt is not None and attempt.stop_action is None:
        return stop(task, attempt, StopAction.TRANSFER, STOP_BY_S, command.actor, now, **pinned_agent)
    if task.status in HELD and attempt is not None and attempt.stop_action is StopAction.TRANSFER:
        if task.pinned_agent == command.agent:
            return Decision(task)
    elif task.status not in HELD and task.status not in MAY_BEGIN and task.status is not TaskStatus.PAUSED:
        raise IllegalMove(f"task {task.id} is {task.status} and cannot be transferred")
    return decided(task, now, "transferred", f"aimed at agent {command.agent}", command.actor, **pinned_agent)


def drop_pin(task: Task, facts: Facts, command: c.DropPin, now: Now) -> Decision:
    if task.pinned_until_ms is None or task.pinned_until_ms > now.wall_ms:
        raise IllegalMove(f"the pin of task {task.id} still holds")
    if task.status in HELD or task.final:
        return Decision(replace(task, pinned_agent=None, pinned_until_ms=None, lane_id=command.lane_id))
    return decided(
        task,
        now,
        "aim_dropped",
        f"agent {task.pinned_agent} did not take it in time; any agent may",
        COORDINATOR,
        level=Level.WARN,
        pinned_agent=None,
        pinned_until_ms=None,
        lane_id=command.lane_id,
    )


def expire(task: Task, facts: Facts, command: c.Expire, now: Now) -> Decision:
    if task.expires_at_ms is None or task.expires_at_ms > now.wall_ms or task.status not in MAY_BEGIN:
        raise IllegalMove(f"task {task.id} has not expired")
    return decided(
        task,
        now,
        "expired",
        "its time was over before an attempt could begin",
        COORDINATOR,
        level=Level.ERROR,
        status=TaskStatus.FAILED,
        next_attempt_at_ms=None,
        error_kind=ErrorKind.EXPIRED,
        error="expired",
        ended_at_ms=now.wall_ms,
    )


def skip(task: Task, facts: Facts, command: c.Skip, now: Now) -> Decision:
    if task.skipped and task.status is TaskStatus.CANCELLED:
        return Decision(task)
    if task.status not in {TaskStatus.PENDING, TaskStatus.ABORTED, TaskStatus.PAUSED, TaskStatus.FAILED}:
        raise IllegalMove(f"task {task.id} is {task.status} and cannot be skipped")
    said = f"skipped by {command.actor}" + (f": {command.reason}" if command.reason else "")
    return decided(
        task,
        now,
        "skipped",
        said,
        command.actor,
        level=Level.WARN,
        status=TaskStatus.CANCELLED,
        **NO_WAIT,
        error=said,
        ended_at_ms=now.wall_ms,
        done_epoch=None,
        skipped=True,
        unblocks=True,
    )


def depend(task: Task, facts: Facts, command: c.Depend, now: Now) -> Decision:
    if task.status not in MAY_BEGIN and task.status is not TaskStatus.PAUSED:
        raise IllegalMove(
            f"task {task.id} is {task.status}: only a task that has not begun, or waits, gets dependencies",
            "pause it first, if an agent holds it",
        )
    if not command.depends_on:
        return Decision(task)
    count = len(command.depends_on)
    return decided(
        task,
        now,
        "depends",
        f"waits for {counted(count, 'more task')}, by {command.actor}",
        command.actor,
        details={"on": command.depends_on},
        unmet=task.unmet + command.unmet,
    )


def archive(task: Task, facts: Facts, command: c.Archive, now: Now) -> Decision:
    if task.status is TaskStatus.ARCHIVED:
        return Decision(task)
    if not task.final:
        raise IllegalMove(f"task {task.id} is {task.status}: only what has ended is archived")
    said, error = f"archived by {command.actor}", task.error
    if command.removed and error:
        error = f"{REMOVED}: {error}"
    return decided(task, now, "archived", said, command.actor, status=TaskStatus.ARCHIVED, error=error)
