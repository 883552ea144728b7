"""What a person may do with a task now: `decide` is asked, and nothing is done.

Whether a budget is used up no task knows: that is told with it, as `budgets_used_up`.

Everything that offers buttons, verbs or hints shows this; no surface has rules of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

from msgspec.structs import replace

from muster.model import commands as c
from muster.model.edits import Edit
from muster.model.errors import MusterError
from muster.model.machine import decide
from muster.model.moves.decision import Facts
from muster.model.moves.waiting import enqueued
from muster.model.pools import CLOSING
from muster.model.spending import BUDGET, OWN_BUDGET
from muster.model.states import (
    ATTEMPT_OPEN,
    FINAL,
    HELD,
    AttemptStatus,
    ErrorKind,
    PauseReason,
    StopAction,
    TaskStatus,
)
from muster.model.task import BY_HAND, Attempt, Now, TaskFields
from muster.model.views import TaskView

_NOW = Now(wall_ms=1, mono_ms=1, boot_id="")
_TASK = enqueued(
    c.Spec(title="t", timeout_s=1, max_retries=0),
    task_id=1,
    workspace_id=1,
    plan_id=1,
    lane_id=1,
    unmet=0,
    actor="",
    now=_NOW,
).task
_ATTEMPT = decide(
    _TASK, Facts(), c.Grant(task_id=1, worker_id="w", agent="a", request_id="r", lease_ms=1), _NOW
).attempt
_BY: dict[str, Any] = {"task_id": 1, "actor": "somebody"}
_COMMANDS: dict[str, c.Command] = {
    "answer": c.AnswerQuestion(**_BY, text="."),
    "accept": c.Accept(**_BY),
    "resume": c.Resume(**_BY),
    "retry": c.Retry(**_BY),
    "pause": c.Pause(**_BY),
    "cancel": c.Cancel(**_BY),
    "complete": c.CompleteByPerson(**_BY),
    "skip": c.Skip(**_BY),
    "transfer": c.Transfer(**_BY, agent="another"),
    "edit": Edit(
        **_BY,
        task_fields=TaskFields(title="."),
        changed={"title": ""},
        lane_id=1,
        unmet=0,
        parent_task_id=None,
    ),
    "claim": c.Grant(task_id=1, worker_id="somebody", agent=BY_HAND, request_id="r", lease_ms=1),
    "archive": c.Archive(**_BY),
}
"""By their names on all surfaces, the most likely first."""


class _Place(NamedTuple):
    """All of a task that decides about these."""

    status: TaskStatus
    paused_reason: PauseReason | None
    unmet: bool
    delayed: bool
    refused: bool
    lingering: bool
    done: bool
    attempt: AttemptStatus | None
    by_hand: bool
    stop_action: StopAction | None
    group: bool
    used_up: bool = False
    """Its own budget: with that it is not resumed."""


def actions(task: TaskView) -> tuple[str, ...]:
    return _allowed(
        _Place(
            status=task.status,
            paused_reason=task.paused_reason,
            unmet=task.unmet > 0,
            delayed=task.next_attempt_at_ms is not None,
            refused=task.error_kind in CLOSING,
            lingering=task.lingering_epoch is not None,
            done=task.done_epoch is not None,
            attempt=task.attempt_status if task.attempt_status in ATTEMPT_OPEN else None,
            by_hand=task.agent == BY_HAND,
            stop_action=task.stop_action,
            group=task.is_group,
            used_up=OWN_BUDGET in task.budgets_used_up,
        )
    )


@lru_cache
def statuses_for(action: str) -> tuple[TaskStatus, ...]:
    """Those in which it may be possible: what has failed first, then what has not ended."""
    found = [status for status in TaskStatus if any(action in _allowed(place) for place in _places(status))]
    return tuple(sorted(found, key=lambda status: (status is not TaskStatus.FAILED, status in FINAL)))


def _places(status: TaskStatus) -> Iterator[_Place]:
    """Those of a task that nobody stops and no person holds, which may do less."""
    reasons = tuple(PauseReason) if status is TaskStatus.PAUSED else (None,)
    attempts = tuple(ATTEMPT_OPEN) if status in HELD else (None,)
    for reason, attempt, flags in product(reasons, attempts, product((False, True), repeat=5)):
        unmet, delayed, refused, lingering, done = flags
        yield _Place(
            status,
            reason,
            unmet,
            delayed,
            refused,
            lingering,
            done,
            attempt,
            by_hand=False,
            stop_action=None,
            group=False,
        )


@lru_cache(maxsize=1000)
def _allowed(place: _Place) -> tuple[str, ...]:
    task = replace(
        _TASK,
        status=place.status,
        epoch=1,
        paused_reason=place.paused_reason,
        unmet=int(place.unmet),
        next_attempt_at_ms=1 if place.delayed else None,
        error_kind=ErrorKind.QUOTA if place.refused else None,
        lingering_epoch=1 if place.lingering else None,
        done_epoch=1 if place.done else None,
        is_group=place.group,
    )
    attempt: Attempt | None = None
    if place.attempt is not None and _ATTEMPT is not None:
        agent = BY_HAND if place.by_hand else "a"
        attempt = replace(_ATTEMPT, status=place.attempt, agent=agent, stop_action=place.stop_action)
    facts = Facts(attempt)
    found = [BUDGET] if place.used_up else []
    for name, command in _COMMANDS.items():
        if name == "resume" and place.used_up:
            continue
        try:
            if decide(task, facts, command, _NOW).events:
                found.append(name)
        except MusterError:
            continue
    return tuple(found)
