"""An engine over real SQLite with a clock and a chance that the test owns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from asking import asked
from muster.engine.batch import drive
from muster.engine.commands import Applied, Engine
from muster.engine.policy import Policy
from muster.engine.queries import Queries
from muster.model import commands as c
from muster.model.answers import Answer, Claimed, ClaimedJob, Enqueued, TookOver
from muster.model.errors import MusterError
from muster.model.events import Event, Level, fold
from muster.model.retry import RetryPolicy
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.states import HELD, ErrorKind, TaskStatus
from muster.model.task import Attempt, Now, Task
from muster.model.views import EventView, TaskFilter, TaskView
from muster.ports.host import ProcessId
from muster.stores.sqlite.history import read_rows
from muster.stores.sqlite.store import MEMORY, SqliteStore
from muster.testing.promises import History

T = TypeVar("T")

LEASE_S = 15.0
TICK_S = 0.5
"""How often the services of a test look."""
TOKEN = "a" * 64
W1, W2 = "worker-aaaaaaaa", "worker-bbbbbbbb"
HOST = "here"


class FakeClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.present = Now(1_800_000_000_000, 50_000, "boot-a")

    def now(self) -> Now:
        return self.present

    def utc_offset_s(self, at_ms: int) -> int:
        return 3600

    def advance(self, seconds: float) -> None:
        ms = round(seconds * 1000)
        self.present = replace(
            self.present, wall_ms=self.present.wall_ms + ms, mono_ms=self.present.mono_ms + ms
        )

    def restart(self) -> None:
        self.present = replace(self.present, mono_ms=1_000, boot_id=self.present.boot_id + "'")

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


class FixedChance:
    def fraction(self) -> float:
        return 0.5

    def name(self, length: int) -> str:
        return "x" * length


class FakeHost:
    """Processes as the test says; `log` keeps the order of kills among commands."""

    hostname = HOST
    boot_id = "boot-a"

    def __init__(self, log: list[Any]) -> None:
        self.log = log
        self.dead: set[int] = set()

    def identify(self, pid: int) -> ProcessId | None:
        return ProcessId(pid, 1)

    def alive(self, process: ProcessId) -> bool:
        return process.pid not in self.dead

    def marked(self, marks: Iterable[str]) -> dict[str, list[ProcessId]]:
        return {mark: [] for mark in marks}

    def kill_marked(self, marks: Iterable[str]) -> int:
        self.log.append(("kill", *marks))
        return 1


class Rig:
    """Commands in, outcomes out; `log` names every command that came through `execute`."""

    def __init__(self, policy: Policy | None = None, path: Path = MEMORY) -> None:
        self.clock = FakeClock()
        self.path = path
        self.policy = policy or Policy(lease_s=LEASE_S)
        self.log: list[Any] = []
        self.requests = 0
        self._open()

    def _open(self) -> None:
        self.store = self._open_store()
        self.engine = Engine(self.store, FixedChance(), self.policy)
        self.reads = self.store.reads.of(DEFAULT_WORKSPACE)
        self.queries = Queries(self.reads, self.clock, self.policy)

    def _open_store(self) -> Any:
        return SqliteStore.open(self.path)

    def reopen(self) -> None:
        """Another owner: nothing but the file is left of the last one."""
        self.store.close()
        self._open()

    def pass_s(self, seconds: float, tick: Callable[[], list[T]]) -> list[T]:
        """Lets time pass, tick by tick; returns what the ticks have."""
        done = []
        for _ in range(round(seconds / TICK_S)):
            self.clock.advance(TICK_S)
            done += tick()
        return done

    # -- commands

    def apply(self, *commands: c.Command) -> Applied:
        """One batch."""
        return drive(self.engine.apply(asked(*commands), self.clock.now()))

    def batch(self, *commands: c.Command) -> list[str]:
        """One batch: each command's code where it was refused, else the class of its answer."""
        return [
            getattr(outcome, "code", type(outcome).__name__) for outcome in self.apply(*commands).outcomes
        ]

    def do(self, command: c.Command) -> Any:
        (outcome,) = self.apply(command).outcomes
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def of(self, workspace_id: int) -> Rig:
        """As ports.engine.ExecuteForAll: here there is one."""
        assert workspace_id == DEFAULT_WORKSPACE
        return self

    async def execute(self, command: c.Command) -> Answer:
        self.log.append(command)
        answer: Answer = self.do(command)
        return answer

    async def execute_all(self, commands: Sequence[c.Command]) -> list[Answer | MusterError]:
        found: list[Answer | MusterError] = []
        for command in commands:
            try:
                found.append(await self.execute(command))
            except MusterError as error:
                found.append(error)
        return found

    def enqueue(self, tasks: Mapping[str, Collection[str]], **fields: Any) -> Enqueued:
        answer: Enqueued = self.do(enqueue(tasks, **fields))
        return answer

    def register(self, worker_id: str = W1, **fields: Any) -> None:
        plain: dict[str, Any] = {
            "hostname": HOST,
            "pid": 100 if worker_id == W1 else 200,
            "pid_start": 1,
            "boot_id": self.clock.present.boot_id,
            "agents": ("claude",),
            "general": ("claude",),
            "slots": 10,
        }
        self.do(c.Register(worker_id=worker_id, **(plain | fields)))

    def claim_command(self, worker_id: str = W1, slots: int = 10, **fields: Any) -> c.Claim:
        self.requests += 1
        return c.Claim(worker_id=worker_id, slots=slots, **({"request_id": f"r{self.requests}"} | fields))

    def claim(self, worker_id: str = W1, slots: int = 10, **fields: Any) -> tuple[ClaimedJob, ...]:
        answer: Claimed = self.do(self.claim_command(worker_id, slots, **fields))
        return answer.jobs

    def start(self, *jobs: ClaimedJob) -> None:
        for job in jobs:
            self.do(c.Start(task_id=job.task_id, epoch=job.epoch, token_hash=TOKEN))

    def started(self, worker_id: str = W1, slots: int = 10) -> tuple[ClaimedJob, ...]:
        jobs = self.claim(worker_id, slots)
        self.start(*jobs)
        return jobs

    def beat(self, worker_id: str, *jobs: ClaimedJob) -> Any:
        pairs = tuple((job.task_id, job.epoch) for job in jobs)
        return self.do(c.Heartbeat(worker_id=worker_id, attempts=pairs))

    def new_boot(self) -> TookOver:
        answer: TookOver = self.do(c.NewBoot())
        return answer

    # -- what is there

    def id(self, key: str) -> int:
        task_id, _ = drive(self.queries.resolve(key))
        return task_id

    def task(self, key: str | int) -> Task:
        task_id = key if isinstance(key, int) else self.id(key)

        async def work(tx: Any) -> list[Task]:
            return await tx.of(DEFAULT_WORKSPACE).tasks([task_id])

        (found,) = drive(self.store.transact(work))
        return found

    def attempt(self, job: ClaimedJob) -> Attempt:
        found = drive(self.reads.attempt(job.task_id, job.epoch))
        assert found is not None
        return found

    def views(self) -> dict[str, TaskView]:
        return {view.key: view for view in drive(self.queries.tasks(TaskFilter(groups=True)))}

    def statuses(self) -> dict[str, str]:
        return {key: str(view.status) for key, view in self.views().items()}

    def events(self, key: str | None = None) -> list[EventView]:
        task_id = self.id(key) if key is not None else None
        return drive(self.reads.events(after_id=0, task_id=task_id, limit=100_000))

    def names(self, key: str) -> list[str]:
        return [event.event for event in self.events(key)]

    def history(self) -> History:
        """All rows, by plain SQL."""
        return history_of(self.store)

    def sql(self, statement: str) -> list[Any]:
        """The rows of one statement, past the port."""
        if hasattr(self.store, "sql"):
            found: list[Any] = self.store.sql(statement)
            return found
        return list(self.store._writer.execute(statement))

    def audit(self) -> None:
        """What holds after every test: events fold to rows (S7), nothing waits in limbo (L3)."""
        by_task: dict[int, list[Event]] = {}
        for view in self.events():
            by_task.setdefault(view.task_id, []).append(event_of(view))
        held = {(a.task_id, a.epoch) for a in drive(self.reads.open_attempts((0, 0), 100_000))}
        for view in drive(self.reads.task_views(TaskFilter(groups=True, limit=100_000))):
            task, state = self.task(view.id), fold(by_task[view.id])
            assert (task.status, task.generation, task.epoch, task.event_seq) == (
                state.status,
                state.generation,
                state.epoch,
                state.seq,
            )
            assert ((task.id, task.epoch) in held) == (task.status in HELD)
            assert len(view.waits_for) == min(3, task.unmet), "a dependency is counted that is not there"
            waits = task.unmet or task.next_attempt_at_ms is not None or task.status is TaskStatus.PAUSED
            waits = waits or task.is_group  # for the first task below it
            assert task.final or task.status in HELD or task.ready or waits or task.lingering_epoch


@contextmanager
def audited() -> Iterator[Rig]:
    """A rig that is audited in the end."""
    made = Rig()
    yield made
    made.audit()
    made.store.close()


def history_of(store: Any) -> History:
    rows = store.history() if hasattr(store, "history") else read_rows(store._reader)
    return History(**rows._asdict())


def event_of(view: EventView) -> Event:
    fields = {name: getattr(view, name) for name in Event.__struct_fields__ if name != "details"}
    return Event(**fields | {"details": "{}", "level": Level(view.level)})


def enqueue(tasks: Mapping[str, Collection[str]], plan: str = "api", **fields: Any) -> c.Enqueue:
    """A plan of `{key: keys that it waits for}`; `specs={key: {field: value}}` changes single tasks."""
    changes: Mapping[str, Any] = fields.pop("specs", {})
    specs = tuple(
        c.Spec(**({"title": key, "key": key, "depends_on": tuple(after)} | changes.get(key, {})))
        for key, after in tasks.items()
    )
    return c.Enqueue(plan=plan, source=fields.pop("source", None), tasks=specs, actor="ada", **fields)


def complete(job: ClaimedJob, result: str = "1") -> c.Complete:
    return c.Complete(task_id=job.task_id, epoch=job.epoch, result=result)


def fail(job: ClaimedJob, kind: ErrorKind = ErrorKind.CRASH, **more: Any) -> c.Fail:
    return c.Fail(task_id=job.task_id, epoch=job.epoch, kind=kind, message="no", **more)


def release(job: ClaimedJob, **more: Any) -> c.Release:
    return c.Release(task_id=job.task_id, epoch=job.epoch, reason="drain", **more)


def reap(job: ClaimedJob, term: int, *, proven: bool = True) -> c.Reap:
    return c.Reap(task_id=job.task_id, epoch=job.epoch, term=term, reason="gone", proven=proven)


def cancel(task_id: int) -> c.Cancel:
    return c.Cancel(task_id=task_id, actor="ada")


PATIENT = Policy(lease_s=LEASE_S, retry=RetryPolicy(losses_max=10**6))
