"""Reads the settings in all their layers, checks them whole, and freezes them.

Every error is a BadConfig that names the file, the key and the fix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from muster.config.channels import read_channels
from muster.config.kinds import AgentKind, Kinds
from muster.config.layers import Layers
from muster.config.profiles import read_profiles
from muster.config.settings import (
    COMMAND,
    LIMITS,
    SECTIONS,
    SHELL,
    AgentConfig,
    Config,
    Health,
    TaskDefaults,
    built_in_agents,
)
from muster.config.tables import Table, fail, read_section, read_table
from muster.config.values import read_command, read_count, read_dollars, read_flag, read_one_of, read_text
from muster.model.errors import BadConfig
from muster.model.limits import Limits
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
        name: read_section(top.table(name), section, section.settings) for name, section in SECTIONS.items()
    }
    sections["health"] = _lease(top.table("health"), sections["health"])
    sections["task"] = _backoff(top.table("task").table("backoff"), sections["task"])
    config = Config(
        **sections,
        agents=agents,
        channels=read_channels(top.table("channels")),
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
    usual_s = max(Health().lease_s, 3 * health.heartbeat_s)
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


_AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def read_agents(table: Table, kinds: Kinds) -> list[AgentConfig]:
    return [table.read(name, lambda key, value: _agent(key, value, kinds), SHELL) for name in table.names()]


def _agent(key: str, value: object, kinds: Kinds) -> AgentConfig:
    name = key.removeprefix("agents.")
    if not _AGENT_NAME.fullmatch(name):
        fail(key, "is not a name for an agent", "use letters, digits, '.', '_' and '-', at most 64")
    table = read_table(key, value)
    kind_name = table.read("kind", read_text, COMMAND)
    kind = None if kind_name == COMMAND else _kind(table.path("kind"), kind_name, kinds)
    given: dict[str, Any] = {
        "name": name,
        "limits": read_section(table.table("limits"), Limits, LIMITS),
        "writes": True if kind is not None else None,
    }
    if kind is not None:
        given |= {"command": (kind.program,) if kind.program else (), "provider": kind.provider or None}
        given |= _of_kind(table, kind_name, kind)
    parsed = read_section(table, AgentConfig, AgentConfig.settings, given)
    for twice in sorted(parsed.env.keys() & set(parsed.env_names)):
        fail(f"{key}.set.{twice}", "is in env as well", "env hands it on, set gives it a value: keep one")
    if not parsed.command:
        fail(f"{key}.command", "is missing", 'write command = ["program", "argument"], or a kind')
    return parsed


def _kind(key: str, name: str, kinds: Kinds) -> AgentKind:
    known = [*kinds, COMMAND]
    if name not in known:
        install = f"install the package that brings it, or write one of {', '.join(known)}"
        fail(key, f"no kind of agent is called {name!r}", hint(name, known) or install)
    try:
        return kinds[name]
    except Exception as error:  # it may be somebody else's code
        fail(key, f"kind {name!r} cannot be used: {error!r}", "see the package that brings it")


def _of_kind(table: Table, name: str, kind: AgentKind) -> dict[str, Any]:
    """The settings that only agents of a kind have."""
    for only in ("prompt", "exit_codes", "success_pattern", "failure_pattern", "wait_pattern"):
        if table.has(only):
            fail(table.path(only), f"is not for kind {name!r}", "leave it out: Muster knows this CLI")
    own: dict[str, Any] = {"mcp": table.read("mcp", read_flag, True)}
    if kind.modes:
        if not table.has("permission_mode"):
            known = ", ".join(f'"{mode}"' for mode in kind.modes)
            fail(
                table.path("permission_mode"),
                "is missing: what the agent may do without asking is for you to say",
                f"write one of {known}; muster init --help says what is usual",
            )
        own["permission_mode"] = table.read(
            "permission_mode", read_one_of(kind.modes, "no permission mode"), None
        )
    if kind.budget:
        own["max_budget_usd"] = table.read("max_budget_usd", read_dollars, None)
    if kind.options:
        own["options"] = table.read("options", lambda k, v: _options(k, v, kind.options), {})
    return own | {"args": table.read("args", lambda k, v: _cli_args(k, v, kind), ())}


def _cli_args(key: str, value: object, kind: AgentKind) -> tuple[str, ...]:
    args = read_command(key, value)
    kind.refuse(key, args)
    return args


def _options(key: str, value: object, names: tuple[str, ...]) -> dict[str, object]:
    table = read_table(key, value)
    given = {name: table.read(name, lambda _, value: value, None) for name in names}
    table.refuse_the_rest()
    return {name: value for name, value in given.items() if table.has(name)}
