"""Who coordinates the crew, how it is, and what it mends: `/api/v1/coordinator`, `/health/coordinator`."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from muster.engine.services.reaper import Reaper
from muster.model import commands as c
from muster.model.answers import Answer, Done, Reconciled
from muster.model.kinds import moment_text
from muster.model.runs import DIED, RUNS, RUNS_MAX, CrewRun, NoteRun, runs_of
from muster.model.states import HELD, CrewStatus, TaskStatus, WorkerStatus
from muster.model.views import StatusView, WorkerView
from muster.ports.runtime import RuntimeState
from muster.web.access import known_workspaces, workspace_meant
from muster.web.backend import Backend
from muster.web.event_counts import EventCounts
from muster.web.http import ActorBody, Query, Reply, Request, json_reply
from muster.web.routes import Routes

routes = Routes()

LATE_S = 30.0
"""A coordinator that has not looked for so long does not do its work."""


class Coordinator(Struct, frozen=True, kw_only=True, rename="camel"):
    status: CrewStatus
    active: bool
    """Somebody stays: False where the owner lives for one command only."""
    pid: int
    started_at_ms: int
    term: int
    leader: str
    """Which other server of the same store leads; empty: this one does, or nobody."""
    differs: tuple[str, ...]
    """Settings of this server that are not those of the one that leads."""
    wrong_clocks: dict[str, int]
    """Servers of the store whose hosts' clocks are wrong, and by how many milliseconds each is ahead of the
    database's."""
    last_reconcile_at_ms: int | None
    """When the coordinator last looked at all workers and leases."""
    workers: dict[str, int]
    """By status."""
    claims: dict[str, int]
    """`active` and `expired` leases."""
    pending_tasks: int
    running_tasks: int
    healthy_agents: int
    stale_agents: int
    """Agents that some worker should run and cannot."""
    problem: str
    """Why it does not do its work; empty: it does."""
    instance_id: str
    """Another one with each owner and term."""
    workspaces: tuple[str, ...]
    """That it looks after, as far as the asker may know of them."""
    last_heartbeat: str | None
    """As `lastReconcileAtMs`, in UTC."""
    stats: CrewStats
    """The same figures together."""


class CrewStats(Struct, frozen=True, kw_only=True, rename="camel"):
    pending_tasks: int
    running_tasks: int
    healthy_agents: int
    stale_agents: int


class RecoverBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    workspace_id: str | int | None = None
    """Its number or name; None: all that the asker looks after."""
    actor: str = ""


class Cycle(Struct, frozen=True, kw_only=True, rename="camel"):
    active: bool
    """It does its work."""
    last_cycle: str | None
    """When it looked at all workers and leases last, in UTC."""
    cycle_count: int


class CoordinatorHealth(Struct, frozen=True, kw_only=True, rename="camel"):
    status: str
    """`healthy` or `unhealthy`."""
    problem: str
    coordinator: Cycle
    database: str
    """`connected`, or the code of the error that keeps everybody from writing."""
    valkey: RuntimeState
    """`away` slows things down and is no illness; `unused`: the store alone coordinates."""
    gateway: str
    """What starts agents: `reachable` where a worker lives, else `no worker`."""


@routes.get("/api/v1/coordinator/status")
async def status(web: Backend, request: Request) -> Coordinator:
    """Who coordinates, and how the crew is."""
    found = await web.queries.status()
    claims = await web.queries.claims()
    expired = sum(claim.expired for claim in claims)
    fit, stale = agents_of(found.workers)
    looked_ms = web.owner.looked_at_ms
    stats = CrewStats(
        pending_tasks=_count(found, {TaskStatus.PENDING, TaskStatus.ABORTED}),
        running_tasks=_count(found, HELD),
        healthy_agents=len(fit),
        stale_agents=len(stale),
    )
    return Coordinator(
        status=CrewStatus(found.crew) if web.owner.long_lived else CrewStatus.STOPPED,
        active=web.owner.long_lived,
        pid=os.getpid(),
        started_at_ms=web.owner.started_at_ms,
        term=web.owner.term,
        leader=web.owner.leader,
        differs=web.owner.differs,
        wrong_clocks=dict(web.clock.servers),
        last_reconcile_at_ms=web.owner.looked_at_ms,
        workers={
            str(state): count
            for state in WorkerStatus
            if (count := sum(worker.status == state for worker in found.workers))
        },
        claims={"active": len(claims) - expired, "expired": expired},
        **asdict(stats),
        problem=problem_of(web),
        instance_id=f"coord-{web.owner.term}-{os.getpid()}",
        workspaces=tuple(one.name for one in await known_workspaces(web, request)),
        last_heartbeat=None if looked_ms is None else moment_text(looked_ms),
        stats=stats,
    )


@routes.get("/health/coordinator", answer={200: CoordinatorHealth, 503: CoordinatorHealth})
async def health(web: Backend) -> Reply:
    """Whether the coordinator does its work: 503 where it does not."""
    problem, fault = problem_of(web), web.owner.unwritable()
    cycles = web.owner.cycles.get(Reaper.name)
    looked_ms = cycles.ended_at_ms if cycles else None
    found = CoordinatorHealth(
        status="unhealthy" if problem else "healthy",
        problem=problem,
        coordinator=Cycle(
            active=not problem,
            last_cycle=None if looked_ms is None else moment_text(looked_ms),
            cycle_count=cycles.count if cycles else 0,
        ),
        database="connected" if fault is None else fault.code,
        valkey=web.owner.runtime.state,
        gateway="reachable" if await web.reads.living_workers() else "no worker",
    )
    return json_reply(found, 503 if problem else 200)


def problem_of(web: Backend) -> str:
    """Why the coordinator does not do its work; empty where it does."""
    if not web.owner.long_lived:
        return "no crew is up"
    if web.closing.is_set():
        return "it is ending"
    if (fault := web.owner.unwritable()) is not None:
        return fault.message
    if web.owner.leader:
        return ""
    cycles = web.owner.cycles.get(Reaper.name)
    looked_ms = cycles.ended_at_ms if cycles is not None else None
    late_s = time.time() - (looked_ms or web.owner.started_at_ms) / 1000
    return f"it has not looked at workers and leases for {late_s:.0f} s" if late_s > LATE_S else ""


def agents_of(workers: Collection[WorkerView]) -> tuple[set[str], set[str]]:
    """(those that some worker can run, those that some should and none can)."""
    offered = {name for worker in workers for name in worker.agents}
    fit = {name for worker in workers for name in worker.agents if name not in worker.unfit}
    return fit, offered - fit


def _count(found: StatusView, wanted: frozenset[TaskStatus] | set[TaskStatus]) -> int:
    return sum(plan.counts.get(state, 0) for plan in found.plans for state in wanted)


@routes.post("/api/v1/coordinator/reconcile")
async def reconcile(web: Backend) -> Reconciled:
    """Looks for what disagrees with the facts, and mends it."""
    return await web.owner.reconcile()


@routes.post("/api/v1/coordinator/recover")
async def recover(web: Backend, request: Request, body: RecoverBody) -> Reconciled:
    """The same for a workspace or for all, which are looked through together."""
    if body.workspace_id is not None:
        await workspace_meant(web, request, str(body.workspace_id))
    return await web.owner.reconcile()


class RunsQuery(Query, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=RUNS_MAX)] = 20


class RunBody(ActorBody, frozen=True, kw_only=True):
    run: c.Name
    how: Literal["", "drained", "stopped", "killed", "failed"] = ""


@routes.get("/api/v1/coordinator/runs")
async def runs(web: Backend, query: RunsQuery) -> Sequence[CrewRun]:
    """When the crew was up, and what it has completed, the newest first."""
    found = runs_of(await web.reads.meta(RUNS))[-query.limit :]
    if found and not found[-1].how:
        completed, failed = await _counted(web, found[-1])
        found[-1] = replace(found[-1], completed=completed, failed=failed)
        if web.owner.unattended:  # whoever begins next writes that down
            ended_ms = max(found[-1].started_at_ms, web.owner.left_off_ms)
            found[-1] = replace(found[-1], how=DIED, ended_at_ms=ended_ms)
    return found[::-1]


@routes.post("/api/v1/coordinator/runs", answer=Done)
async def note_run(web: Backend, body: RunBody) -> Answer:
    """Whoever starts a crew says that it begins, and how it has ended."""
    return await tell_run(web, body)


async def tell_run(web: Backend, body: RunBody, *, term: int | None = None) -> Answer:
    """`term`: as NoteRun has it."""
    before = runs_of(await web.reads.meta(RUNS))
    last_id = await web.reads.last_event_id()
    completed, failed = await _counted(web, before[-1]) if before and not before[-1].how else (0, 0)
    newest = await web.reads.events(after_id=max(0, last_id - 1), task_id=None, limit=1)
    last_ms = newest[0].at_ms if newest else 0
    if before and before[-1].started_at_ms < web.owner.started_at_ms:
        # What is newer is of who has opened the store.
        last_ms = web.owner.left_off_ms
    noted = NoteRun(
        run=body.run,
        actor=body.actor,
        how=body.how,
        after_event_id=last_id,
        last_at_ms=last_ms,
        completed=completed,
        failed=failed,
        term=term,
    )
    return await web.engine.execute(noted)


async def _counted(web: Backend, run: CrewRun) -> tuple[int, int]:
    """Tasks that were completed, and that have failed, since it began."""
    counts = EventCounts()
    await counts.look(web.reads, run.after_event_id)
    return counts.by_event["completed"], counts.failed.total()
