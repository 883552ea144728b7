"""Moves of an attempt at work: granted, started, heard, reporting, overdue.

One that takes longer than it, or its task, said gets a notice first, then a stop that costs nothing:
`Task.overdue_at_ms` is when the coordinator looks at it next, `Attempt.notice` tells which of the two is due.
"""

from __future__ import annotations

from msgspec.structs import replace

from muster.model import commands as c
from muster.model.errors import BadInput, IllegalMove, StaleEpoch
from muster.model.events import COORDINATOR, Event, Level
from muster.model.moves.decision import (
    Decision,
    Facts,
    current,
    decided,
    moved,
    moved_by,
    refuse_no_json,
    taken_over,
)
from muster.model.notices import beginning, paragraphs, with_notice, without
from muster.model.states import STOP_BY_S, AttemptStatus, StopAction, TaskStatus
from muster.model.task import BY_HAND, Artifact, Attempt, Checkpoint, Now, Task
from muster.model.usage import usage_json


def grant(task: Task, facts: Facts, command: c.Grant, now: Now) -> Decision:
    granted = _granted(task, facts, command, now)
    if not command.start or granted.attempt is None:
        return granted
    return _begun(granted.task, granted.attempt, now, granted.events)


def _granted(task: Task, facts: Facts, command: c.Grant, now: Now) -> Decision:
    by_hand = command.agent == BY_HAND
    if not (task.ready or (by_hand and task.for_its_person)):
        raise IllegalMove(f"task {task.id} is {task.status} and cannot be claimed")
    epoch = max(task.epoch, command.base) + 1
    done_epoch = None if by_hand else task.done_epoch
    if by_hand:
        said = f"attempt {epoch} taken by hand, by {command.worker_id}"
    elif done_epoch is not None:
        said = f"attempt {epoch} given to {command.worker_id} to publish the work of attempt {done_epoch}"
    else:
        said = f"attempt {epoch} given to {command.worker_id} with agent {command.agent}"
    changes = {
        "status": TaskStatus.ASSIGNED,
        "paused_reason": None,
        "epoch": epoch,
        "percent": 0,
        "step": "",
        "overdue_at_ms": None,
        "done_epoch": done_epoch,
        # What is done anew nobody has seen: it is checked and reviewed like any work.
        "accepted": None if done_epoch is None else task.accepted,
        **taken_over(task, now),
    }
    details = {"agent": command.agent, "worker": command.worker_id}
    after, event = moved_by(task, now, "claimed", said, command.worker_id, changes, details=details)
    attempt = Attempt(
        task_id=task.id,
        epoch=epoch,
        generation=task.generation,
        status=AttemptStatus.ASSIGNED,
        worker_id=command.worker_id,
        agent=command.agent,
        request_id=command.request_id,
        boot_id=now.boot_id,
        lease_ms=command.lease_ms,
        lease_until_ms=now.mono_ms + command.lease_ms,
        assigned_at_ms=now.wall_ms,
        declared=facts.attempt.declared if done_epoch is not None and facts.attempt else None,
        holder=command.holder,
    )
    return Decision(after, attempt, (event,))


def start(task: Task, facts: Facts, command: c.Start, now: Now) -> Decision:
    attempt = current(task, facts, command)
    if task.status is TaskStatus.RUNNING and attempt.token_hash == command.token_hash:
        # Its worker counts on the lease from the word that was answered, which may be this one.
        return Decision(task, replace(attempt, lease_until_ms=now.mono_ms + attempt.lease_ms))
    if task.status is not TaskStatus.ASSIGNED:
        raise IllegalMove(f"attempt {command.epoch} of task {task.id} has started already")
    told = replace(
        attempt,
        token_hash=command.token_hash,
        session_key=command.session_key,
        usage=usage_json(command.usage),
        session_usage=usage_json(command.session_usage),
    )
    return _begun(task, told, now)


def _begun(task: Task, attempt: Attempt, now: Now, earlier: tuple[Event, ...] = ()) -> Decision:
    said = (
        f"attempt {task.epoch} is at work, by hand"
        if attempt.by_hand
        else f"attempt {task.epoch} publishes on {attempt.worker_id}"
        if task.done_epoch is not None
        else f"attempt {task.epoch} runs on {attempt.worker_id} with agent {attempt.agent}"
    )
    changes = {
        "status": TaskStatus.RUNNING,
        "started_at_ms": now.wall_ms,
        "overdue_at_ms": None if task.done_epoch is not None else expected_by(task, now),
    }
    after, event = moved_by(task, now, "started", said, attempt.worker_id, changes)
    stopping = attempt.status is AttemptStatus.STOPPING
    begun = replace(
        attempt,
        status=AttemptStatus.STOPPING if stopping else AttemptStatus.RUNNING,
        started_at_ms=now.wall_ms,
        lease_until_ms=now.mono_ms + attempt.lease_ms,
    )
    return Decision(after, begun, (*earlier, event))


def renew(task: Task, facts: Facts, command: c.Renew, now: Now) -> Decision:
    attempt = current(task, facts, command)
    lease_until_ms = now.mono_ms + attempt.lease_ms
    stop_by_ms = attempt.stop_by_ms
    if command.fresh and stop_by_ms is not None:
        stop_by_ms = max(stop_by_ms, lease_until_ms)
    return Decision(
        task,
        replace(attempt, lease_until_ms=lease_until_ms, stop_by_ms=stop_by_ms, boot_id=now.boot_id),
    )


def _running(task: Task, facts: Facts, command: c.AttemptCommand) -> Attempt:
    attempt = current(task, facts, command)
    if task.status is not TaskStatus.RUNNING:
        raise IllegalMove(f"attempt {command.epoch} of task {task.id} has not started")
    return attempt


def progress(task: Task, facts: Facts, command: c.Progress, now: Now) -> Decision:
    attempt = _running(task, facts, command)
    percent = task.percent if command.percent is None else command.percent
    step = task.step if command.step is None else command.step
    advanced = (percent, step) != (task.percent, task.step)
    watched, heard = reported(task, attempt, command.estimated_completion_at_ms, now, advanced=advanced)
    changed = None if heard is attempt else heard
    if not advanced:
        return Decision(task if watched == task else watched, changed)
    after, event = moved(
        task,
        now,
        "progress",
        f"{percent} % {step}".strip() if percent or not step else step,
        attempt.worker_id,
        level=Level.DEBUG,
        details={"percent": percent, "step": step},
        percent=percent,
        step=step,
        overdue_at_ms=watched.overdue_at_ms,
    )
    return Decision(after, changed, (event,))


def save_checkpoint(task: Task, facts: Facts, command: c.SaveCheckpoint, now: Now) -> Decision:
    attempt = _running(task, facts, command)
    size = len(command.data)
    if size > c.CHECKPOINT_BYTES_MAX:
        raise BadInput(
            f"the checkpoint has {size} bytes, more than {c.CHECKPOINT_BYTES_MAX}; the last one is kept",
            "write large state to a file and save its path",
        )
    if _taken_before(attempt, command):
        return Decision(task)
    number = attempt.checkpoints + 1
    after, event = moved(
        task,
        now,
        "checkpoint",
        f"checkpoint {number} of attempt {task.epoch} saved, {size} bytes",
        attempt.worker_id,
        details={"number": number, "bytes": size},
    )
    saved = Checkpoint(task.id, task.epoch, number, now.wall_ms, command.data)
    taken = f"{command.taken_on} {command.taken_us}" if command.taken_on else ""
    kept = replace(attempt, checkpoints=number, checkpoint_taken=taken)
    return Decision(after, kept, (event,), checkpoint=saved)


def _taken_before(attempt: Attempt, command: c.SaveCheckpoint) -> bool:
    """True for one that was sent again, or held up on its way, and that is not newer than the last one."""
    clock, _, last_us = attempt.checkpoint_taken.rpartition(" ")
    return bool(clock) and clock == command.taken_on and command.taken_us <= int(last_us)


def add_artifact(task: Task, facts: Facts, command: c.AddArtifact, now: Now) -> Decision:
    attempt = _running(task, facts, command)
    after, event = moved(
        task,
        now,
        "artifact",
        f"artifact {command.name}",
        attempt.worker_id,
        details={"name": command.name, "location": command.location},
    )
    made = Artifact(task.id, task.epoch, command.name, command.location, now.wall_ms)
    return Decision(after, events=(event,), artifact=made)


def suspect(task: Task, facts: Facts, command: c.Suspect, now: Now) -> Decision:
    attempt = _running(task, facts, command)
    name, message = "recovered", f"attempt {task.epoch} shows progress again"
    if command.evidence:
        name, message = "suspected", f"attempt {task.epoch} seems to hang: {command.evidence}"
    return decided(task, now, name, message, attempt.worker_id, level=Level.WARN)


def live_diff(task: Task, facts: Facts, command: c.LiveDiff, now: Now) -> Decision:
    attempt = _running(task, facts, command)
    return Decision(task, replace(attempt, live_diff=command.files))


def declare(task: Task, facts: Facts, command: c.Declare, now: Now) -> Decision:
    attempt = _running(task, facts, command)
    if len(command.text) > c.RESULT_BYTES_MAX:
        raise BadInput(
            f"the result has more than {c.RESULT_BYTES_MAX} characters; nothing was kept",
            "write a large result to a file and report its path",
        )
    if command.kind is None:
        refuse_no_json(command.text)
    if command.by_worker and attempt.declared_kind is not None:
        raise IllegalMove(f"the agent of task {task.id} has reported that it failed: nothing is published")
    same = (attempt.declared, attempt.declared_kind) == (command.text, command.kind)
    if same or (command.by_worker and attempt.declared is not None):
        return Decision(task)
    word = f"failed ({command.kind}): {command.text}" if command.kind else "done"
    after, event = moved(
        task,
        now,
        "declared",
        "the agent has ended well; its work is published next"
        if command.by_worker
        else f"the agent says: {word}",
        attempt.worker_id,
        details={"kind": command.kind},
        done_epoch=None if command.kind else task.epoch,
        # What is done cannot come too late any more, and what its agents have lost says nothing of publishing it.
        expires_at_ms=task.expires_at_ms if command.kind else None,
        losses=task.losses if command.kind else 0,
    )
    return Decision(after, _declared_as(attempt, command), (event,))


def _declared_as(attempt: Attempt, command: c.Declare) -> Attempt:
    return replace(
        attempt, declared=command.text, declared_kind=command.kind, summary=command.summary or attempt.summary
    )


def account(task: Task, facts: Facts, command: c.Account, now: Now) -> Decision:
    """Kept also after the attempt has ended: what a lost attempt has cost was paid all the same (S3)."""
    attempt = facts.attempt
    if attempt is None or attempt.epoch != command.epoch:
        raise StaleEpoch(f"attempt {command.epoch} of task {task.id} is over and another one was granted")
    told = {
        "session_key": command.session_key,
        "usage": usage_json(command.usage),
        "session_usage": usage_json(command.session_usage),
    }
    changes = {name: value for name, value in told.items() if value not in (None, getattr(attempt, name))}
    return Decision(task, replace(attempt, **changes) if changes else None)


def notify(task: Task, facts: Facts, command: c.Notify, now: Now) -> Decision:
    """Once for each text: it stands beside what else the agent is told."""
    attempt = current(task, facts, command)
    notice, old = attempt.notice, beginning(attempt.notice, command.instead) if command.instead else []
    if command.text in paragraphs(notice) or (command.instead and not old):
        return Decision(task)
    for part in old:
        notice = without(notice, part)
    told = replace(attempt, notice=with_notice(notice, command.text))
    return decided(task, now, "noticed", command.text, COORDINATOR, level=Level.WARN, attempt=told)


def append_log(task: Task, facts: Facts, command: c.AppendLog, now: Now) -> Decision:
    """Kept also after the attempt has ended: the last words of a lost attempt say why."""
    attempt = facts.attempt
    if attempt is None or attempt.epoch != command.epoch:
        raise StaleEpoch(f"attempt {command.epoch} of task {task.id} is over and its log is closed")
    if len(command.data) > c.LOG_CHUNK_BYTES_MAX:
        raise BadInput(f"a log chunk has at most {c.LOG_CHUNK_BYTES_MAX} bytes, this one {len(command.data)}")
    if attempt.log_bytes >= c.LOG_BYTES_MAX or not command.data:
        return Decision(task)
    return Decision(task, replace(attempt, log_bytes=attempt.log_bytes + len(command.data)), log=command)


NOTICE_AFTER_MS = 30 * 60_000
"""From the estimated completion to the notice."""
STOP_AFTER_MS = 10 * 60_000
"""From the notice, or the last progress after it, to the stop."""
_NOTICE = (
    f"This task should have been done {NOTICE_AFTER_MS // 60_000} min ago by its estimate. Report progress or a "
    f"new estimate within {STOP_AFTER_MS // 60_000} min, or it is stopped and given out again."
)
PRIORITY_MAX = 10


def overdue(task: Task, facts: Facts, command: c.Overdue, now: Now) -> Decision:
    attempt = facts.attempt
    due_ms = task.overdue_at_ms
    running = task.status is TaskStatus.RUNNING and attempt is not None
    if not running or attempt is None or due_ms is None or due_ms > now.wall_ms:
        raise IllegalMove(f"task {task.id} is not overdue")
    if attempt.status is not AttemptStatus.RUNNING:  # it is being stopped already
        return Decision(replace(task, overdue_at_ms=None))
    if attempt.noticed_mono_ms is None:
        return _notice(task, attempt, now)
    # On the clock that stands still in suspend: a night with the lid closed is no silence of ten minutes.
    left_ms = attempt.noticed_mono_ms + STOP_AFTER_MS - now.mono_ms
    if left_ms > 0:
        return Decision(replace(task, overdue_at_ms=now.wall_ms + left_ms))
    return _stop(task, attempt, now)


def expected_by(task: Task, now: Now) -> int | None:
    """When an attempt that starts now is looked at, unless its agent gives an estimate of its own."""
    return None if task.estimated_s is None else now.wall_ms + task.estimated_s * 1000 + NOTICE_AFTER_MS


def _notice(task: Task, attempt: Attempt, now: Now) -> Decision:
    after, event = moved(
        task,
        now,
        "overdue",
        f"attempt {task.epoch} is {NOTICE_AFTER_MS // 60_000} min past its estimate; it was told",
        COORDINATOR,
        level=Level.WARN,
        overdue_at_ms=now.wall_ms + STOP_AFTER_MS,
    )
    told = replace(attempt, notice=with_notice(attempt.notice, _NOTICE), noticed_mono_ms=now.mono_ms)
    return Decision(after, told, (event,))


def _stop(task: Task, attempt: Attempt, now: Now) -> Decision:
    priority = min(PRIORITY_MAX, task.priority + 1)
    after, event = moved(
        task,
        now,
        "stop_requested",
        f"attempt {task.epoch} is to stop: overdue, and without progress since it was told; "
        f"the task goes back with priority {priority}",
        COORDINATOR,
        level=Level.WARN,
        details={"action": StopAction.RELEASE, "reason": "overdue", "priority": priority},
        priority=priority,
        overdue_at_ms=None,
    )
    stopping = replace(
        attempt,
        status=AttemptStatus.STOPPING,
        stop_action=StopAction.RELEASE,
        stop_by_ms=now.mono_ms + int(STOP_BY_S * 1000),
    )
    return Decision(after, stopping, (event,))


def reported(
    task: Task, attempt: Attempt, estimate_ms: int | None, now: Now, *, advanced: bool
) -> tuple[Task, Attempt]:
    """What a progress report does to the watch over the estimate.

    A new estimate takes the notice back.  One that is past its own notice says nothing new; an agent that
    repeats it has told us no time at all.
    """
    noticed = attempt.noticed_mono_ms is not None
    due_ms = estimate_ms + NOTICE_AFTER_MS if estimate_ms is not None else None
    if due_ms is not None and (due_ms > now.wall_ms or not noticed):
        if noticed:
            attempt = replace(attempt, notice=without(attempt.notice, _NOTICE), noticed_mono_ms=None)
        return replace(task, overdue_at_ms=due_ms), attempt
    if noticed and advanced:
        attempt = replace(attempt, noticed_mono_ms=now.mono_ms)
        task = replace(task, overdue_at_ms=now.wall_ms + STOP_AFTER_MS)
    return task, attempt
