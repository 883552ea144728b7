"""Reads the settings in all their layers, checks them whole, and freezes them.

Every error is a BadConfig that names the file, the key and the fix.
"""

from __future__ import annotations

from collections.abc import Mapping

from muster.config.agents import read_agents
from muster.config.kinds import Kinds
from muster.config.layers import Layers
from muster.config.profiles import read_profiles
from muster.config.settings import (
    Config,
    Git,
    Health,
    RetentionSettings,
    TaskDefaults,
    WorkerSettings,
    built_in_agents,
)
from muster.config.tables import (
    Table,
    fail,
    near,
    read_count,
    read_count_or_zero,
    read_duration,
    read_flag,
    read_interval,
    read_text,
)
from muster.model.errors import BadConfig


def checked(layers: Layers, kinds: Kinds) -> Config:
    """Raises BadConfig, with the place of the key that is wrong."""
    try:
        return parse_config(layers.raw, kinds)
    except BadConfig as error:
        raise layers.placed(error) from error


def parse_config(raw: Mapping[str, object], kinds: Kinds) -> Config:
    """The content of a `muster.toml`, checked.  Raises BadConfig."""
    top = Table("", raw)
    health, lease_is_explicit = _health(top.table("health"))
    agents = built_in_agents()
    for agent in read_agents(top.table("agents"), kinds):
        agents[agent.name] = agent
    if lease_is_explicit:
        _refuse_short_lease(health)
    config = Config(
        task=_task(top.table("task")),
        workers=_workers(top.table("workers")),
        health=health,
        agents=agents,
        retention=_retention(top.table("retention")),
        git=_git(top.table("git")),
        limits=_limits(top.table("limits")),
        profiles=read_profiles(top.table("profiles")),
        default_agent=top.read("agent", read_text, None),
    )
    top.refuse_the_rest()
    if config.default_agent is not None and config.default_agent not in agents:
        hint = near(config.default_agent, agents) or f"define [agents.{config.default_agent}]"
        fail("agent", f"no agent is called {config.default_agent!r}", hint)
    return config


def _task(table: Table) -> TaskDefaults:
    usual = TaskDefaults()
    backoff = table.table("backoff")
    first_s = backoff.read("first", read_duration, usual.backoff_first_s)
    cap_s = backoff.read("max", read_duration, max(usual.backoff_cap_s, first_s))
    backoff.refuse_the_rest()
    if cap_s < first_s:
        if backoff.has("first"):
            fail(
                "task.backoff.max",
                f"{cap_s:g} s is less than first = {first_s:g} s",
                "raise max",
                against="task.backoff.first",
            )
        first_s = cap_s
    parsed = TaskDefaults(
        timeout_s=table.read("timeout", read_interval, usual.timeout_s),
        retries=table.read("retries", read_count_or_zero, usual.retries),
        backoff_first_s=first_s,
        backoff_cap_s=cap_s,
        losses_max=table.read("losses", read_count, usual.losses_max),
        failures_max=table.read("failures", read_count_or_zero, usual.failures_max),
        waiting_max=table.read("waiting", read_count, usual.waiting_max),
    )
    table.refuse_the_rest()
    return parsed


def _workers(table: Table) -> WorkerSettings:
    usual = WorkerSettings()
    parsed = WorkerSettings(
        count=table.read("count", read_count, None),
        slots=table.read("slots", read_count, usual.slots),
        drain_s=table.read("drain", read_duration, usual.drain_s),
    )
    table.refuse_the_rest()
    return parsed


def _retention(table: Table) -> RetentionSettings:
    usual = RetentionSettings()
    parsed = RetentionSettings(
        events_s=table.read("events", read_interval, usual.events_s),
        logs_s=table.read("logs", read_interval, usual.logs_s),
        idempotency_s=table.read("idempotency", read_interval, usual.idempotency_s),
        trees_s=table.read("trees", read_interval, usual.trees_s),
    )
    table.refuse_the_rest()
    return parsed


def _git(table: Table) -> Git:
    usual = Git()
    parsed = Git(
        worktrees=table.read("worktrees", read_flag, usual.worktrees),
        setup=table.read("setup", read_text, usual.setup),
        merge=table.read("merge", read_flag, usual.merge),
        keep=table.read("keep", read_flag, usual.keep),
    )
    table.refuse_the_rest()
    return parsed


def _limits(table: Table) -> dict[str, int]:
    return {name: table.read(name, read_count, 1) for name in table.names()}


def default_lease_s(heartbeat_s: float) -> float:
    """The lease, in seconds, of a holder that reports every `heartbeat_s` seconds and has none of its own."""
    return max(15.0, 3 * heartbeat_s)


def _health(table: Table) -> tuple[Health, bool]:
    """The section, and whether it names a lease."""
    usual = Health()
    heartbeat_s = table.read("heartbeat", read_interval, usual.heartbeat_s)
    parsed = Health(
        heartbeat_s=heartbeat_s,
        lease_s=table.read("lease", read_interval, default_lease_s(heartbeat_s)),
        sweep_s=table.read("sweep", read_interval, usual.sweep_s),
        claim_lease_s=table.read("claim_lease", read_interval, usual.claim_lease_s),
        orphan_grace_s=table.read("orphan_grace", read_duration, usual.orphan_grace_s),
        stall_after_s=table.read("stall_after", read_duration, usual.stall_after_s),
    )
    table.refuse_the_rest()
    return parsed, table.has("lease")


def _refuse_short_lease(health: Health) -> None:
    """A lease must outlive one lost heartbeat, or a hiccup costs a healthy holder its task."""
    if health.lease_s < 2 * health.heartbeat_s:
        fail(
            "health.lease",
            f"{health.lease_s:g} s is less than twice health.heartbeat ({health.heartbeat_s:g} s): "
            "one late heartbeat would take the task from a healthy worker",
            f'write lease = "{default_lease_s(health.heartbeat_s):g}s", or leave it out',
            against="health.heartbeat",
        )
