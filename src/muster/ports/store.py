"""What the engine needs from a database: behaviour, not SQL.

All methods are coroutines so that a driver may wait for a server; the SQLite driver never suspends.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import astuple

from muster.model.access import Member, Token
from muster.model.agents import AgentRow
from muster.model.commands import AppendLog
from muster.model.edits import BoxName, Edit, KeptTask, Namesake
from muster.model.errors import StoreFault
from muster.model.events import Event
from muster.model.items import Effort
from muster.model.place import PlanPlace
from muster.model.plan_sync import SyncState
from muster.model.rows import Lane, NewTask, Plan, WorkerRow, Workspace
from muster.model.seals import Numbered, Seal
from muster.model.task import Artifact, Attempt, Checkpoint, Now, Task
from muster.model.touches import Touching
from muster.model.views import (
    AttemptView,
    EventView,
    JobText,
    LogChunk,
    PlanView,
    TaskFilter,
    TaskTexts,
    TaskView,
)
from muster.model.webhooks import Webhook
from muster.ports.agent_rows import AgentReads, AgentTx
from muster.ports.found_rows import EventSpan, Existing
from muster.ports.hooks import HookReads, HookTx
from muster.ports.vault import SecretReads, SecretTx

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
        return any(astuple(self))


class Common(Protocol):
    """What a write transaction and the readers ask alike."""

    async def living_workers(self) -> list[WorkerRow]: ...

    async def worker(self, worker_id: str) -> WorkerRow | None:
        """Also one that has ended."""

    async def open_by_agent(self) -> dict[str, int]:
        """Open attempts by agent."""

    async def touching(self) -> list[Touching]:
        """Tasks that are held, where it is known which files they change."""

    async def open_by_limit(self) -> dict[str, int]:
        """Open attempts by limit key."""

    async def kept_tasks(self, plan_id: int) -> list[KeptTask]:
        """All tasks of the plan, in the order in which they were added."""

    async def box_names(self, plan_id: int) -> list[BoxName]:
        """All that boxes of the plan are and were called, but for the keys of their tasks."""

    async def other_files(self, plan_id: int) -> bool:
        """Whether another plan than this one has a file."""

    async def namesakes(
        self, plan_id: int, names: Collection[str], titles: Collection[str], since_ms: int
    ) -> list[Namesake]:
        """Tasks of other plans with a file whose boxes have one of these names, or that have one of these titles:
        what is still to be done, or has been done since then, or is done and its box was never ticked."""

    async def sync_state(self, plan_id: int) -> SyncState: ...

    async def members(self) -> list[Member]: ...
    async def tokens(self) -> list[Token]:
        """Also those that count for nothing any more, the oldest first."""

    async def movable(self, plan_id: int) -> tuple[int, set[tuple[str | None, tuple[str, ...]]]]:
        """(tasks that are held, wait for a due time or are being taken over by a person, (agent, capabilities)
        wanted by those that are ready)."""

    async def plan_counts(self, plan_id: int) -> dict[str, int]:
        """How many of its tasks have each status, but for groups."""

    async def token_of_id(self, token_id: int) -> Token | None: ...

    async def last_seal(self) -> Seal | None: ...

    async def meta(self, name: str) -> str | None:
        """What the workspace keeps under this name."""

    async def store_meta(self, name: str) -> str | None:
        """What the store itself keeps, for all."""


class Tx(Common, HookTx, AgentTx, SecretTx, Protocol):
    """One workspace's part of a write transaction: nothing of another one is found by it."""

    workspace_id: int

    async def tasks(self, ids: Collection[int]) -> list[Task]: ...

    async def elsewhere(self, ids: Collection[int]) -> set[int]:
        """Those of these numbers that tasks of other workspaces have."""

    async def attempts(self, keys: Collection[tuple[int, int]]) -> list[Attempt]:
        """Attempts of the workspace's tasks by (task id, epoch)."""

    async def held(self, worker_id: str) -> list[Attempt]:
        """The worker's open attempts."""

    async def held_by_hand(self) -> list[Attempt]:
        """Open attempts that no worker holds."""

    async def open_lanes(self) -> list[int]:
        """Lanes that hold at least one ready task, of plans that are not paused.  Its cost grows with
        their number, not with the tasks'."""

    async def ready(self, lane_id: int, limit: int) -> list[Task]:
        """The lane's ready tasks in the order in which they are given out."""

    async def task_cost(self, task_id: int, but_epoch: int) -> int:
        """What a task's attempts but that one have cost, as far as it is written, in millionths of a dollar."""

    async def job_texts(self, ids: Collection[int]) -> list[JobText]:
        """What a claim hands over besides the state, with the newest checkpoint and session."""

    async def settle_dependencies(self, parent_ids: Collection[int]) -> list[tuple[int, int]]:
        """Marks the parents' outgoing dependencies as met; (child, how many of its edges were unmet)."""

    async def write(self, writes: Writes, now: Now) -> None: ...

    async def plan_by_source(self, source: str) -> Plan | None: ...
    async def plan_by_name(self, name: str) -> Plan | None: ...
    async def plan(self, plan_id: int) -> Plan | None: ...

    async def update_plan(self, plan: Plan) -> None:
        """Its count of failures, its pause, its file, its order, the number of its last event."""

    async def plan_names(self) -> set[str]: ...

    async def add_plan(self, plan: Plan) -> None: ...

    async def set_ticked(self, plan_id: int, event_id: int) -> None: ...

    async def set_sync_state(self, plan_id: int, state: SyncState) -> None: ...

    async def existing(self, plan_id: int, keys: Collection[str]) -> dict[str, Existing]:
        """Those of the plan's tasks that have one of these keys, by key."""

    async def existing_ids(self, ids: Collection[int]) -> list[Existing]:
        """Those of the tasks that are there."""

    async def set_boxes(self, plan_id: int, boxes: Mapping[str, int]) -> None:
        """The boxes of these tasks are called so from now on."""

    async def kept_task(self, task_id: int) -> KeptTask | None: ...

    async def dependencies(self, child_ids: Collection[int]) -> list[tuple[int, int]]:
        """(parent, child) of everything that these tasks wait for, or have waited for."""

    async def set_dependencies(self, child_id: int, parents: Mapping[int, bool]) -> None:
        """The task waits for these and nothing else; each with whether it is done."""

    async def unfinished(
        self, plan_id: int, below: int | None, limit: int, *, ended: bool = False
    ) -> list[int]:
        """The plan's newest tasks that have not ended, of those with a number less than `below`.

        With `ended` also those that have, and are not archived.
        """

    async def worked_since(self, task_id: int) -> bool:
        """Whether an attempt of any task has begun since this one was added."""

    async def worked_after(self, wall_ms: int) -> bool:
        """Whether an attempt of any task was open then or later, or has left processes behind."""

    async def at_work(self, plan_id: int) -> int:
        """How many of its tasks an attempt holds, or has left processes behind of."""

    async def add_lane(self, lane: Lane) -> None: ...

    async def waiting(self) -> int:
        """How many tasks are PENDING."""

    async def idempotent(self, key: str) -> tuple[str, int] | None:
        """(hash of the body, task id) of an earlier task with this idempotency key."""

    async def add_idempotent(self, key: str, body_hash: str, task_id: int, at_ms: int) -> None: ...

    async def yielding_children(self, parent_id: int) -> list[int]:
        """Tasks that wait for this one and do not want to be blocked by its failure."""

    async def wishing(self, plan_id: int | None, command: str) -> list[int]:
        """Paused tasks of this plan whose agent has asked last whether it may do this."""

    async def add_dependency(self, parent_id: int, child_id: int, *, met: bool) -> None: ...

    async def settle_dependency(self, parent_id: int, child_id: int) -> bool:
        """Marks one dependency as met; False where it was already."""

    async def put_worker(self, worker: WorkerRow) -> None: ...

    async def logged(self, task_id: int, epoch: int, stream: str, offset: int) -> int:
        """Length of the output chunk that begins there, in bytes; 0 where there is none."""

    async def put_member(self, member: Member) -> None: ...

    async def drop_member(self, name: str) -> None: ...

    async def add_token(self, token: Token, token_hash: str) -> None: ...

    async def update_token(self, token: Token) -> None:
        """When it was revoked, and used last."""

    async def worker_elsewhere(self, worker_id: str) -> bool:
        """Whether another workspace has, or has had, a worker of this name."""

    async def set_meta(self, name: str, value: str) -> None: ...

    async def prune_events(self, to_id: int, at_ms: int, proof: str) -> int:
        """Makes the seal that ends with `to_id` a stub and drops its events."""

    async def settle_done_parents(self, child_id: int) -> int:
        """Marks dependencies on tasks that are done as met where they are not; how many there were."""

    async def unmet(self, task_id: int) -> int:
        """How many of its dependencies are marked as unmet."""

    async def add_seal(self, seal: Seal) -> None: ...


class Transaction(Protocol):
    """One write transaction: its parts by workspace, and what concerns no workspace alone."""

    def of(self, workspace_id: int) -> Tx: ...

    async def workspaces(self) -> list[int]: ...

    async def workspace_named(self, name: str) -> int | None: ...

    async def add_workspace(self, workspace: Workspace) -> None: ...

    async def store_meta(self, name: str) -> str | None: ...

    async def set_store_meta(self, name: str, value: str) -> None: ...

    async def workspace_of_tasks(self, ids: Collection[int]) -> dict[int, int]:
        """By number, of those that are there."""

    async def workspace_of_plan(self, plan_id: int) -> int | None: ...

    async def workspace_of_worker(self, worker_id: str) -> int | None: ...

    async def lanes(self) -> list[Lane]: ...

    async def prune_logs(self, before_ms: int, limit: int) -> int:
        """Drops the oldest output; how many chunks."""

    async def prune_checkpoints(self, before_ms: int, limit: int) -> int:
        """Drops checkpoints of tasks that ended before then."""

    async def prune_idempotency(self, before_ms: int, limit: int) -> int: ...

    async def prune_messages(self, before_ms: int, limit: int) -> int:
        """Drops what webhooks were told, or were to be, before then."""

    async def prune_beats(self, before_ms: int, limit: int) -> int:
        """Drops what agents said of themselves before then."""

    async def every_webhook(self) -> list[Webhook]: ...

    async def every_agent(self) -> list[AgentRow]: ...

    async def shift_waits(self, by_ms: int) -> None:
        """Retries and pins are due that much later (earlier where it is negative)."""

    async def bound_retries(self, wall_ms: int, longest_ms: int) -> None:
        """No failed attempt is tried again later than so long from then, or than its task itself wants."""

    async def last_id(self) -> int:
        """The highest id in use in any table that the engine numbers."""


class Reads(Common, HookReads, AgentReads, SecretReads, Protocol):
    """Queries on the last committed state: of one workspace, or of all for who looks after all."""

    def of(self, workspace_id: int) -> Reads: ...
    async def workspace_of(self, task_id: int) -> int | None: ...

    async def workspaces(self) -> list[Workspace]:
        """All of them, the oldest first."""

    async def token(self, token_hash: str) -> tuple[Token, Member | None] | None:
        """Of whichever workspace, with its member, who may be gone."""

    async def every_meta(self, name: str) -> list[tuple[int, str]]:
        """(workspace, value) of each that keeps something under this name."""

    async def open_attempts(self, after: tuple[int, int], limit: int) -> list[Attempt]:
        """Open attempts in (task id, epoch) order, beginning after the given pair."""

    async def lingering(self, limit: int) -> list[Attempt]:
        """Ended attempts whose processes may still be at work, of tasks that wait for that."""

    async def due(self, wall_ms: int, limit: int) -> list[int]:
        """Ids of tasks whose due time has come, the longest overdue first."""

    async def expired(self, wall_ms: int, limit: int) -> list[int]:
        """Ids of waiting tasks whose time is over."""

    async def stale_pins(self, wall_ms: int, limit: int) -> list[int]:
        """Ids of tasks whose pin was not taken in time."""

    async def overdue(self, wall_ms: int, limit: int) -> list[int]:
        """Ids of running tasks that a notice or a stop is due for, because they should be done."""

    async def any_ready(self) -> bool:
        """Whether a claim may find something: a ready task of a plan that is not paused."""

    async def next_ready(self, limit: int) -> list[int]:
        """The first `limit` ready tasks of plans that are not paused, in the order of claims."""

    async def attempt(self, task_id: int, epoch: int) -> Attempt | None: ...

    async def plans(self) -> list[PlanView]: ...

    async def plan_view(self, name: str) -> PlanView | None: ...

    async def paused_plans(self) -> list[PlanView]:
        """Those that give out no work, without their counts."""

    async def plan_sources(self) -> list[Plan]: ...

    async def boxes_named(self, plan_ids: Collection[int], names: Collection[str]) -> list[Namesake]:
        """Tasks of these plans whose boxes have one of these names, but for what is archived.

        Costs as much as names and plans are many, however many tasks there are.
        """

    async def completions(self, plan_id: int, after_event_id: int) -> list[tuple[int, str, bool]]:
        """(event, key, True) of each of the plan's tasks completed since `after_event_id`, oldest first; with
        False where one was opened anew.

        Costs as much as the plan is long.
        """

    async def completed_since(self, event_id: int) -> list[tuple[int, int, str, bool]]:
        """(event, plan, key, as in `completions`) of each task of any plan, oldest first.

        Costs as much as there are events since.
        """

    async def sync_states(self) -> list[tuple[str, SyncState]]:
        """Of the plans that have a file, by name."""

    async def last_event_id(self) -> int:
        """0 where nothing has happened yet."""

    async def event_counts(self, after_id: int, to_id: int) -> list[tuple[str, str | None, int]]:
        """(event, the error kind where a task has failed by it, how many) of those after the one and up to the
        other."""

    async def task_views(self, selection: TaskFilter) -> list[TaskView]: ...

    async def place(self, task_id: int) -> PlanPlace:
        """Of the task in its plan, without `plan_files`.  Neighbours are looked for among those that were added
        shortly before and after it."""

    async def efforts(self, plan_id: int, wall_ms: int) -> list[Effort]:
        """What each attempt at the plan's tasks has taken; those that run count until `wall_ms`."""

    async def find_number(self, number: int, plan: str | None) -> list[int]:
        """The task with this id; of a plan only where it has no key, which is then told by `plan/number`."""

    async def find_key(self, key: str, plan: str | None, *, start: bool) -> list[int]:
        """At most 10 tasks of the plan, or of any, whose key is this one, or starts with it; case counts."""

    async def newest_task(self, *, failed: bool) -> int | None:
        """The one that has changed last, of all or of those that are FAILED; of several the youngest."""

    async def refused(self, limit: int) -> list[int]:
        """COMPLETED tasks whose agent was not allowed all that it wanted to do, the newest first."""

    async def attempts(self, task_id: int) -> list[AttemptView]: ...

    async def events(self, *, after_id: int, task_id: int | None, limit: int) -> list[EventView]: ...

    async def audit_events(
        self,
        *,
        task_id: int | None,
        levels: Collection[str],
        since_ms: int,
        limit: int,
        subjects: Collection[str] = (),
    ) -> list[EventView]:
        """The newest events of these levels, oldest of them first, about any of these: `token 12`, `token`."""

    async def seals(self, after_id: int, limit: int) -> list[Seal]:
        """Seals whose last event is newer than `after_id`, in order."""

    async def numbered_events(self, after_id: int, to_id: int | None, limit: int) -> list[Numbered]: ...

    async def tail(self, after_id: int) -> tuple[int, int]:
        """(how many events after this one there are, how many there were).

        What nobody has sealed yet and is gone counts for everybody: it cannot say whose it was.
        """

    async def oldest_kept_seal(self) -> Seal | None:
        """The oldest one whose events were not pruned."""

    async def anything_old(self, logs_before_ms: int, keys_before_ms: int, beats_before_ms: int) -> bool:
        """Whether `Prune` would find something."""

    async def suspects(self, after_id: int, limit: int) -> tuple[int | None, list[int]]:
        """Of the next `limit` tasks in id order: (the last one's id, or None at the end; those whose row
        disagrees with its attempts or dependencies)."""

    async def old_done(self, after_id: int, limit: int, before_ms: int) -> tuple[int | None, list[int]]:
        """As `suspects`: those that were completed before that time, in plans where nothing is left to do."""

    async def event_spans(self, after_task_id: int, limit: int) -> list[EventSpan]:
        """What events there are of each task, in the order of their ids."""

    async def last_events(self, task_id: int, limit: int) -> list[EventView]:
        """The task's newest events, oldest of them first."""

    async def log(self, task_id: int, epoch: int, *, after: int, limit: int) -> list[tuple[int, LogChunk]]:
        """Chunks in the order in which they came, each with its place: read on with `after=place`."""

    async def log_tail(self, task_id: int, epoch: int, *, limit: int) -> list[tuple[int, LogChunk]]:
        """The last `limit` chunks, otherwise as `log`."""

    async def holds(self) -> list[tuple[str, str]]:
        """(worker, `plan/key#epoch`) of each open attempt, the oldest task first."""

    async def last_worker(self) -> WorkerRow | None:
        """The one that was heard last, also where it has ended."""

    async def checkpoint(self, task_id: int) -> Checkpoint | None: ...

    async def artifacts(self, task_id: int) -> list[Artifact]: ...

    async def texts(self, task_id: int) -> TaskTexts: ...

    async def blocks(self, task_id: int) -> list[str]:
        """Keys of the tasks that wait for this one, at most 100."""


class Store(Protocol):
    @property
    def reads(self) -> Reads: ...

    async def transact(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Runs `work` in one durable transaction: rolled back where it raises, synced before this returns (S6).

        Raises StoreHalted once a sync has failed (S17), StoreRewound once `halt` was called, StoreFull and
        Unavailable where nothing was written and a repetition may succeed.
        """

    def halt(self, reason: str) -> StoreFault:
        """The store was rewound (S2): nothing is written from now on, by any process; reads go on.

        Returns the error that whoever writes gets.
        """

    def close(self) -> None: ...
