"""Attempts by hand: a person, or a program outside of Muster, holds the task and renews its lease itself."""

from __future__ import annotations

from msgspec.structs import replace

from muster.model import commands as c
from muster.model.errors import IllegalMove
from muster.model.events import Event
from muster.model.moves.decision import Decision, Facts, current
from muster.model.moves.ending import readopt
from muster.model.states import AttemptStatus
from muster.model.task import Attempt, Now, Task


def extend(task: Task, facts: Facts, command: c.Extend, now: Now) -> Decision:
    """Renews the lease, also one that is over while nobody has taken the task since (S3).

    As often as its holder likes, until the task's own time limit (on the wall clock, from the claim) is over.
    """
    events: tuple[Event, ...] = ()
    attempt = facts.attempt
    if attempt is not None and attempt.by_hand and is_lost(attempt, command.epoch):
        refuse_stranger(attempt, command.actor)
        back = readopt(task, facts, c.Readopt(task_id=task.id, epoch=command.epoch), now)
        task, attempt, events = back.task, back.attempt or attempt, back.events
    else:
        attempt = current(task, facts, command)
        refuse_stranger(attempt, command.actor)
    limit_s = task.timeout_s * task.timeout_factor
    left_ms = attempt.assigned_at_ms + limit_s * 1000 - now.wall_ms
    if left_ms <= 0:
        raise IllegalMove(
            f"attempt {attempt.epoch} of task {task.id} has used up the task's time of {limit_s} s; "
            "its lease was not renewed",
            f"muster claim release {task.id} --done, or without --done to give it back",
        )
    lease_ms = command.lease_ms or attempt.lease_ms
    extended = replace(
        attempt,
        lease_ms=lease_ms,
        lease_until_ms=now.mono_ms + min(lease_ms, left_ms),
        boot_id=now.boot_id,
    )
    return Decision(task, extended, events)


def is_lost(attempt: Attempt, epoch: int) -> bool:
    return attempt.epoch == epoch and attempt.status is AttemptStatus.LOST


def refuse_stranger(attempt: Attempt, actor: str) -> None:
    """Raises IllegalMove where it is not by hand, or somebody else's."""
    if not attempt.by_hand:
        raise IllegalMove(
            f"attempt {attempt.epoch} of task {attempt.task_id} is an agent's, on {attempt.worker_id}; "
            "nothing was changed",
            f"muster task pause {attempt.task_id} takes it from its agent",
        )
    if attempt.worker_id != actor:
        raise IllegalMove(
            f"attempt {attempt.epoch} of task {attempt.task_id} is held by {attempt.worker_id}; "
            "nothing was changed",
            f"muster task pause {attempt.task_id} takes it away, muster task resume gives it out again",
        )
