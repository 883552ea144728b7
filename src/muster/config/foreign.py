"""What the settings of other orchestrators are called here, and where Muster differs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from textwrap import dedent
from typing import NamedTuple

from muster.model.durations import duration_text

POOL, CLUSTER, PLANNER = "worker pool (JSON)", "agent cluster (YAML)", "plan orchestrator (JSON)"
_SPAN = re.compile(r"(?:(\d{1,4})\.)?(\d{1,2}):(\d{2}):(\d{2})")


class Setting(NamedTuple):
    kind: str
    """Which kind of file has it."""
    source: str
    """Its dotted key there; `*` stands for any name."""
    target: str = ""
    """Ours; empty where there is none."""
    read: Callable[[object], str] | None = None
    """Its value as TOML.  Raises ValueError with what would fit."""
    note: str = ""
    """What differs."""
    aside: bool = False
    """Written as a comment: Muster's own default serves the purpose better."""


def _number(value: object, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"a whole number from {least} to {most}")
    return value


def _count(value: object) -> str:
    return str(_number(value, 1, 1_000_000))


def _count_or_zero(value: object) -> str:
    return str(_number(value, 0, 1_000_000))


def _one_less(value: object) -> str:
    return str(_number(value, 1, 1_000_000) - 1)


def _duration(unit_s: float) -> Callable[[object], str]:
    def read(value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 10**6:
            raise ValueError("a number above 0")
        return f'"{duration_text(value * unit_s)}"'

    return read


def _span(value: object) -> str:
    """`[days.]hh:mm:ss`; unquoted YAML makes a number of seconds of it."""
    match = _SPAN.fullmatch(value) if isinstance(value, str) else None
    if match:
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        value = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ValueError('a time like "00:01:30"')
    return f'"{duration_text(value)}"'


_READERS: Mapping[str, Callable[[object], str]] = {
    "count": _count,
    "count_or_zero": _count_or_zero,
    "one_less": _one_less,
    "seconds": _duration(1),
    "minutes": _duration(60),
    "span": _span,
}
_TABLES = {
    POOL: """
        workerPoolSize = workers.count count
        heartbeatIntervalSeconds = health.heartbeat seconds
            a worker whose process is gone is dead at once; a silent one after its lease, not after a number of
            missed heartbeats: `health.lease` is 15 s or three heartbeats, whichever is longer
        leaseDurationMinutes = health.claim_lease minutes
            the lease of tasks that are taken by hand; workers have the short `health.lease`, which they renew
        reconcileIntervalSeconds = (health.sweep) seconds
            the usual 500ms costs next to nothing, and a longer one makes every recovery later
        shutdownTimeoutSeconds = workers.drain seconds
            heartbeats go on until the last task has ended
        maxClaimRenewals = - count
            renewals have no number: `task.timeout` bounds the whole attempt
        name = -
            workers have random names, so that none is mistaken for one that died
        capabilities = -
            kinds of task that an agent is good at: `profiles` of its [agents.NAME]
    """,
    CLUSTER: """
        agent_cluster.name = -
            a crew is what is up in one project's folder; it needs no name and no members' list
        agent_cluster.target_group_id = -
            tasks say what they need: `agent=`, `cap=`, `limit=`
        agent_cluster.membership.minimum_agents = -
            fewer workers than wished are never an error
        agent_cluster.membership.desired_agents = workers.count count
        agent_cluster.membership.max_agents = -
            `muster worker start` adds workers by hand
        agent_cluster.replication_mode = -
            every worker takes tasks (active-active)
        agent_cluster.failover.selection_strategy = -
            tasks are taken by who is free, not given out
        agent_cluster.failover.task_transfer_timeout = - span
            a lost task is free at once; one that is transferred by hand waits 10 min for its new agent
        agent_cluster.failover.max_transfer_retries = task.losses count
            attempts lost to dead workers before a task is given up
        agent_cluster.health_monitoring.heartbeat_interval = health.heartbeat span
        agent_cluster.health_monitoring.warning_threshold = - span
            silence is no degree: it has a lease
        agent_cluster.health_monitoring.failure_threshold = health.lease span
            a worker whose process is gone is dead at once; a silent one after its lease, not after a number of
            missed heartbeats: `health.lease` is 15 s or three heartbeats, whichever is longer
        agent_cluster.health_monitoring.health_check_interval = (health.sweep) span
            the usual 500ms costs next to nothing, and a longer one makes every recovery later
        agent_cluster.task_queue.max_delivery_attempts = task.retries one_less
            retries are the runs after the first one
        agent_cluster.task_queue.default_expiration = - span
            tasks expire only where that was asked for: `muster task add --expires`
        agent_cluster.task_queue.dead_letter_retention = - span
            failed tasks stay until they are discarded: `muster dead discard`
        agent_cluster.self_healing.enabled = -
            Muster always does this; there is nothing to switch
        agent_cluster.self_healing.cycle_interval = - span
            Muster always does this; there is nothing to switch, at every `health.sweep`
        agent_cluster.self_healing.drain_timeout = workers.drain span
        agent_cluster.leader_election.enabled = -
            one owner holds the store's lock; no election
        agent_cluster.leader_election.election_interval = - span
            a dead owner is restarted at once
        agent_cluster.leader_election.lease_duration = - span
            the lock ends with its holder
    """,
    PLANNER: """
        orchestrator.max_concurrent_agents = workers.count count
        orchestrator.poll_interval = - seconds
            workers are woken when there is work
        orchestrator.checkpoint_interval = - count
            every change of state is written at once
        orchestrator.retry_limit = task.retries count_or_zero
            `executor.max_retries` goes before it
        orchestrator.pause_on_failure_count = task.failures count_or_zero
            pauses the plan, not the crew
        executor.timeout = task.timeout seconds
        executor.max_retries = task.retries count_or_zero
        executor.retry_delay = task.backoff.first seconds
            doubles up to `task.backoff.max`, with jitter
        sync.interval = - seconds
            boxes are ticked as tasks end
        sync.debounce = - seconds
            boxes are ticked as tasks end
        agent_mappings.* = -
            the words of each kind of task stand in [profiles]; an agent says its `profiles`
    """,
}
"""Of each kind of file: `their key = ours reader`, and below it what differs.  Ours is `-` where there is none,
in brackets where it is only a comment."""


def _settings(kind: str, table: str) -> Iterator[Setting]:
    for entry in re.split(r"\n(?=\S)", dedent(table).strip()):
        row, _, note = entry.partition("\n")
        source, _, target, *reader = row.split()
        ours = "" if target == "-" else target.strip("()")
        read = _READERS[reader[0]] if reader else None
        yield Setting(kind, source, ours, read, " ".join(note.split()), target.startswith("("))


SETTINGS = tuple(setting for kind, table in _TABLES.items() for setting in _settings(kind, table))
