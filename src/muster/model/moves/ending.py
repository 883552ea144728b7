"""Moves that end an attempt, by its holder's word or without it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from muster.model import commands as c
from muster.model.errors import IllegalMove, StaleEpoch
from muster.model.events import COORDINATOR, Level
from muster.model.moves.decision import (
    Decision,
    Facts,
    close,
    close_failed,
    current,
    decided,
    ended_as,
    lapsed,
    left_running,
    moved,
    paused_for,
    refuse_no_json,
    refuse_rewound,
)
from muster.model.moves.publishing import completed, sent_back
from muster.model.retry import SPENDS, TIMEOUT_FACTOR_MAX, Spend, backoff_ms, for_task
from muster.model.states import AttemptStatus, ErrorKind, PauseReason, StopAction, TaskStatus
from muster.model.task import Attempt, Now, Task

LATEST_STOP_S = 3600.0
PUBLISH_TRIES = 5
"""Done work is published so often at least, however few losses a task may have: no agent runs for it."""


def complete(task: Task, facts: Facts, command: c.Complete, now: Now) -> Decision:
    if ended_as(facts, command, AttemptStatus.COMPLETED) or _failed_by_own_word(facts, command):
        return Decision(task)
    attempt = current(task, facts, command)
    if attempt.declared_kind is not None:
        failed = c.Fail(
            task_id=task.id,
            epoch=command.epoch,
            kind=attempt.declared_kind,
            message=attempt.declared or "",
            exit_code=command.exit_code,
        )
        return _failed(task, attempt, failed, facts, now)
    result = attempt.declared if command.spoken and attempt.declared is not None else command.result
    if result is None:
        result = attempt.declared
    if result == "null":
        result = None
    if result is not None:
        refuse_no_json(result)
    return completed(task, attempt, result, now, exit_code=command.exit_code, told=command)


def _failed_by_own_word(facts: Facts, command: c.Finish) -> bool:
    """True where its first end has ended the attempt as the failure that its agent had declared."""
    attempt = facts.attempt
    return (
        attempt is not None
        and attempt.declared_kind is not None
        and ended_as(facts, command, AttemptStatus.FAILED, AttemptStatus.RELEASED, AttemptStatus.LOST)
    )


def fail(task: Task, facts: Facts, command: c.Fail, now: Now) -> Decision:
    known = ended_as(facts, command, AttemptStatus.FAILED, AttemptStatus.RELEASED)
    if known or _failed_by_own_word(facts, command) or _lost_by_own_word(facts, command):
        return Decision(task)
    # By its holder's own word: a heartbeat that was on its way must not bring it back.
    attempt = replace(current(task, facts, command), tree_killed=True)
    if attempt.declared_kind is not None:  # what its agent has said holds, whatever its exit code
        command = replace(command, kind=attempt.declared_kind, message=attempt.declared or "")
    elif attempt.declared is not None and command.exit_code and command.kind is not ErrorKind.LOST:
        how = "with" if command.message.startswith("exit code ") else "badly:"
        command = replace(command, message=f"it had reported done, then ended {how} {command.message}")
    return _failed(task, attempt, command, facts, now)


def _lost_by_own_word(facts: Facts, command: c.Fail) -> bool:
    """True where a first `fail` said the same; an attempt that was reaped has the reaper's words."""
    attempt = facts.attempt
    said = attempt is not None and attempt.error == command.message and command.kind is ErrorKind.LOST
    return said and ended_as(facts, command, AttemptStatus.LOST)


def _failed(task: Task, attempt: Attempt, command: c.Fail, facts: Facts, now: Now) -> Decision:
    spend = SPENDS[command.kind]
    if spend is Spend.NOTHING:
        return _wait_for_provider(task, attempt, command, now)
    if spend in (Spend.ROUND, Spend.PERSON):
        return sent_back(task, attempt, command, facts, now)
    changes, wait_ms = _spent(task, attempt, command, facts, now)
    if spend is not Spend.LOSS and not command.done:
        changes["done_epoch"] = None
    if command.kind is ErrorKind.TIMEOUT:
        changes["timeout_factor"] = min(task.timeout_factor * 2, TIMEOUT_FACTOR_MAX)
    if wait_ms is None:
        changes |= {"status": TaskStatus.FAILED, "paused_reason": None, "ended_at_ms": now.wall_ms}
    else:
        changes |= {"status": TaskStatus.ABORTED, "next_attempt_at_ms": now.wall_ms + wait_ms}
    details: dict[str, Any] = {"kind": command.kind, "exitCode": command.exit_code}
    if wait_ms is not None:
        details["retryInMs"] = wait_ms
    if command.done:
        details["done"] = True
    if command.stack_trace:
        details["stackTrace"] = command.stack_trace
    after, event = moved(
        task,
        now,
        "lost" if command.kind is ErrorKind.LOST else "failed",
        f"attempt {task.epoch}: {command.message}",
        attempt.worker_id,
        level=Level.ERROR if wait_ms is None else Level.WARN,
        details=details,
        error_kind=command.kind,
        error=command.message,
        **changes,
    )
    status = AttemptStatus.LOST if command.kind is ErrorKind.LOST else AttemptStatus.FAILED
    closed = close_failed(attempt, status, command, now)
    if wait_ms is not None and attempt.stop_action is StopAction.PAUSE:
        return Decision(after, closed, (event,), (_pause(task),))
    follow_ups = (c.Promote(task_id=task.id),) if wait_ms == 0 and spend is Spend.LOSS else ()
    return Decision(after, closed, (event,), follow_ups)


def _pause(task: Task) -> c.Pause:
    """The attempt failed before it was stopped for a pause: the pause holds all the same."""
    return c.Pause(task_id=task.id, actor=COORDINATOR, reason=task.paused_reason or PauseReason.USER)


def _spent(
    task: Task, attempt: Attempt, command: c.Fail, facts: Facts, now: Now
) -> tuple[dict[str, Any], int | None]:
    """What the failure takes from the task, and how long the next attempt waits; None: there is none."""
    spend = SPENDS[command.kind]
    unpublished = command.done and task.done_epoch is not None
    retry = for_task(facts.retry, task.retry_backoff_s)
    if spend is Spend.LOSS or unpublished:
        losses = task.losses + 1
        if losses >= max(facts.retry.losses_max, 0 if task.done_epoch is None else PUBLISH_TRIES):
            return {"losses": losses}, None
        # Whoever is lost is replaced at once; what git has refused would be refused again.
        earlier = losses - 1 if unpublished else losses - 2
        wait_ms = 0 if earlier < 0 else backoff_ms(earlier, retry, facts.jitter)
        begun_ms = now.wall_ms if unpublished or attempt.started_at_ms is None else attempt.started_at_ms
        # It counts from the start of what was lost: who has worked for longer goes on before its slot is taken.
        return {"losses": losses}, wait_ms - max(0, min(wait_ms, now.wall_ms - begun_ms))
    if spend is Spend.RETRY and task.retries < task.max_retries:
        return {"retries": task.retries + 1}, backoff_ms(task.retries, retry, facts.jitter)
    return {}, None


def _wait_for_provider(task: Task, attempt: Attempt, command: c.Fail, now: Now) -> Decision:
    """Quota, rate limit, login and billing are nobody's failure: it spends nothing and waits for its pool."""
    after, event = moved(
        task,
        now,
        "released",
        f"attempt {task.epoch}: {command.message}",
        attempt.worker_id,
        level=Level.WARN,
        details={"kind": command.kind},
        status=TaskStatus.PENDING,
        error_kind=command.kind,
        error=command.message,
        done_epoch=None,
    )
    closed = close_failed(attempt, AttemptStatus.RELEASED, command, now)
    follow_ups = (_pause(task),) if attempt.stop_action is StopAction.PAUSE else ()
    return Decision(after, closed, (event,), follow_ups)


def release(task: Task, facts: Facts, command: c.Release, now: Now) -> Decision:
    if ended_as(facts, command, AttemptStatus.RELEASED):
        return Decision(task)
    undone = {"done_epoch": None} if command.undone else {}
    return _released(task, current(task, facts, command), command.reason, now, **undone)


def _released(task: Task, attempt: Attempt, reason: str, now: Now, **undone: Any) -> Decision:
    """Gives the task back at no cost, or does with it what its stop was asked for."""
    changes: dict[str, Any] = {"status": TaskStatus.PENDING}
    name, word = "released", "given back"
    if attempt.stop_action is StopAction.PAUSE:
        name, word = "paused", "stopped, the task is paused"
        changes = paused_for(task, task.paused_reason or PauseReason.USER, now)
    elif attempt.stop_action is StopAction.TRANSFER:
        word = f"given back for agent {task.pinned_agent}"
    closed = close(attempt, AttemptStatus.RELEASED, now, error=reason)
    said = f"attempt {task.epoch} {word}: {reason}"
    return decided(task, now, name, said, attempt.worker_id, attempt=closed, **changes | undone)


def ask(task: Task, facts: Facts, command: c.Ask, now: Now) -> Decision:
    if ended_as(facts, command, AttemptStatus.RELEASED) and task.question == command.question:
        return Decision(task)
    return _parked(task, current(task, facts, command), command.question, now)


def park(task: Task, facts: Facts, command: c.Park, now: Now) -> Decision:
    if ended_as(facts, command, AttemptStatus.RELEASED) and task.question == command.question:
        return Decision(task)
    attempt = replace(current(task, facts, command), tree_killed=True)
    return _parked(task, attempt, command.question, now, command.wish, lingering=False)


def _parked(
    task: Task, attempt: Attempt, question: str, now: Now, wish: str = "", *, lingering: bool = True
) -> Decision:
    if task.status is not TaskStatus.RUNNING:
        raise IllegalMove(f"attempt {attempt.epoch} of task {task.id} has not started")
    return decided(
        task,
        now,
        "asked",
        f"attempt {task.epoch} asks: {question}",
        attempt.worker_id,
        level=Level.WARN,
        status=TaskStatus.PAUSED,
        paused_reason=PauseReason.QUESTION,
        question=question,
        wish=wish,
        lingering_epoch=left_running(attempt) if lingering else None,
        done_epoch=None,
        attempt=close(attempt, AttemptStatus.RELEASED, now, error="asked a question"),
    )


def request_stop(task: Task, facts: Facts, command: c.RequestStop, now: Now) -> Decision:
    attempt = current(task, facts, command)
    if attempt.stop_action in (command.action, StopAction.PAUSE):
        return Decision(task)  # a drain does not undo a person's pause
    if attempt.stop_action is not None and command.action is StopAction.RELEASE:
        return Decision(task)
    return stop(task, attempt, command.action, command.stop_by_s, command.actor, now)


def stop(
    task: Task,
    attempt: Attempt,
    action: StopAction,
    stop_by_s: float,
    actor: str,
    now: Now,
    **changes: Any,
) -> Decision:
    """The attempt's worker is to stop it; after `stop_by_s` the coordinator ends it without the worker."""
    stop_by_ms = now.mono_ms + int(min(max(stop_by_s, 0.0), LATEST_STOP_S) * 1000)
    stopping = replace(attempt, status=AttemptStatus.STOPPING, stop_action=action, stop_by_ms=stop_by_ms)
    said, details = f"attempt {task.epoch} is to stop ({action})", {"action": action}
    return decided(task, now, "stop_requested", said, actor, attempt=stopping, details=details, **changes)


def reap(task: Task, facts: Facts, command: c.Reap, now: Now) -> Decision:
    """Where nobody could kill its processes, and its worker is heard but did not stop it in time, its task is not
    given out before they are gone."""
    attempt = current(task, facts, command)
    decision = _reaped(task, attempt, facts, command, now)
    at_work = attempt.boot_id == now.boot_id and now.mono_ms < attempt.lease_until_ms
    if at_work and not command.proven and not command.tree_killed:
        return replace(decision, task=replace(decision.task, lingering_epoch=left_running(attempt)))
    return decision


def _reaped(task: Task, attempt: Attempt, facts: Facts, command: c.Reap, now: Now) -> Decision:
    if not command.proven and not lapsed(attempt, now):
        raise IllegalMove(f"attempt {command.epoch} of task {task.id} was heard again; it keeps its lease")
    if task.status is TaskStatus.ASSIGNED:
        return _released(task, attempt, f"{command.reason} before it started", now)
    attempt = replace(attempt, tree_killed=command.tree_killed)
    if attempt.stop_action is not None:
        return _released(task, attempt, f"{command.reason} while it was stopping", now)
    if attempt.by_hand and command.proven:
        return _released(task, attempt, command.reason, now)
    kind = attempt.declared_kind or ErrorKind.LOST
    message = (attempt.declared if attempt.declared_kind else None) or command.reason
    failed = c.Fail(task_id=task.id, epoch=command.epoch, kind=kind, message=message)
    return _failed(task, attempt, failed, facts, now)


def gone(task: Task, facts: Facts, command: c.ProcessesExited, now: Now) -> Decision:
    refuse_rewound(task, command)
    attempt = facts.attempt
    if attempt is None or attempt.epoch != command.epoch:
        raise StaleEpoch(f"attempt {command.epoch} of task {task.id} is over and nobody waits for its end")
    if task.lingering_epoch != command.epoch:
        return Decision(task)
    actor = attempt.worker_id if command.term is None else COORDINATOR
    return decided(
        task,
        now,
        "process_gone",
        f"the processes of attempt {command.epoch} are gone",
        actor,
        level=Level.DEBUG,
        lingering_epoch=None,
    )


def readopt(task: Task, facts: Facts, command: c.Readopt, now: Now) -> Decision:
    """The one exception to the fence (S3): the newest attempt, lost while nobody took the task, comes back."""
    refuse_rewound(task, command)
    attempt = facts.attempt
    here = attempt is not None and attempt.epoch == command.epoch == task.epoch
    if attempt is None or not here or attempt.generation != task.generation:
        raise StaleEpoch(f"attempt {command.epoch} of task {task.id} is over and another one was granted")
    may = attempt.status is AttemptStatus.LOST and not attempt.tree_killed
    may = may and task.pinned_agent in (None, attempt.agent)
    if not may or task.status not in {TaskStatus.ABORTED, TaskStatus.PENDING}:
        raise StaleEpoch(
            f"attempt {command.epoch} of task {task.id} cannot come back: it is {attempt.status}"
        )
    begun = attempt.started_at_ms is not None
    after, event = moved(
        task,
        now,
        "readopted",
        f"attempt {task.epoch} is heard again and goes on",
        attempt.worker_id,
        level=Level.WARN,
        status=TaskStatus.RUNNING if begun else TaskStatus.ASSIGNED,
        next_attempt_at_ms=None,
        losses=max(0, task.losses - 1),
        error_kind=None,
        error="",
    )
    back = replace(
        attempt,
        status=AttemptStatus.RUNNING if begun else AttemptStatus.ASSIGNED,
        ended_at_ms=None,
        error_kind=None,
        error="",
        boot_id=now.boot_id,
        lease_until_ms=now.mono_ms + attempt.lease_ms,
    )
    return Decision(after, back, (event,))
