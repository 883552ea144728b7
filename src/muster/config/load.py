"""Reads the settings in all their layers, checks them whole, and freezes them.

Every error is a BadConfig that names the file, the key and the fix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from muster.config.agents import read_agents
from muster.config.kinds import Kinds
from muster.config.layers import Layers
from muster.config.profiles import read_profiles
from muster.config.settings import SECTIONS, Config, Health, TaskDefaults, built_in_agents
from muster.config.tables import Table, fail, read_section
from muster.config.values import read_count, read_text
from muster.model.errors import BadConfig
from muster.model.wording import hint


def checked(layers: Layers, kinds: Kinds) -> Config:
    """Raises BadConfig, with the place of the key that is wrong."""
    try:
        return parse_config(layers.raw, kinds)
    except BadConfig as error:
        raise layers.placed(error) from error


def parse_config(raw: Mapping[str, object], kinds: Kinds) -> Config:
    """The content of a `muster.toml`, checked.  Raises BadConfig."""
    top = Table("", raw)
    agents = built_in_agents()
    for agent in read_agents(top.table("agents"), kinds):
        agents[agent.name] = agent
    sections: dict[str, Any] = {
        name: read_section(top.table(name), section) for name, section in SECTIONS.items()
    }
    sections["health"] = _lease(top.table("health"), sections["health"])
    sections["task"] = _backoff(top.table("task").table("backoff"), sections["task"])
    config = Config(
        **sections,
        agents=agents,
        limits=_limits(top.table("limits")),
        profiles=read_profiles(top.table("profiles")),
        default_agent=top.read("agent", read_text, None),
    )
    top.refuse_the_rest()
    if config.default_agent is not None and config.default_agent not in agents:
        known = hint(config.default_agent, agents) or f"define [agents.{config.default_agent}]"
        fail("agent", f"no agent is called {config.default_agent!r}", known)
    return config


def _limits(table: Table) -> dict[str, int]:
    return {name: table.read(name, read_count, 1) for name in table.names()}


def _backoff(table: Table, task: TaskDefaults) -> TaskDefaults:
    """Of a first wait and a longest one, the one that is not said follows the other."""
    first_s, cap_s = task.backoff_first_s, task.backoff_cap_s
    if cap_s >= first_s:
        return task
    if table.has("first") and table.has("max"):
        fail(
            "task.backoff.max",
            f"{cap_s:g} s is less than first = {first_s:g} s",
            "raise max",
            against="task.backoff.first",
        )
    both_s = first_s if table.has("first") else cap_s
    return replace(task, backoff_first_s=both_s, backoff_cap_s=both_s)


def _lease(table: Table, health: Health) -> Health:
    """A lease must outlive one lost heartbeat, or a hiccup costs a healthy holder its task."""
    usual_s = max(Health.lease_s, 3 * health.heartbeat_s)
    if not table.has("lease"):
        return replace(health, lease_s=usual_s)
    if health.lease_s < 2 * health.heartbeat_s:
        fail(
            "health.lease",
            f"{health.lease_s:g} s is less than twice health.heartbeat ({health.heartbeat_s:g} s): "
            "one late heartbeat would take the task from a healthy worker",
            f'write lease = "{usual_s:g}s", or leave it out',
            against="health.heartbeat",
        )
    return health
