"""Every command from every situation: the documented move, or the documented refusal.

A situation is a task's status with its newest attempt's.  A cell reads `TASK/attempt` where both move,
`=` where the command is accepted and neither status changes, and an error's code where it is refused.
"""

from __future__ import annotations

from itertools import product

import pytest
from machine_makers import NOW, commands, make_attempt, make_task, run
from msgspec.structs import replace

from muster.model.errors import MusterError
from muster.model.machine import TASK_COMMANDS
from muster.model.states import (
    ATTEMPT_MOVES,
    ATTEMPT_OPEN,
    HELD,
    TASK_MOVES,
    AttemptStatus,
    PauseReason,
    TaskStatus,
)
from muster.model.task import Attempt, Task

ILLEGAL, STALE, REWOUND = "illegal_move", "stale_epoch", "store_rewound"

COLUMNS = ("ASSIGNED/assigned", "ASSIGNED/stopping", "RUNNING/running", "RUNNING/stopping")
HELD_TABLE: dict[str, tuple[str, str, str, str]] = {
    "grant": (ILLEGAL, ILLEGAL, ILLEGAL, ILLEGAL),
    "start": ("RUNNING/running", "RUNNING/stopping", ILLEGAL, ILLEGAL),
    "renew": ("=", "=", "=", "="),
    "progress": (ILLEGAL, ILLEGAL, "=", "="),
    "checkpoint": (ILLEGAL, ILLEGAL, "=", "="),
    "artifact": (ILLEGAL, ILLEGAL, "=", "="),
    "declare": (ILLEGAL, ILLEGAL, "=", "="),
    "publish": (ILLEGAL, ILLEGAL, "=", "="),
    "published": ("=", "=", "=", "="),
    "accept": (ILLEGAL, ILLEGAL, ILLEGAL, ILLEGAL),
    "rework": ("ABORTED/failed",) * 4,
    "review": ("PAUSED/failed",) * 4,
    "suspect": (ILLEGAL, ILLEGAL, "=", "="),
    "live diff": (ILLEGAL, ILLEGAL, "=", "="),
    "notify": ("=", "=", "=", "="),
    "account": ("=", "=", "=", "="),
    "log": ("=", "=", "=", "="),
    "complete": ("COMPLETED/completed",) * 4,
    "crash": ("ABORTED/failed",) * 4,
    "invalid": ("FAILED/failed",) * 4,
    "quota": ("PENDING/released",) * 4,
    "release": ("PENDING/released",) * 4,
    "stop": ("ASSIGNED/stopping", "=", "RUNNING/stopping", "="),
    "reap": ("PENDING/released", "PENDING/released", "ABORTED/lost", "PENDING/released"),
    "gone": ("=", "=", "=", "="),
    "promote": (ILLEGAL, ILLEGAL, ILLEGAL, ILLEGAL),
    "cancel": ("CANCELLED/cancelled",) * 4,
    "retry": (ILLEGAL, ILLEGAL, ILLEGAL, ILLEGAL),
    "person": (ILLEGAL, ILLEGAL, ILLEGAL, ILLEGAL),
    "unblock": ("=", "=", "=", "="),
    "close group": (ILLEGAL, ILLEGAL, ILLEGAL, ILLEGAL),
    "ask": (ILLEGAL, ILLEGAL, "PAUSED/released", "PAUSED/released"),
    "park": (ILLEGAL, ILLEGAL, "PAUSED/released", "PAUSED/released"),
    "readopt": (STALE, STALE, STALE, STALE),
    "extend": (ILLEGAL, ILLEGAL, ILLEGAL, ILLEGAL),
    "pause": ("ASSIGNED/stopping", "=", "RUNNING/stopping", "="),
    "resume": (ILLEGAL, ILLEGAL, ILLEGAL, ILLEGAL),
    "answer": (ILLEGAL, ILLEGAL, ILLEGAL, ILLEGAL),
    "tell": ("=", "=", "=", "="),
    "transfer": ("ASSIGNED/stopping", "=", "RUNNING/stopping", "="),
    "drop pin": ("=", "=", "=", "="),
    "rename box": ("=", "=", "=", "="),
    "expire": (ILLEGAL, ILLEGAL, ILLEGAL, ILLEGAL),
    "overdue": (ILLEGAL, ILLEGAL, "=", "="),
    "mend": ("=", "=", "=", "="),
    "skip": (ILLEGAL, ILLEGAL, ILLEGAL, ILLEGAL),
    "depend": (ILLEGAL, ILLEGAL, ILLEGAL, ILLEGAL),
    "archive": (ILLEGAL, ILLEGAL, ILLEGAL, ILLEGAL),
    "edit": ("=", "=", "=", "="),
}

FREE = tuple(status for status in TaskStatus if status not in HELD)
ENDED = tuple(status for status in AttemptStatus if status not in ATTEMPT_OPEN)
FREE_TABLE: dict[str, dict[str, str]] = {
    "grant": {"PENDING": "ASSIGNED/assigned"},
    "promote": {"ABORTED": "PENDING"},
    "cancel": {"PENDING": "CANCELLED", "PAUSED": "CANCELLED", "ABORTED": "CANCELLED", "CANCELLED": "="},
    "retry": {"ABORTED": "PENDING", "FAILED": "PENDING", "CANCELLED": "PENDING", "COMPLETED": "PENDING"},
    "close group": {},
    "person": {"PENDING": "COMPLETED", "PAUSED": "COMPLETED", "FAILED": "COMPLETED", "COMPLETED": "="},
    "unblock": dict.fromkeys(FREE, "="),
    "pause": {"PENDING": "PAUSED", "ABORTED": "PAUSED", "PAUSED": "="},
    "resume": {"PAUSED": "PENDING"},
    "answer": {"PAUSED": "PENDING"},
    "accept": {"PAUSED": "PENDING"},
    "tell": dict.fromkeys(("PENDING", "ABORTED", "PAUSED"), "="),
    "transfer": {"PENDING": "=", "ABORTED": "=", "PAUSED": "="},
    "drop pin": dict.fromkeys(FREE, "="),
    "rename box": dict.fromkeys(FREE, "="),
    "expire": {"PENDING": "FAILED", "ABORTED": "FAILED"},
    "overdue": {},
    "mend": dict.fromkeys(FREE, "="),
    "skip": dict.fromkeys(("PENDING", "ABORTED", "PAUSED", "FAILED"), "CANCELLED"),
    "depend": dict.fromkeys(("PENDING", "ABORTED", "PAUSED"), "="),
    "archive": {**dict.fromkeys(("COMPLETED", "FAILED", "CANCELLED"), "ARCHIVED"), "ARCHIVED": "="},
    "edit": dict.fromkeys(("PENDING", "ABORTED", "PAUSED", "FAILED", "CANCELLED"), "="),
}
"""What moves a task that nobody holds, by its status; all else is an illegal move."""
BACK = (TaskStatus.PENDING, TaskStatus.ABORTED)
"""Of such a task a lost attempt may come back."""
WITH_EPOCH = [name for name, command in commands().items() if hasattr(command, "epoch")]
KEPT = ("account", "log")
"""What an ended attempt has printed and cost is kept beside it."""
REPEATED: dict[str, set[AttemptStatus]] = {
    "complete": {AttemptStatus.COMPLETED},
    "crash": {AttemptStatus.FAILED, AttemptStatus.RELEASED},
    "invalid": {AttemptStatus.FAILED, AttemptStatus.RELEASED},
    "quota": {AttemptStatus.FAILED, AttemptStatus.RELEASED},
    "rework": {AttemptStatus.FAILED, AttemptStatus.RELEASED},
    "review": {AttemptStatus.FAILED, AttemptStatus.RELEASED},
    "release": {AttemptStatus.RELEASED},
    "account": set(ENDED),
    "log": set(ENDED),
    "gone": set(ENDED),
}
"""An attempt's own commands on its ended attempt: accepted as a repetition in these statuses, else stale."""
SITUATION: dict[str, dict[str, object]] = {
    "unblock": {"unmet": 1},
    "gone": {"lingering_epoch": 4},
    "answer": {"paused_reason": PauseReason.QUESTION, "question": "which one?"},
    "accept": {"paused_reason": PauseReason.REVIEW, "done_epoch": 4},
    "publish": {"done_epoch": 4},
    "drop pin": {"pinned_agent": "codex", "pinned_until_ms": NOW.wall_ms},
    "expire": {"expires_at_ms": NOW.wall_ms},
    "overdue": {"overdue_at_ms": NOW.wall_ms},
}
"""What must be so for a command to have a sense at all."""


def outcome(task: Task, attempt: Attempt | None, name: str) -> str:
    command = commands()[name]
    task = replace(task, **SITUATION.get(name, {}))
    try:
        decision = run(task, attempt, command)
    except MusterError as error:
        return error.code
    follow_legally(task, attempt, decision.task, decision.attempt)
    count_events(task, attempt, decision.task, decision.attempt, len(decision.events))
    before = (task.status, attempt.status if attempt else None)
    newest = decision.attempt or attempt
    after = (decision.task.status, newest.status if newest else None)
    if before == after:
        return "="
    return f"{after[0]}/{after[1]}" if decision.attempt else after[0]


def follow_legally(task: Task, attempt: Attempt | None, after: Task, after_attempt: Attempt | None) -> None:
    assert after.status in TASK_MOVES[task.status] | {task.status}
    if attempt is not None and after_attempt is not None and after_attempt.epoch == attempt.epoch:
        assert after_attempt.status in ATTEMPT_MOVES[attempt.status] | {attempt.status}


def count_events(
    task: Task, attempt: Attempt | None, after: Task, after_attempt: Attempt | None, events: int
) -> None:
    """Exactly one event for what changes a state, none without (S7)."""
    changed = after.status is not task.status or (
        after_attempt is not None and (attempt is None or after_attempt.status is not attempt.status)
    )
    assert after.event_seq - task.event_seq == events
    assert events == 1 or (events == 0 and not changed)


def held_by_attempt(situation: str) -> tuple[Task, Attempt]:
    status, _, attempt_status = situation.partition("/")
    return make_task(TaskStatus(status)), make_attempt(AttemptStatus(attempt_status))


@pytest.mark.parametrize("name", HELD_TABLE)
def test_a_held_task_moves_as_the_table_says(name: str) -> None:
    found = tuple(outcome(*held_by_attempt(situation), name) for situation in COLUMNS)
    assert found == HELD_TABLE[name]


@pytest.mark.promise("S5", "S11")
@pytest.mark.parametrize("name", HELD_TABLE)
def test_a_free_task_moves_as_the_table_says(name: str) -> None:
    cells = list(product(FREE, ENDED))
    found = {cell: outcome(make_task(cell[0], epoch=4), make_attempt(cell[1]), name) for cell in cells}
    assert found == {cell: wanted_of_free(name, *cell) for cell in cells}


def wanted_of_free(name: str, status: TaskStatus, ended: AttemptStatus) -> str:
    if name in FREE_TABLE:
        return FREE_TABLE[name].get(status, ILLEGAL)
    if name == "readopt" and ended is AttemptStatus.LOST and status in BACK:
        return "ASSIGNED/assigned"
    return "=" if ended in REPEATED.get(name, ()) else STALE


@pytest.mark.parametrize("status", BACK)
def test_an_attempt_whose_process_has_begun_comes_back_to_it(status: TaskStatus) -> None:
    attempt = make_attempt(AttemptStatus.LOST, started_at_ms=7)
    assert outcome(make_task(status, epoch=4), attempt, "readopt") == "RUNNING/running"


@pytest.mark.parametrize("name", HELD_TABLE)
def test_a_task_that_was_never_claimed_knows_no_epoch(name: str) -> None:
    found = {status: outcome(make_task(status), None, name) for status in FREE}
    if name in FREE_TABLE:
        assert found == {status: FREE_TABLE[name].get(status, ILLEGAL) for status in FREE}
    else:
        assert found == dict.fromkeys(FREE, STALE if name in KEPT else REWOUND)


def test_the_tables_know_all_commands() -> None:
    assert {type(command) for command in commands().values()} == TASK_COMMANDS
    assert HELD_TABLE.keys() == commands().keys()


@pytest.mark.promise("S3")
@pytest.mark.parametrize("name", WITH_EPOCH)
def test_an_older_epoch_is_stale_in_every_situation(name: str) -> None:
    for situation in COLUMNS:
        with pytest.raises(MusterError) as refused:
            run(*held_by_attempt(situation), commands(epoch=3)[name])
        assert refused.value.code == STALE, situation


@pytest.mark.parametrize("name", WITH_EPOCH)
def test_an_epoch_above_the_stores_means_that_it_was_rewound(name: str) -> None:
    task, attempt = held_by_attempt("RUNNING/running")
    with pytest.raises(MusterError) as refused:
        run(task, attempt, commands(epoch=5)[name])
    assert refused.value.code == (STALE if name in KEPT else REWOUND)
    assert name in KEPT or "muster db restored" in refused.value.hint


def test_a_task_is_given_out_only_when_ready() -> None:
    grant = commands()["grant"]
    assert run(make_task(), None, grant).task.status is TaskStatus.ASSIGNED
    for waiting in ({"unmet": 1}, {"next_attempt_at_ms": NOW.wall_ms}, {"next_attempt_at_ms": 0}):
        with pytest.raises(MusterError, match="cannot be claimed"):
            run(make_task(**waiting), None, grant)
