"""`[agents.NAME]`: how a command becomes an agent."""

from __future__ import annotations

import re
from typing import Any

from muster.config.kinds import AgentKind, Kinds
from muster.config.settings import COMMAND, LIMITS, SHELL, AgentConfig
from muster.config.tables import Table, fail, read_section, read_table
from muster.config.values import read_command, read_dollars, read_one_of, read_text
from muster.model.limits import Limits
from muster.model.wording import hint

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
        "limits": read_section(table.table("limits"), Limits, named=LIMITS),
        "writes": kind is not None,
    }
    if kind is not None:
        given |= {"command": (kind.program,), "provider": kind.provider or None}
        given |= _of_kind(table, kind_name, kind)
    parsed = read_section(table, AgentConfig, given)
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
    for only in ("prompt", "exit_codes"):
        if table.has(only):
            fail(table.path(only), f"is not for kind {name!r}", "leave it out: Muster knows this CLI")
    own: dict[str, Any] = {}
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
    return own | {
        "model": table.read("model", read_text, None),
        "args": table.read("args", lambda k, v: _cli_args(k, v, kind), ()),
    }


def _cli_args(key: str, value: object, kind: AgentKind) -> tuple[str, ...]:
    args = read_command(key, value)
    kind.refuse(key, args)
    return args


def _options(key: str, value: object, names: tuple[str, ...]) -> dict[str, object]:
    table = read_table(key, value)
    given = {name: table.read(name, lambda _, value: value, None) for name in names}
    table.refuse_the_rest()
    return {name: value for name, value in given.items() if table.has(name)}
