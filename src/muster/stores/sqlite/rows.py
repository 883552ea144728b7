"""What the columns of a row mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from muster.model.commands import Offer
from muster.model.edits import KeptTask
from muster.model.events import Event, Level
from muster.model.rows import Plan, Worker
from muster.model.states import (
    AttemptStatus,
    ErrorKind,
    FailedDependency,
    PauseReason,
    StopAction,
    TaskStatus,
    WorkerStatus,
)
from muster.model.task import Attempt, Task

_TASK = {name: i for i, name in enumerate(Task.__struct_fields__)}
_ATTEMPT = {name: i for i, name in enumerate(Attempt.__struct_fields__)}


_STATUS = {str(status): status for status in TaskStatus}
_ON_FAILED = {str(wish): wish for wish in FailedDependency}
_TASK_STATUS, _TASK_ON_FAILED = _TASK["status"], _TASK["on_failed"]
_TASK_ERROR_KIND, _TASK_PAUSED_REASON = _TASK["error_kind"], _TASK["paused_reason"]


def task_of(row: tuple[Any, ...]) -> Task:
    values = list(row)
    values[_TASK_STATUS] = _STATUS[values[_TASK_STATUS]]
    if values[_TASK_ERROR_KIND] is not None:
        values[_TASK_ERROR_KIND] = ErrorKind(values[_TASK_ERROR_KIND])
    if values[_TASK_PAUSED_REASON] is not None:
        values[_TASK_PAUSED_REASON] = PauseReason(values[_TASK_PAUSED_REASON])
    values[_TASK_ON_FAILED] = _ON_FAILED[values[_TASK_ON_FAILED]]
    return Task(*values)


def attempt_of(row: tuple[Any, ...]) -> Attempt:
    values = list(row)
    values[_ATTEMPT["status"]] = AttemptStatus(values[_ATTEMPT["status"]])
    values[_ATTEMPT["tree_killed"]] = bool(values[_ATTEMPT["tree_killed"]])
    for name, kind in (("stop_action", StopAction), ("error_kind", ErrorKind), ("declared_kind", ErrorKind)):
        if values[_ATTEMPT[name]] is not None:
            values[_ATTEMPT[name]] = kind(values[_ATTEMPT[name]])
    return Attempt(*values)


def worker_of(row: tuple[Any, ...]) -> Worker:
    values = dict(zip(Worker.__struct_fields__, row, strict=True))
    values["agents"] = tuple(msgspec.json.decode(values["agents"]))
    values["general"] = tuple(msgspec.json.decode(values["general"]))
    values["offers"] = msgspec.json.decode(values["offers"], type=dict[str, Offer])
    values["unfit"] = msgspec.json.decode(values["unfit"])
    values["status"] = WorkerStatus(values["status"])
    values["permanent"] = bool(values["permanent"])
    return Worker(**values)


def event_of(row: Sequence[Any]) -> Event:
    values = dict(zip(Event.__struct_fields__, row, strict=True))
    values["level"] = Level(str(values["level"]))
    values["new_status"] = TaskStatus(str(values["new_status"]))
    if values["previous_status"] is not None:
        values["previous_status"] = TaskStatus(str(values["previous_status"]))
    return Event(**values)


def plan_of(row: tuple[Any, ...]) -> Plan:
    plan = Plan(*row)
    return (
        plan if plan.paused_reason is None else replace(plan, paused_reason=PauseReason(plan.paused_reason))
    )


def kept_of(row: tuple[Any, ...]) -> KeptTask:
    values = dict(zip(KeptTask.__struct_fields__, row, strict=True))
    values["status"] = TaskStatus(values["status"])
    values["on_failed"] = FailedDependency(values["on_failed"])
    values["from_file"] = bool(values["from_file"])
    for name in ("capabilities", "tags"):
        values[name] = tuple(msgspec.json.decode(values[name]))
    values["metadata"] = msgspec.json.decode(values["metadata"])
    values["dependencies"] = tuple(map(tuple, msgspec.json.decode(values["dependencies"])))
    return KeptTask(**values)
