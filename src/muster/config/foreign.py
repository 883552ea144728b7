"""What the settings of other orchestrators are called here, and where Muster differs."""

from __future__ import annotations

import re
from collections.abc import Callable
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


_SECONDS, _MINUTES = _duration(1), _duration(60)
_NOT_DEAD_YET = (
    "a worker whose process is gone is dead at once; a silent one after its lease, not after a number of missed "
    "heartbeats: `health.lease` is 15 s or three heartbeats, whichever is longer"
)
_ALWAYS = "Muster always does this; there is nothing to switch"
_HERE = "a crew is what is up in one project's folder; it needs no name and no members' list"

SETTINGS: tuple[Setting, ...] = (
    Setting(POOL, "workerPoolSize", "workers.count", _count),
    Setting(POOL, "heartbeatIntervalSeconds", "health.heartbeat", _SECONDS, _NOT_DEAD_YET),
    Setting(
        POOL,
        "leaseDurationMinutes",
        "health.claim_lease",
        _MINUTES,
        "the lease of tasks that are taken by hand; workers have the short `health.lease`, which they renew",
    ),
    Setting(
        POOL,
        "reconcileIntervalSeconds",
        "health.sweep",
        _SECONDS,
        "the usual 500ms costs next to nothing, and a longer one makes every recovery later",
        aside=True,
    ),
    Setting(
        POOL,
        "shutdownTimeoutSeconds",
        "workers.drain",
        _SECONDS,
        "heartbeats go on until the last task has ended",
    ),
    Setting(
        POOL,
        "maxClaimRenewals",
        "",
        _count,
        "renewals have no number: `task.timeout` bounds the whole attempt",
    ),
    Setting(POOL, "name", "", None, "workers have random names, so that none is mistaken for one that died"),
    Setting(
        POOL,
        "capabilities",
        "",
        None,
        "kinds of task that an agent is good at: `profiles` of its [agents.NAME]",
    ),
    Setting(CLUSTER, "agent_cluster.name", "", None, _HERE),
    Setting(
        CLUSTER,
        "agent_cluster.target_group_id",
        "",
        None,
        "tasks say what they need: `agent=`, `cap=`, `limit=`",
    ),
    Setting(
        CLUSTER,
        "agent_cluster.membership.minimum_agents",
        "",
        None,
        "fewer workers than wished are never an error",
    ),
    Setting(CLUSTER, "agent_cluster.membership.desired_agents", "workers.count", _count),
    Setting(
        CLUSTER, "agent_cluster.membership.max_agents", "", None, "`muster worker start` adds workers by hand"
    ),
    Setting(CLUSTER, "agent_cluster.replication_mode", "", None, "every worker takes tasks (active-active)"),
    Setting(
        CLUSTER,
        "agent_cluster.failover.selection_strategy",
        "",
        None,
        "tasks are taken by who is free, not given out",
    ),
    Setting(
        CLUSTER,
        "agent_cluster.failover.task_transfer_timeout",
        "",
        _span,
        "a lost task is free at once; one that is transferred by hand waits 10 min for its new agent",
    ),
    Setting(
        CLUSTER,
        "agent_cluster.failover.max_transfer_retries",
        "task.losses",
        _count,
        "attempts lost to dead workers before a task is given up",
    ),
    Setting(CLUSTER, "agent_cluster.health_monitoring.heartbeat_interval", "health.heartbeat", _span),
    Setting(
        CLUSTER,
        "agent_cluster.health_monitoring.warning_threshold",
        "",
        _span,
        "silence is no degree: it has a lease",
    ),
    Setting(
        CLUSTER, "agent_cluster.health_monitoring.failure_threshold", "health.lease", _span, _NOT_DEAD_YET
    ),
    Setting(
        CLUSTER,
        "agent_cluster.health_monitoring.health_check_interval",
        "health.sweep",
        _span,
        "the usual 500ms costs next to nothing, and a longer one makes every recovery later",
        aside=True,
    ),
    Setting(
        CLUSTER,
        "agent_cluster.task_queue.max_delivery_attempts",
        "task.retries",
        _one_less,
        "retries are the runs after the first one",
    ),
    Setting(
        CLUSTER,
        "agent_cluster.task_queue.default_expiration",
        "",
        _span,
        "tasks expire only where that was asked for: `muster task add --expires`",
    ),
    Setting(
        CLUSTER,
        "agent_cluster.task_queue.dead_letter_retention",
        "",
        _span,
        "failed tasks stay until they are discarded: `muster dead discard`",
    ),
    Setting(CLUSTER, "agent_cluster.self_healing.enabled", "", None, _ALWAYS),
    Setting(
        CLUSTER, "agent_cluster.self_healing.cycle_interval", "", _span, f"{_ALWAYS}, at every `health.sweep`"
    ),
    Setting(CLUSTER, "agent_cluster.self_healing.drain_timeout", "workers.drain", _span),
    Setting(
        CLUSTER,
        "agent_cluster.leader_election.enabled",
        "",
        None,
        "one owner holds the store's lock; no election",
    ),
    Setting(
        CLUSTER,
        "agent_cluster.leader_election.election_interval",
        "",
        _span,
        "a dead owner is restarted at once",
    ),
    Setting(
        CLUSTER, "agent_cluster.leader_election.lease_duration", "", _span, "the lock ends with its holder"
    ),
    Setting(PLANNER, "orchestrator.max_concurrent_agents", "workers.count", _count),
    Setting(PLANNER, "orchestrator.poll_interval", "", _SECONDS, "workers are woken when there is work"),
    Setting(
        PLANNER, "orchestrator.checkpoint_interval", "", _count, "every change of state is written at once"
    ),
    Setting(
        PLANNER,
        "orchestrator.retry_limit",
        "task.retries",
        _count_or_zero,
        "`executor.max_retries` goes before it",
    ),
    Setting(
        PLANNER,
        "orchestrator.pause_on_failure_count",
        "task.failures",
        _count_or_zero,
        "pauses the plan, not the crew",
    ),
    Setting(PLANNER, "executor.timeout", "task.timeout", _SECONDS),
    Setting(PLANNER, "executor.max_retries", "task.retries", _count_or_zero),
    Setting(
        PLANNER,
        "executor.retry_delay",
        "task.backoff.first",
        _SECONDS,
        "doubles up to `task.backoff.max`, with jitter",
    ),
    Setting(PLANNER, "sync.interval", "", _SECONDS, "boxes are ticked as tasks end"),
    Setting(PLANNER, "sync.debounce", "", _SECONDS, "boxes are ticked as tasks end"),
    Setting(
        PLANNER,
        "agent_mappings.*",
        "",
        None,
        "the words of each kind of task stand in [profiles]; an agent says its `profiles`",
    ),
)
