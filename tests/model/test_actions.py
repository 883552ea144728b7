"""What a person may do with a task now: what `decide` would accept, for every surface."""

from __future__ import annotations

from typing import Any

import pytest
from test_why import view

from muster.model.actions import actions, statuses_for
from muster.model.states import AttemptStatus as A
from muster.model.states import PauseReason, StopAction
from muster.model.states import TaskStatus as T
from muster.model.task import BY_HAND

DUE = {"next_attempt_at_ms": 5}
HELD = {"epoch": 1, "attempt_status": A.RUNNING, "agent": "claude", "worker": "w"}
STOPPING = HELD | {"attempt_status": A.STOPPING, "stop_action": StopAction.PAUSE}
ASKS = {"paused_reason": PauseReason.QUESTION}
CASES: list[tuple[T, dict[str, Any], tuple[str, ...]]] = [
    (T.PENDING, {}, ("pause", "cancel", "complete", "skip", "transfer", "edit", "claim")),
    (T.PENDING, {"unmet": 1}, ("pause", "cancel", "complete", "skip", "transfer", "edit")),
    (T.PENDING, {"lingering_epoch": 1}, ("pause", "cancel", "complete", "skip", "transfer", "edit")),
    (T.PENDING, DUE, ("retry", "pause", "cancel", "complete", "skip", "transfer", "edit")),
    (T.ABORTED, DUE, ("retry", "pause", "cancel", "skip", "transfer", "edit")),
    (T.RUNNING, HELD, ("pause", "cancel", "transfer")),
    (T.RUNNING, HELD | {"agent": BY_HAND}, ("pause", "cancel", "transfer")),
    (
        T.RUNNING,
        HELD | {"attempt_status": A.STOPPING, "stop_action": StopAction.PAUSE},
        ("resume", "cancel", "transfer"),
    ),
    (
        T.PAUSED,
        {"paused_reason": PauseReason.QUESTION},
        ("answer", "cancel", "complete", "skip", "transfer", "edit"),
    ),
    (
        T.PAUSED,
        {"paused_reason": PauseReason.USER},
        ("resume", "cancel", "complete", "skip", "transfer", "edit", "claim"),
    ),
    (
        T.PAUSED,
        {"paused_reason": PauseReason.BUDGET, "budgets_used_up": ("task", "plan")},
        ("budget", "cancel", "complete", "skip", "transfer", "edit"),
    ),
    (
        T.PAUSED,
        {"paused_reason": PauseReason.BUDGET, "budgets_used_up": ("plan",)},
        ("resume", "cancel", "complete", "skip", "transfer", "edit"),
    ),
    (T.FAILED, {}, ("retry", "complete", "skip", "edit", "archive")),
    (T.CANCELLED, {}, ("retry", "edit", "archive")),
    (T.COMPLETED, {}, ("retry", "archive")),
    (T.ARCHIVED, {}, ()),
]


@pytest.mark.parametrize(("status", "changes", "expected"), CASES)
def test_what_may_be_done(status: T, changes: dict[str, Any], expected: tuple[str, ...]) -> None:
    assert actions(view(status, **changes)) == expected


def test_the_statuses_of_an_action_are_those_of_the_machine() -> None:
    assert statuses_for("accept") == (T.PAUSED,)
    assert statuses_for("retry")[0] is T.FAILED and T.RUNNING not in statuses_for("retry")
    assert set(statuses_for("pause")) & {T.COMPLETED, T.FAILED, T.ARCHIVED} == set()
