"""What is asked of registered agents."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from muster.engine.queries import HELD_MAX, Queries
from muster.model.agents import AgentRow
from muster.model.errors import NotFound
from muster.model.rows import agent_views
from muster.model.states import HELD, AgentStatus, TaskStatus
from muster.model.views import AgentHealth, RegisteredAgent, TaskFilter, TaskView, WorkerView
from muster.ports.store import Reads

AGENT_TASKS_MAX = 1000
"""Of one agent, the newest."""


async def registered_agents(reads: Reads, queries: Queries, *, only: str = "") -> list[RegisteredAgent]:
    rows = [row for row in await reads.agents() if only in {"", row.name}]
    workers = (await queries.crew()).workers
    held = await reads.task_views(TaskFilter(statuses=tuple(HELD), limit=HELD_MAX))
    return [await _view(reads, row, [w for w in workers if row.name in w.agents], held) for row in rows]


async def registered_agent(reads: Reads, queries: Queries, name: str) -> RegisteredAgent:
    """Raises NotFound."""
    found = await registered_agents(reads, queries, only=name)
    if not found:
        raise NotFound(f"there is no agent {name[:200]!r}", "GET /api/v1/agents")
    return found[0]


async def _view(
    reads: Reads, row: AgentRow, hosts: Sequence[WorkerView], held: Sequence[TaskView]
) -> RegisteredAgent:
    mine = [one for one in held if one.agent == row.name]
    views = agent_views(hosts, mine, {row.name} if row.draining else ())
    known = next((view for view in views if view.name == row.name), None)
    seen = [worker.last_seen_at_ms for worker in hosts]
    if not seen and row.worker_id and (own := await reads.worker(row.worker_id)) is not None:
        seen = [own.last_seen_at_ms]
    return RegisteredAgent(
        id=row.name,
        name=row.label or row.name,
        status=known.status if known else AgentStatus.OFFLINE,
        model=row.model,
        capabilities=row.capabilities,
        profiles=row.profiles,
        max_concurrent_tasks=row.slots,
        heartbeat_interval_s=row.heartbeat_s,
        stale_threshold_s=row.stale_s,
        coordinator_enabled=row.coordinator_enabled,
        metadata=row.metadata,
        draining=row.draining if hosts else "",
        problem=known.problem if known else "",
        serves_itself=bool(row.worker_id),
        workers=known.workers if known else 0,
        holds=known.holds if known else (),
        registered_by=row.registered_by,
        registered_at_ms=row.registered_at_ms,
        last_seen_at_ms=max(seen, default=None),
    )


async def agent_health(reads: Reads, queries: Queries, name: str) -> AgentHealth:
    """Raises NotFound."""
    view = await registered_agent(reads, queries, name)
    beat = next(iter(await reads.beats(name, 1)), None) if view.serves_itself else None
    gone = view.status is AgentStatus.OFFLINE
    status = "stale" if gone else "error" if view.problem else beat.status if beat else "healthy"
    last_ms = view.last_seen_at_ms
    return AgentHealth(
        agent_id=name,
        status=status,
        problem=view.problem,
        last_seen_at_ms=last_ms,
        next_expected_at_ms=None if gone or last_ms is None else last_ms + view.heartbeat_interval_s * 1000,
        beat=beat,
    )


async def agent_tasks(
    reads: Reads, queries: Queries, name: str, statuses: tuple[TaskStatus, ...]
) -> list[TaskView]:
    """Raises NotFound."""
    await registered_agent(reads, queries, name)
    ids = await reads.tasks_of_agent(name, AGENT_TASKS_MAX)
    return await queries.tasks(replace(TaskFilter(statuses=statuses), ids=tuple(ids))) if ids else []
