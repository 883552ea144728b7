"""`[agents.NAME]`: how a command becomes an agent."""

from __future__ import annotations

import re
from typing import Any

from muster.config.kinds import AgentKind, Kinds
from muster.config.settings import (
    COMMAND,
    HOMES,
    PROMPT_CHANNELS,
    SHELL,
    USER_HOME,
    AgentConfig,
)
from muster.config.sizes import SIZE_HINT
from muster.config.tables import (
    Table,
    fail,
    near,
    read_count,
    read_duration,
    read_flag,
    read_interval,
    read_size,
    read_table,
    read_text,
    read_texts,
    read_whole,
)
from muster.model.limits import Limits
from muster.model.states import ErrorKind

_LEAST_BYTES = 1 << 20
_LEAST_FILES = 16
_AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_agents(table: Table, kinds: Kinds) -> list[AgentConfig]:
    return [table.read(name, lambda key, value: _agent(key, value, kinds), SHELL) for name in table.names()]


def _agent(key: str, value: object, kinds: Kinds) -> AgentConfig:
    name = key.removeprefix("agents.")
    if not _AGENT_NAME.fullmatch(name):
        fail(key, "is not a name for an agent", "use letters, digits, '.', '_' and '-', at most 64")
    table = read_table(key, value)
    env_names = table.read("env", _env_names, ())
    env: dict[str, str] = table.read("set", _env, {})
    for twice in sorted(env.keys() & set(env_names)):
        fail(f"{key}.set.{twice}", "is in env as well", "env hands it on, set gives it a value: keep one")
    kind_name = table.read("kind", read_text, COMMAND)
    kind = None if kind_name == COMMAND else _kind(table.path("kind"), kind_name, kinds)
    parsed = AgentConfig(
        name=name,
        kind=kind_name,
        command=table.read("command", _command, (kind.program,) if kind else ()),
        prompt=table.read("prompt", _prompt, "argument"),
        env_names=env_names,
        env=env,
        exit_codes=table.read("exit_codes", _exit_codes, {}),
        capabilities=table.read("capabilities", read_texts, ()),
        profiles=table.read("profiles", read_texts, ()),
        targets=table.read("targets", read_texts, ()),
        slots=table.read("slots", read_count, None),
        heartbeat_s=table.read("heartbeat", read_interval, None),
        writes=table.read("writes", read_flag, kind is not None),
        home=table.read("home", _home, USER_HOME),
        stall_after_s=table.read("stall_after", read_duration, None),
        limits=_limits(table.table("limits")),
        provider=table.read("provider", read_text, (kind and kind.provider) or None),
        **(_of_kind(table, kind_name, kind) if kind else {}),
    )
    table.refuse_the_rest()
    if not parsed.command:
        fail(f"{key}.command", "is missing", 'write command = ["program", "argument"], or a kind')
    return parsed


def _kind(key: str, name: str, kinds: Kinds) -> AgentKind:
    known = [*kinds, COMMAND]
    if name not in known:
        install = f"install the package that brings it, or write one of {', '.join(known)}"
        fail(key, f"no kind of agent is called {name!r}", near(name, known) or install)
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
        own["permission_mode"] = table.read("permission_mode", lambda k, v: _mode(k, v, kind.modes), None)
    if kind.budget:
        own["max_budget_usd"] = table.read("max_budget_usd", _dollars, None)
    if kind.options:
        own["options"] = table.read("options", lambda k, v: _options(k, v, kind.options), {})
    return own | {
        "model": table.read("model", read_text, None),
        "args": table.read("args", lambda k, v: _cli_args(k, v, kind), ()),
    }


def _cli_args(key: str, value: object, kind: AgentKind) -> tuple[str, ...]:
    args = _command(key, value)
    kind.refuse(key, args)
    return args


def _mode(key: str, value: object, modes: tuple[str, ...]) -> str:
    text = read_text(key, value)
    if text not in modes:
        known = "write one of " + ", ".join(f'"{mode}"' for mode in modes)
        fail(key, f"{text!r} is no permission mode", near(text, modes) or known)
    return text


def _dollars(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e6:
        fail(key, f"{value!r} is not an amount of dollars", "write it without quotes, like 2.50")
    return float(value)


def _options(key: str, value: object, names: tuple[str, ...]) -> dict[str, object]:
    table = read_table(key, value)
    given = {name: table.read(name, lambda _, value: value, None) for name in names}
    table.refuse_the_rest()
    return {name: value for name, value in given.items() if table.has(name)}


def _command(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, list) and value:
        program, *arguments = value
        if all(isinstance(argument, str) and "\0" not in argument for argument in arguments):
            return (read_text(f"{key}[0]", program), *arguments)  # an argument may well be empty
    return read_texts(key, value)


def _prompt(key: str, value: object) -> str:
    text = read_text(key, value)
    if text not in PROMPT_CHANNELS:
        known = "write one of " + ", ".join(f'"{channel}"' for channel in PROMPT_CHANNELS)
        fail(key, f"{text!r} is no way to hand over a prompt", near(text, PROMPT_CHANNELS) or known)
    return text


def _home(key: str, value: object) -> str:
    text = read_text(key, value)
    if text not in HOMES:
        known = 'write "own" for a folder of its own, or "user"'
        fail(key, f"{text!r} is nobody's home", near(text, HOMES) or known)
    return text


def _limits(table: Table) -> Limits:
    usual = Limits()
    parsed = Limits(
        memory_bytes=table.read("memory", _amount, usual.memory_bytes),
        cpu_s=table.read("cpu", read_interval, usual.cpu_s),
        processes=table.read("processes", read_count, usual.processes),
        files=table.read("files", _files, usual.files),
        file_bytes=table.read("file_size", _amount, usual.file_bytes),
        output_bytes=table.read("output", _amount, usual.output_bytes),
    )
    table.refuse_the_rest()
    return parsed


def _amount(key: str, value: object) -> int:
    size = read_size(key, value)
    if size < _LEAST_BYTES:
        fail(key, f"{value!r} is less than 1 MB, and nothing could run", SIZE_HINT)
    return size


def _files(key: str, value: object) -> int:
    return read_whole(key, value, _LEAST_FILES)


def _env_names(key: str, value: object) -> tuple[str, ...]:
    names = read_texts(key, value)
    for name in names:
        if not _ENV_NAME.fullmatch(name):
            fail(key, f"{name!r} is not a variable's name", 'for a value write set = { NAME = "value" }')
    return names


def _env(key: str, value: object) -> dict[str, str]:
    variables: dict[str, str] = {}
    for name in (table := read_table(key, value)).names():
        if not _ENV_NAME.fullmatch(name):
            fail(table.path(name), "is not a variable's name", "use letters, digits and '_'")
        variables[name] = table.read(name, _env_value, "")
    return variables


def _env_value(key: str, value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        fail(key, "is not a text", "put the value in quotes")  # it may be secret: never repeat it
    return value


def _exit_codes(key: str, value: object) -> dict[int, ErrorKind]:
    table = read_table(key, value)
    kinds: dict[int, ErrorKind] = {}
    for kind in ErrorKind:
        for code in table.read(kind.value, _codes, ()):
            if code in kinds:
                fail(table.path(kind), f"{code} is {kinds[code].value} as well", "keep it in one list")
            kinds[code] = kind
    table.refuse_the_rest()
    return kinds


def _codes(key: str, value: object) -> tuple[int, ...]:
    codes = value if isinstance(value, list) else None
    if codes is None or not all(type(code) is int and 1 <= code <= 255 for code in codes):
        fail(key, f"{value!r} is not a list of exit codes", "write it like [64, 65], each from 1 to 255")
    return tuple(codes)
