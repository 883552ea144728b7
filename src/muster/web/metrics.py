"""What Prometheus reads: `/metrics`.  docs/metrics.md has a row for each name."""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from muster import __version__
from muster.engine.cycles import Cycles
from muster.model.retry import SPENDS, Spend
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.states import CrewStatus, ErrorKind, TaskStatus, WorkerStatus
from muster.web.backend import Backend
from muster.web.coordinator import agents_of, problem_of
from muster.web.event_counts import EventCounts
from muster.web.exposition import (
    MEDIA_TYPE,
    Metric,
    Sample,
    by_label,
    counter,
    exposed,
    gauge,
)
from muster.web.http import Reply
from muster.web.routes import Routes

routes = Routes()

STARTED = "started"
"""The event of an attempt whose process has begun."""


@routes.get("/metrics", answer=MEDIA_TYPE)
async def metrics(web: Backend) -> Reply:
    """How the workspace is, for Prometheus; where it is that of the server's folder also the process itself."""
    await web.counts.look(web.reads, web.owner.first_event_id)
    found = [*await _of_workspace(web), *_events(web.counts)]
    if web.workspace_id == DEFAULT_WORKSPACE:
        found += _of_process(web)
    return Reply(200, exposed(found), MEDIA_TYPE)


async def _of_workspace(web: Backend) -> list[Metric]:
    crew = await web.queries.crew()
    claims = await web.queries.claims()
    tasks = dict.fromkeys(map(str, TaskStatus), 0)
    for plan in await web.queries.plans():
        for status, number in plan.counts.items():
            tasks[status] += number
    workers = Counter(worker.status for worker in crew.workers)
    healthy, stale = agents_of(crew.workers)
    return [
        by_label("gauge", "muster_tasks", "Tasks by status.", "status", tasks),
        by_label(
            "gauge",
            "muster_workers",
            "Living workers by status.",
            "status",
            {state: workers[state] for state in WorkerStatus if state is not WorkerStatus.DEAD},
        ),
        gauge("muster_agents_healthy", "Agents that some worker can run.", len(healthy)),
        gauge("muster_agents_stale", "Agents that a worker should run, and none can.", len(stale)),
        gauge("muster_attempts_open", "Attempts that hold a task.", len(claims)),
        gauge(
            "muster_leases_expired",
            "Open attempts whose lease is over and whose task is not free yet.",
            sum(claim.expired for claim in claims),
        ),
        by_label(
            "gauge",
            "muster_crew",
            "1 for the status that the crew has.",
            "status",
            {state: int(state == crew.crew) for state in CrewStatus},
        ),
        gauge(
            "muster_providers_closed",
            "Providers that take no requests for now.",
            len(await web.queries.pools()),
        ),
    ]


def _events(counts: EventCounts) -> list[Metric]:
    failed = counts.failed
    spent = sum(failed[kind] for kind in ErrorKind if SPENDS.get(kind) in {Spend.RETRY, Spend.LOSS})
    return [
        by_label(
            "counter",
            "muster_task_events_total",
            "Events of the audit since the owner began.",
            "event",
            dict(sorted(counts.by_event.items())),
        ),
        counter(
            "muster_attempts_started_total",
            "Agents that were started since the owner began.",
            counts.by_event[STARTED],
        ),
        by_label(
            "counter",
            "muster_tasks_failed_total",
            "Tasks that ended as FAILED since the owner began, by the kind of the error.",
            "kind",
            dict(sorted(failed.items())),
        ),
        counter(
            "muster_tasks_retries_exhausted_total",
            "Those of them that had no retry, or no loss, left.",
            spent,
        ),
    ]


def _of_process(web: Backend) -> Iterator[Metric]:
    owner = web.owner
    build = (Sample(1, {"version": __version__}),)
    yield Metric("muster_build_info", "gauge", "The version that runs.", build)
    healthy = not problem_of(web)
    yield gauge("muster_coordinator_healthy", "1 where the coordinator does its work.", int(healthy))
    yield gauge("muster_coordinator_term", "Its term; 0 where it does not lead.", owner.term)
    yield from _cycles(owner.cycles)
    yield gauge(
        "muster_store_halted", "1 where nothing is written any more.", int(owner.halted() is not None)
    )
    yield counter(
        "muster_store_absences_total",
        "Transactions that the store refused, or kept everybody waiting with.",
        owner.absences,
    )
    yield counter(
        "muster_runtime_failures_total",
        "How often Valkey could not be reached; work goes on without.",
        owner.runtime.failures,
    )
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield counter("process_cpu_seconds_total", "CPU time of the owner.", used.ru_utime + used.ru_stime)
    yield gauge(
        "process_start_time_seconds", "When the owner began, in Unix time.", owner.started_at_ms / 1000
    )
    if (resident := _resident_bytes()) is not None:
        yield gauge("process_resident_memory_bytes", "Memory of the owner.", resident)


def _cycles(known: Mapping[str, Cycles]) -> Iterator[Metric]:
    name = "muster_coordinator_cycle_duration_seconds"
    durations: list[Sample] = []
    for service, cycles in known.items():
        of = {"service": service}
        for bound, within in zip(cycles.BOUNDS_S, cycles.within, strict=True):
            durations.append(Sample(within, {**of, "le": repr(bound)}, "_bucket"))
        durations.append(Sample(cycles.count, {**of, "le": "+Inf"}, "_bucket"))
        durations += [Sample(cycles.spent_s, of, "_sum"), Sample(cycles.count, of, "_count")]
    yield Metric(name, "histogram", "Rounds of the coordinator's loops.", tuple(durations))
    yield by_label(
        "counter",
        "muster_coordinator_cycle_failures_total",
        "Rounds that something kept from their work.",
        "service",
        {service: cycles.failed for service, cycles in known.items()},
    )
    yield by_label(
        "gauge",
        "muster_coordinator_last_cycle_timestamp_seconds",
        "When the last round ended, in Unix time.",
        "service",
        {service: (cycles.ended_at_ms or 0) / 1000 for service, cycles in known.items()},
    )


def _resident_bytes() -> int | None:
    """None where the system has no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")
