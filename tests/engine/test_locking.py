"""What commands name before they are decided on, and the store that fails whoever decides on anything else."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import W1, enqueue

from muster.engine.batch import drive
from muster.engine.locking import ENDS_NOTHING, locks_of
from muster.model import commands as c
from muster.model.machine import TASK_COMMANDS
from muster.model.rows import DEFAULT_WORKSPACE, WorkerRow
from muster.model.states import CrewStatus
from muster.ports.locks import CREW, EDGES, PEOPLE, TERM, Locks, locks, worker_lock
from muster.stores.sqlite.store import MEMORY, SqliteStore
from shared_store import SharedStore

WORKER = worker_lock(W1)
DONE = c.Complete(task_id=7, epoch=1, then=c.Claim(worker_id=W1, request_id="r"))


@pytest.mark.parametrize(
    ("command", "names", "tasks", "ending"),
    [
        (c.Claim(worker_id=W1, request_id="r"), {WORKER}, set(), set()),
        (c.Heartbeat(worker_id=W1, attempts=((7, 1), (8, 2))), {WORKER}, {7, 8}, set()),
        (c.Progress(task_id=7, epoch=1, percent=5), set(), {7}, set()),
        (c.Complete(task_id=7, epoch=1), set(), {7}, {7}),
        (DONE, {WORKER}, {7}, {7}),
        (c.Cancel(task_id=7, actor="ada"), set(), {7}, {7}),
        (c.Depend(task_id=7, actor="ada", depends_on=(8,)), {EDGES}, {7}, {7}),
        (enqueue({"a": []}), set(), set(), set()),
        (enqueue({"a": []}, source="/plan.md"), {EDGES}, set(), set()),
        (c.SetCrew(status=CrewStatus.PAUSED), {CREW}, set(), set()),
        (c.RevokeToken(token_id=3, actor="ada"), {PEOPLE}, set(), set()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_command_names(command: c.Command, names: set[str], tasks: set[int], ending: set[int]) -> None:
    found = locks_of([command])
    assert (found.names, found.tasks, found.ending) == (names, tasks, ending)


def test_a_batch_names_all_at_once() -> None:
    found = locks_of([c.Progress(task_id=7, epoch=1, percent=5), c.Complete(task_id=7, epoch=1), DONE])
    assert found == Locks(frozenset({WORKER}), frozenset(), frozenset({7}), frozenset({7}))
    assert not locks_of([])


def test_who_writes_under_a_term_shares_it() -> None:
    led = c.MarkWorkerDead(worker_id=W1, term=3, reason="gone")
    assert locks_of([led]) == Locks(frozenset({WORKER}), shared=frozenset({TERM}))
    assert not locks_of([c.Promote(task_id=7, actor="ada")]).shared, "a person's word has none"


def test_commands_that_end_nothing_are_moves_of_a_task() -> None:
    assert {c.Provider} == ENDS_NOTHING - TASK_COMMANDS


@pytest.mark.parametrize("held", [False, True])
def test_a_worker_is_put_by_who_holds_it(held: bool) -> None:
    """Of the store that watches: it fails those who do not."""
    store: Any = SharedStore(SqliteStore.open(MEMORY))

    async def put(whole: Any) -> None:
        tx = whole.of(DEFAULT_WORKSPACE)
        if held:
            await tx.lock(locks(WORKER))
        await tx.put_worker(make_worker(W1))

    if held:
        drive(store.transact(put))
    else:
        with pytest.raises(AssertionError, match="without holding"):
            drive(store.transact(put))
    assert (drive(store.reads.worker(W1)) is not None) is held
    store.close()


def make_worker(worker_id: str) -> WorkerRow:
    return WorkerRow(
        id=worker_id,
        workspace_id=DEFAULT_WORKSPACE,
        hostname="here",
        pid=1,
        pid_start=1,
        boot_id="boot-a",
        slots=1,
        agents=("claude",),
        general=("claude",),
        offers={},
    )
