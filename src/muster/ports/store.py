"""What the engine needs from a database: behaviour, not SQL.

All methods are coroutines so that a driver may wait for a server; the SQLite driver never suspends.  What a store
keeps of each kind of thing stands in a module of its own; here they are put together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from typing import Protocol, TypeVar

from msgspec import Struct

from muster.model.answers import BackedUp
from muster.model.commands import AppendLog
from muster.model.edits import Edit
from muster.model.errors import StoreFault
from muster.model.events import Event
from muster.model.rows import NewTask, Workspace
from muster.model.task import Artifact, Attempt, Checkpoint, Now, Task
from muster.ports.agent_rows import AgentReads, AgentTx
from muster.ports.attempt_rows import AttemptCommon, AttemptReads, AttemptTx
from muster.ports.audit_rows import AuditCommon, AuditReads, AuditTx
from muster.ports.hooks import HookReads, HookTx
from muster.ports.locks import Ahead, Locks
from muster.ports.people_rows import PeopleCommon, PeopleReads, PeopleTx
from muster.ports.plan_rows import PlanCommon, PlanReads, PlanTx
from muster.ports.task_rows import TaskCommon, TaskReads, TaskTx
from muster.ports.upkeep_rows import UpkeepReads, UpkeepTx
from muster.ports.vault import SecretReads, SecretTx
from muster.ports.worker_rows import WorkerCommon, WorkerReads, WorkerTx

T = TypeVar("T")


class Writes(Struct):
    """Everything that a transaction changes, applied set-wise."""

    new_tasks: list[tuple[NewTask, Task]]
    tasks: list[Task]
    opened: list[Attempt]
    attempts: list[Attempt]
    events: list[Event]
    results: list[tuple[int, str | None, str]]  # task id, result as JSON, what was said of it
    checkpoints: list[Checkpoint]
    artifacts: list[Artifact]
    logs: list[AppendLog]
    edits: list[Edit]
    """New texts of tasks."""

    @classmethod
    def nothing(cls) -> Writes:
        return cls([], [], [], [], [], [], [], [], [], [])

    def __bool__(self) -> bool:
        # One after the other: most have events, and what has none is asked for often.
        return bool(
            self.events
            or self.tasks
            or self.attempts
            or self.opened
            or self.logs
            or self.new_tasks
            or self.results
            or self.checkpoints
            or self.artifacts
            or self.edits
        )


class Clocked(Protocol):
    async def now(self, here: Now) -> Now:
        """The time that leases are told by.  `here` is what this host's clocks show, which is that time where the
        store has no other writer; servers of several hosts have the clock of their database."""


class Common(
    TaskCommon, AttemptCommon, PlanCommon, WorkerCommon, PeopleCommon, AuditCommon, SecretReads, Protocol
):
    """What a write transaction and the readers ask alike."""

    async def meta(self, name: str) -> str | None:
        """What the workspace keeps under this name."""

    async def store_meta(self, name: str) -> str | None:
        """What the store itself keeps, for all."""


class Numbering(Protocol):
    async def take_ids(self, count: int, wall_ms: int) -> list[int]:
        """So many numbers below 2**53, growing with time, that nobody is ever given again."""


class Tx(
    Common,
    Numbering,
    TaskTx,
    AttemptTx,
    PlanTx,
    WorkerTx,
    PeopleTx,
    AuditTx,
    HookTx,
    AgentTx,
    SecretTx,
    Protocol,
):
    """One workspace's part of a write transaction: nothing of another one is found by it."""

    workspace_id: int

    async def lock(self, wanted: Locks) -> bool:
        """Holds these until the transaction ends: first the names, then the tasks, each in one order for all.

        Whether what was read before may have changed since.  See `ports.locks`.
        """

    async def write(self, writes: Writes, now: Now) -> None:
        """Raises Contended where another transaction has changed a task or an attempt since it was read here, or
        has added what may be there once; so does every other method that writes anew what was read before."""

    async def meta_to_set(self, name: str) -> str | None:
        """As `meta`, of what is set anew by what it is: nobody else sets it until the transaction ends."""

    async def set_meta(self, name: str, value: str) -> None: ...


class Transaction(Numbering, UpkeepTx, Protocol):
    """One write transaction: its parts by workspace, and what concerns no workspace alone."""

    def now(self, here: Now) -> Now:
        """As `Clocked.now`, and no earlier than when the transaction got the last of what it holds: whoever has
        waited decides by the time at which the wait was over."""

    def of(self, workspace_id: int) -> Tx: ...

    async def lock(self, wanted: Locks) -> bool:
        """As `Tx.lock`: of names that are the store's own, not a workspace's."""

    async def workspaces(self) -> list[int]: ...

    async def workspace_named(self, name: str) -> int | None: ...

    async def add_workspace(self, workspace: Workspace) -> None: ...

    async def store_meta(self, name: str) -> str | None: ...

    async def store_metas(self, names: Collection[str]) -> dict[str, str]:
        """Those of these that are kept."""

    async def set_store_meta(self, name: str, value: str) -> None: ...

    async def workspace_of_tasks(self, ids: Collection[int]) -> dict[int, int]:
        """By number, of those that are there."""

    async def workspace_of_plan(self, plan_id: int) -> int | None: ...

    async def workspace_of_worker(self, worker_id: str) -> int | None: ...


class Reads(
    Common,
    Clocked,
    TaskReads,
    AttemptReads,
    PlanReads,
    WorkerReads,
    PeopleReads,
    AuditReads,
    UpkeepReads,
    HookReads,
    AgentReads,
    Protocol,
):
    """Queries on the last committed state: of one workspace, or of all for who looks after all."""

    def of(self, workspace_id: int) -> Reads: ...

    async def workspaces(self) -> list[Workspace]:
        """All of them, the oldest first."""

    async def every_meta(self, name: str) -> list[tuple[int, str]]:
        """(workspace, value) of each that keeps something under this name."""


class Store(Protocol):
    shared: bool
    """Other servers write it too: nothing that a transaction has read is known any more once it has ended."""

    @property
    def reads(self) -> Reads: ...

    @property
    def fault(self) -> StoreFault | None:
        """Why nothing is written any more; None while all is well."""

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], ahead: Ahead | None = None) -> T:
        """Runs `work` in one durable transaction: rolled back where it raises, synced before this returns (S6).

        Raises StoreHalted once a sync has failed (S17), StoreRewound once `halt` was called; where nothing was
        written and a repetition may succeed StoreFull, Contended (at once), StoreAway and other Unavailable;
        CommitUnknown where nobody can say whether it was written.
        """

    async def halt(self, reason: str) -> StoreFault:
        """The store was rewound (S2): nothing is written from now on, by any process; reads go on.

        Returns the error that whoever writes gets.
        """

    async def look(self) -> None:
        """Halts where the store is not what it was any more: taken away, replaced, damaged, behind."""

    async def migrate(self) -> None:
        """Brings the schema up to date, once however many servers start.  Raises StoreRefused for a newer one."""

    async def check(self) -> list[str]:
        """What is wrong with it, in words; empty where it is sound."""

    async def back_up(self, target: Path, *, force: bool) -> BackedUp:
        """A copy of it as of now, while others work.  Raises Conflict where `target` is there (without `force`),
        StoreFault where no whole copy could be made."""

    async def aclose(self) -> None: ...
