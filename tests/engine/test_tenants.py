"""S13: what one workspace is answered is the same with and without another one's doings beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from engine_rig import FakeClock, FakeHost, FixedChance
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from asking import asked
from muster.engine.audit import Auditor
from muster.engine.batch import Batcher, drive
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.engine.queries import Queries
from muster.engine.registered import registered_agents
from muster.engine.services.reaper import Reaper
from muster.engine.services.scheduler import Scheduler
from muster.engine.services.sealer import Sealer
from muster.model import commands as c
from muster.model.edits import CancelPlan
from muster.model.errors import MusterError, NotFound
from muster.model.rows import DEFAULT_WORKSPACE, Workspace
from muster.model.seals import Signer
from muster.model.states import AgentStatus, CrewStatus, ErrorKind
from muster.model.views import TaskFilter
from muster.stores.sqlite.store import MEMORY, SqliteStore

ADA, BOB = DEFAULT_WORKSPACE, 2
SIGNER = Signer(b"k" * 32)
POLICY = Policy(lease_s=5, agent_slots={"claude": 2}, limits={"db": 1}, waiting_max=12)
STEP_S = 0.7
KEYS = ("a", "b", "d")


class Step(msgspec.Struct, frozen=True):
    who: int
    """A workspace; 0: the coordinator."""
    does: str
    task: int
    """Of all tasks that there were, whoever's they are."""
    word: int


class World:
    """Two workspaces in one store.  `alone`: what the second one would do is left out, and takes as long."""

    def __init__(self, *, alone: bool) -> None:
        self._alone = alone
        self.clock = FakeClock()
        self.store = SqliteStore.open(MEMORY)
        self.engine = Engine(self.store, FixedChance(), POLICY, SIGNER.grants())
        self.batcher = Batcher(self.engine, self.clock.now, lambda _: None, threaded=False)
        drive(self.store.transact(lambda tx: tx.add_workspace(Workspace(BOB, "bob", 0))))
        took: Any = self.do(ADA, c.NewBoot())
        reads, engine = self.store.reads, _Now(self)
        self._loops = [
            Reaper(
                self.clock,
                reads,
                engine,
                FakeHost([]),
                sweep=lambda: 0,
                term=took.term,
                lease_s=5,
                interval_s=STEP_S,
            ),
            Scheduler(self.clock, reads, engine, term=took.term, interval_s=STEP_S),
            Sealer(self.clock, reads, engine, SIGNER, term=took.term),
        ]
        self.tasks: list[int] = []
        self.held: dict[int, int] = {}
        """The newest epoch of each task that was claimed."""

    def close(self) -> None:
        self.store.close()

    def do(self, workspace_id: int | None, command: c.Command) -> Any:
        """The answer, or the error's code."""
        (outcome,) = drive(
            self.engine.apply(asked(command, workspace_id=workspace_id), self.clock.now())
        ).outcomes
        if isinstance(outcome, MusterError):
            return outcome.code
        return outcome

    def take(self, step: Step) -> object:
        self.clock.advance(STEP_S)
        if step.who == 0:
            for loop in self._loops:
                drive(loop.run_once())
            return None
        if step.who == BOB and self._alone:
            return None
        commands = COMMANDS[step.does](self, step)
        return [self._noted(self.do(step.who, command)) for command in commands]

    def _noted(self, answer: Any) -> object:
        self.tasks += [one for one in getattr(answer, "task_ids", ()) if one not in self.tasks]
        for job in getattr(answer, "jobs", ()):
            self.held[job.task_id] = job.epoch
        told = msgspec.to_builtins(answer)
        if isinstance(told, dict):
            for job in [*told.get("jobs", ()), *([told["job"]] if "job" in told else [])]:
                del job["proof"]  # of this store and no other
        return told

    def task(self, step: Step) -> int:
        return self.tasks[step.task % len(self.tasks)] if self.tasks else 1

    def epoch(self, step: Step) -> int:
        return self.held.get(self.task(step), 1)

    def seen_by(self, workspace_id: int) -> object:
        """All that it may ask."""
        reads = self.store.reads.of(workspace_id)
        queries = Queries(reads, self.clock, POLICY)
        events = drive(reads.events(after_id=0, task_id=None, limit=10_000))
        crew = msgspec.to_builtins(drive(queries.crew()))
        crew["lastEventId"] = [event.id for event in events].index(crew["lastEventId"]) if events else None
        report = asyncio.run(Auditor(reads, SIGNER, list, workspace_id).verify())
        assert report.whole
        plans = drive(queries.plans())
        return {
            "events": [msgspec.to_builtins(event) | {"id": number} for number, event in enumerate(events)],
            "crew": crew,
            "agents": msgspec.to_builtins(drive(registered_agents(reads, queries))),
            "audit": (report.seals, report.sealed, report.unsealed),
            "tasks": msgspec.to_builtins(drive(queries.tasks(TaskFilter(groups=True)))),
            "next": msgspec.to_builtins(drive(queries.next_ready(100))),
            "plans": msgspec.to_builtins(plans),
            "items": [msgspec.to_builtins(drive(queries.items(plan.name))) for plan in plans],
            "claims": msgspec.to_builtins(drive(queries.claims())),
            "pools": msgspec.to_builtins(drive(queries.pools())),
            "inbox": msgspec.to_builtins(drive(queries.inbox())),
            "touching": msgspec.to_builtins(drive(reads.touching())),
            "permissions": msgspec.to_builtins(drive(queries.permissions())),
            "limits": (drive(reads.open_by_agent()), drive(reads.open_by_limit())),
            "ready": drive(reads.any_ready()),
            "newest": [drive(reads.newest_task(failed=failed)) for failed in (False, True)],
            "found": [drive(reads.find_key(key, None, start=True)) for key in KEYS],
            "details": [self._detail(queries, task_id) for task_id in self.tasks],
        }

    def _detail(self, queries: Queries, task_id: int) -> object:
        try:
            found = msgspec.to_builtins(drive(queries.task(task_id)))
        except NotFound:
            return None
        for event in found["events"]:
            del event["id"]
        return found


class _Now:
    """The engine for the coordinator's loops, without a thread."""

    def __init__(self, world: World, workspace_id: int | None = None) -> None:
        self._world, self._workspace_id = world, workspace_id

    def of(self, workspace_id: int) -> _Now:
        return _Now(self._world, workspace_id)

    async def execute(self, command: c.Command) -> Any:
        (outcome,) = await self.execute_all([command])
        if isinstance(outcome, MusterError):
            raise outcome
        return outcome

    async def execute_all(self, commands: Sequence[c.Command]) -> list[Any]:
        world = self._world
        calls = asked(*commands, workspace_id=self._workspace_id)
        return (await world.engine.apply(calls, world.clock.now())).outcomes


def _worker(step: Step) -> str:
    """Some name the other's worker."""
    return f"worker-{'ab'[(step.who + (step.word == 7)) % 2] * 8}"


def _by(step: Step) -> dict[str, Any]:
    return {"actor": f"user{step.who}"}


def _enqueue(world: World, step: Step) -> list[c.Command]:
    key = KEYS[step.word % 3]
    after = (str(world.task(step)),) if step.word > 5 else ()
    spec = c.Spec(
        key=key,
        title=f"do {key}",
        timeout_s=60,
        max_retries=1,
        depends_on=after,
        idempotency_key=f"once-{step.word}" if step.word % 2 else None,
        limit_key="db" if step.word == 4 else None,
        touches="src/**" if step.word == 5 else "",
        parent_task_id=world.task(step) if step.word == 8 else None,
    )
    return [c.Enqueue(plan=f"plan{step.task % 2}", source=None, tasks=(spec,), **_by(step))]


def _of_task(shape: type[Any], **more: Any) -> Callable[[World, Step], list[c.Command]]:
    return lambda world, step: [shape(task_id=world.task(step), **_by(step), **more)]


def _of_attempt(shape: type[Any], **more: Any) -> Callable[[World, Step], list[c.Command]]:
    return lambda world, step: [shape(task_id=world.task(step), epoch=world.epoch(step), **more)]


def _register(_: World, step: Step) -> list[c.Command]:
    return [
        c.Register(
            # Names are drawn at random: two workspaces with one name of a worker are told in a test of their own.
            worker_id=_worker(replace(step, word=0)),
            hostname="elsewhere",
            pid=step.who,
            pid_start=1,
            boot_id="boot-a",
            slots=2,
            agents=("claude", "codex"),
            general=("claude", "codex"),
        )
    ]


def _claim(world: World, step: Step) -> list[c.Command]:
    request = f"{step.who}-{world.clock.now().wall_ms}"
    return [c.Claim(worker_id=_worker(step), request_id=request, slots=2)]


COMMANDS: dict[str, Callable[[World, Step], list[c.Command]]] = {
    "enqueue": _enqueue,
    "register": _register,
    "claim": _claim,
    "start": _of_attempt(c.Start, token_hash="t" * 64),
    "complete": _of_attempt(c.Complete),
    "crash": _of_attempt(c.Fail, kind=ErrorKind.CRASH, message="x"),
    "refused": _of_attempt(c.Fail, kind=ErrorKind.QUOTA, message="spent"),
    "progress": _of_attempt(c.Progress, percent=50, step="half"),
    "log": _of_attempt(c.AppendLog, stream="stdout", offset=0, data=b"said"),
    "save": _of_attempt(c.SaveCheckpoint, data=b"{}"),
    "pause": _of_task(c.Pause),
    "resume": _of_task(c.Resume),
    "cancel": _of_task(c.Cancel),
    "retry": _of_task(c.Retry),
    "skip": _of_task(c.Skip),
    "tick": _of_task(c.CompleteByPerson),
    "archive": _of_task(c.Archive),
    "take": _of_task(c.Take, token_hash="t" * 64),
    "depend": lambda world, step: (
        [
            c.Depend(
                task_id=world.task(step), depends_on=(world.tasks[step.word % len(world.tasks)],), **_by(step)
            )
        ]
        if world.tasks
        else []
    ),
    "beat": lambda world, step: [
        c.Heartbeat(worker_id=_worker(step), attempts=((world.task(step), world.epoch(step)),))
    ],
    "drain": lambda _, step: [c.DrainWorker(worker_id=_worker(step), **_by(step))],
    "leave": lambda _, step: [c.Deregister(worker_id=_worker(step))],
    "put agent": lambda _, step: [
        c.PutAgent(agent="prog", slots=2, worker_id=f"agent-{step.who}{step.word % 2}", **_by(step))
    ],
    "beat agent": lambda world, step: [c.BeatAgent(agent="prog", task_id=world.task(step))],
    "drain agent": lambda _, step: [
        c.MoveAgent(agent=("prog", "claude")[step.word % 2], to=list(AgentStatus)[step.word % 5], **_by(step))
    ],
    "pause plan": lambda _, step: [c.PausePlan(plan=f"plan{step.word % 2}", **_by(step))],
    "resume plan": lambda _, step: [c.ResumePlan(plan=f"plan{step.word % 2}", **_by(step))],
    "cancel plan": lambda _, step: [CancelPlan(plan=f"plan{step.word % 2}", reason="", **_by(step))],
    "crew": lambda _, step: [c.SetCrew(status=CrewStatus.PAUSED if step.word % 2 else CrewStatus.RUNNING)],
    "budget": lambda _, step: [c.SetBudget(plan=f"plan{step.word % 2}", microusd=5_000_000, **_by(step))],
    "open": lambda _, step: [c.OpenPool(pool=("claude", "codex")[step.word % 2], **_by(step))],
}

steps = st.builds(
    Step,
    who=st.sampled_from([ADA, ADA, BOB, BOB, BOB, 0]),
    does=st.one_of(st.sampled_from(["enqueue", "register", "claim", "start"]), st.sampled_from([*COMMANDS])),
    task=st.integers(0, 9),
    word=st.integers(0, 8),
)


@pytest.mark.promise("S13")
@settings(max_examples=150, deadline=None)
@given(story=st.lists(steps, min_size=5, max_size=40))
def test_what_another_workspace_does_changes_no_answer(story: list[Step]) -> None:
    both, alone = World(alone=False), World(alone=True)
    try:
        # Both know the same numbers of tasks: Bob's own are of nobody where he is not there.
        for step in story:
            answers = [alone.take(step), both.take(step)]
            alone.tasks[:] = both.tasks
            alone.held |= both.held
            if step.who == ADA:
                assert answers[0] == answers[1]
        assert both.seen_by(ADA) == alone.seen_by(ADA)
        assert not set(_ids(both, ADA)) & set(_ids(both, BOB))
    finally:
        both.close()
        alone.close()


def _ids(world: World, workspace_id: int) -> list[int]:
    return [view.id for view in drive(world.store.reads.of(workspace_id).task_views(TaskFilter(groups=True)))]


@pytest.mark.promise("S13")
def test_a_worker_takes_no_name_of_another_workspaces_worker() -> None:
    world = World(alone=False)
    step = Step(ADA, "register", 0, 0)
    world.take(step)
    (command,) = _register(world, step)
    before = world.seen_by(ADA)
    assert world.do(BOB, command) == "conflict"
    assert world.do(BOB, c.Deregister(worker_id=_worker(step))) is not None
    assert world.seen_by(ADA) == before
    world.close()


@pytest.mark.promise("S13")
def test_the_proof_of_anothers_attempt_does_not_halt_the_store() -> None:
    """To who cannot see the task it looks like one that this store has lost."""
    world = World(alone=False)
    for does in ("enqueue", "register"):
        world.take(Step(ADA, does, 0, 0))
    (claim,) = _claim(world, Step(ADA, "claim", 0, 0))
    (job,) = world.do(ADA, claim).jobs
    assert job.proof
    renewed = c.Heartbeat(worker_id=_worker(Step(BOB, "", 0, 0)), attempts=((job.task_id, job.epoch),))
    assert not world.do(BOB, replace(renewed, proofs=(job.proof,))).attempts[0].current
    said = c.Complete(task_id=job.task_id, epoch=job.epoch, proof=job.proof)
    assert world.do(BOB, said) == "not_found"
    assert world.do(ADA, said).status == "COMPLETED"
    assert world.store.halted is None
    world.close()
