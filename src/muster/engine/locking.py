"""What the commands of a batch will decide on, named before they do: see `ports.locks`.

What is only found on the way (attempts that a worker holds, children of children) is held as it is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from muster.model import commands as c
from muster.model.edits import EditTask, UpdatePlan
from muster.model.machine import TASK_COMMANDS
from muster.model.plan_sync import JoinFile, SetSync
from muster.model.rows import WorkerRow
from muster.ports.locks import (
    AUDIT,
    CREW,
    EDGES,
    PEOPLE,
    PLAN_FILES,
    TERM,
    WEBHOOKS,
    Locks,
    locks,
    worker_lock,
)
from muster.ports.store import Tx

ENDS_NOTHING = frozenset(
    {
        c.Account,
        c.AddArtifact,
        c.AppendLog,
        c.Declare,
        c.Extend,
        c.LiveDiff,
        c.Notify,
        c.Overdue,
        c.Progress,
        c.Promote,
        c.Provider,
        c.Publish,
        c.Renew,
        c.RequestStop,
        c.SaveCheckpoint,
        c.Start,
        c.Suspect,
        c.Tell,
        c.Transfer,
    }
)
"""Commands that end no task.  All others may, and what waits for their task is decided on with it."""

NAMES: dict[type[c.Command], frozenset[str]] = {
    c.SetMember: frozenset({PEOPLE}),
    c.RemoveMember: frozenset({PEOPLE}),
    c.AddToken: frozenset({PEOPLE}),
    c.RevokeToken: frozenset({PEOPLE}),
    c.NoteTokenUse: frozenset({PEOPLE}),
    c.RemoveWebhook: frozenset({WEBHOOKS}),
    c.ResendMessages: frozenset({WEBHOOKS}),
    c.NoteDelivery: frozenset({WEBHOOKS}),
    c.SetChannels: frozenset({WEBHOOKS}),
    c.ResendNotices: frozenset({WEBHOOKS}),
    c.GatherMessages: frozenset({WEBHOOKS}),
    c.SetTicked: frozenset({PLAN_FILES}),
    SetSync: frozenset({PLAN_FILES}),
    JoinFile: frozenset({PLAN_FILES}),
    c.AddSeal: frozenset({AUDIT}),
    c.PruneEvents: frozenset({AUDIT}),
    c.Register: frozenset({CREW}),
    c.PutAgent: frozenset({CREW}),
    c.MoveAgent: frozenset({CREW}),
    c.RemoveAgent: frozenset({CREW}),
    c.DrainWorker: frozenset({CREW}),
    c.SetCrew: frozenset({CREW}),
    c.Depend: frozenset({EDGES}),
    EditTask: frozenset({EDGES, PLAN_FILES}),
    UpdatePlan: frozenset({EDGES, PLAN_FILES}),
}
_PLANS, _TERM = frozenset({EDGES}), frozenset({TERM})


class _Kind(NamedTuple):
    names: frozenset[str]
    of_worker: bool
    of_task: bool
    ends: bool
    of_term: bool


@cache
def _kind(kind: type[c.Command]) -> _Kind:
    fields = kind.__struct_fields__
    of_task = "task_id" in fields
    ends = kind not in ENDS_NOTHING
    return _Kind(NAMES.get(kind, frozenset()), "worker_id" in fields, of_task, ends, "term" in fields)


def locks_of(commands: Iterable[c.Command]) -> Locks:
    names, tasks, ending, shared = set[str](), set[int](), set[int](), frozenset[str]()
    for command in commands:
        kind = _kind(type(command))
        about: Any = command
        names |= kind.names
        if kind.of_worker:
            names.add(worker_lock(about.worker_id))
        if kind.of_term and about.term is not None:
            shared = _TERM  # before tasks: the next leader takes it, and then tasks
        if kind.of_task and about.task_id is not None:
            tasks.add(about.task_id)
            if kind.ends:
                ending.add(about.task_id)
        match command:
            case c.Heartbeat():
                tasks.update(task_id for task_id, _ in command.attempts)
            case c.Finish(then=c.Claim(worker_id=worker_id)):
                names.add(worker_lock(worker_id))
            case c.Enqueue() if command.of_file:
                names |= _PLANS  # a box that is called otherwise may wait for others now
    return Locks(frozenset(names), shared, frozenset(tasks), frozenset(ending))


async def held_worker(tx: Tx, worker_id: str) -> WorkerRow | None:
    """As it is until this transaction ends: for who is to put it anew."""
    await tx.lock(locks(worker_lock(worker_id)))
    return await tx.worker(worker_id)


async def held_workers(tx: Tx) -> list[WorkerRow]:
    """All that live, in the same way."""
    found = await tx.living_workers()
    names = frozenset(worker_lock(worker.id) for worker in found)
    if found and await tx.lock(Locks(names=names)):
        found = [worker for worker in await tx.living_workers() if worker_lock(worker.id) in names]
    return found


def named_tasks(commands: Iterable[c.Command]) -> list[int]:
    ids: set[int] = set()
    for command in commands:
        if type(command) in TASK_COMMANDS:
            ids.add(command.task_id)  # type: ignore[attr-defined]
        elif isinstance(command, c.Heartbeat):
            ids.update(task_id for task_id, _ in command.attempts)
    return list(ids)
