"""What a project is and how it wants to be run: `muster.toml`, read once, checked whole, then frozen.

Every error is a BadConfig with file, key and fix.  The CLI imports this on every call: keep its imports light.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn, TypeVar

from muster.model.errors import BadConfig
from muster.model.states import ErrorKind

FILE_NAME = "muster.toml"
STATE_DIR_NAME = ".muster"
ROOT_VARIABLE = "MUSTER_ROOT"

PROMPT_CHANNELS = ("argument", "script", "file", "stdin", "none")
"""As the last argument, as a file (`script`: the code of its fenced blocks), or not at all."""

DURATION_MAX_S = 10 * 365 * 86400.0  # beyond this a deadline would leave the range of dates

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_AGENT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DURATION_HINT = 'write it like "500ms", "30s", "5m", "2h" or "1d"; a bare number is seconds'

_T = TypeVar("_T")
_D = TypeVar("_D")


@dataclass(frozen=True, kw_only=True)
class TaskDefaults:
    """Limits of a task that sets none of its own.  `[task]`"""

    timeout_s: float = 7200.0
    retries: int = 3
    """Runs after the first one."""
    backoff_first_s: float = 30.0
    backoff_cap_s: float = 300.0
    losses_max: int = 5
    """Attempts lost to dead workers before the task counts as poison."""


@dataclass(frozen=True, kw_only=True)
class Workers:
    """How many processes host agents on this machine.  `[workers]`"""

    count: int | None = None
    slots: int = 1
    """Attempts that one worker runs at the same time."""
    drain_s: float = 300.0

    def number(self, cores: int) -> int:
        """Workers to start on a machine with that many cores: as configured, else one per core, at most 4."""
        return self.count if self.count is not None else max(1, min(4, cores))


@dataclass(frozen=True, kw_only=True)
class Health:
    """How soon a silent holder of a task is given up.  `[health]`"""

    heartbeat_s: float = 5.0
    lease_s: float = 15.0
    sweep_s: float = 0.5
    orphan_grace_s: float = 600.0
    """How long the frozen work of a worker that cannot reach its store is kept before it is killed."""


@dataclass(frozen=True)
class AgentConfig:
    """One executor: a command that gets a prompt.  `[agents.NAME]`"""

    name: str
    command: tuple[str, ...]
    prompt: str = "argument"  # one of PROMPT_CHANNELS
    env_names: tuple[str, ...] = ()
    """Variables handed on from the worker's environment (`env`)."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables set to fixed values (`set`)."""
    exit_codes: Mapping[int, ErrorKind] = field(default_factory=dict)
    """What an exit code means where that is not `crash`."""
    capabilities: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    slots: int | None = None
    """Most attempts of this agent at one time on a worker; None is the worker's own number."""
    heartbeat_s: float | None = None


SHELL = AgentConfig("shell", ("sh", "-eu"), "script")  # built in; a project may redefine it


def _built_in_agents() -> dict[str, AgentConfig]:
    return {SHELL.name: SHELL}


@dataclass(frozen=True, kw_only=True)
class Config:
    task: TaskDefaults = field(default_factory=TaskDefaults)
    workers: Workers = field(default_factory=Workers)
    health: Health = field(default_factory=Health)
    agents: Mapping[str, AgentConfig] = field(default_factory=_built_in_agents)
    default_agent: str | None = None
    """The agent of a task that names none (`agent` at the top of the file)."""

    @property
    def general(self) -> tuple[str, ...]:
        """Agents for tasks that name none.  A shell would run prose as a script: it is the last resort."""
        if self.default_agent:
            return (self.default_agent,)
        return tuple(sorted(self.agents.keys() - {SHELL.name})) or (SHELL.name,)


@dataclass(frozen=True)
class Project:
    """The folder that Muster works in, and where it keeps what."""

    root: Path

    @property
    def config_file(self) -> Path:
        return self.root / FILE_NAME

    @property
    def state_dir(self) -> Path:
        return self.root / STATE_DIR_NAME

    @property
    def store(self) -> Path:
        return self.state_dir / "state.db"

    @property
    def socket(self) -> Path:
        return self.state_dir / "muster.sock"

    @property
    def owner_lock(self) -> Path:
        return self.state_dir / "owner.lock"

    @property
    def supervisor_lock(self) -> Path:
        return self.state_dir / "supervisor.lock"

    @property
    def log_file(self) -> Path:
        return self.state_dir / "muster.log"

    @property
    def attempts_dir(self) -> Path:
        return self.state_dir / "attempts"


def find_project(start: Path, env: Mapping[str, str]) -> Project | None:
    """The project that `start` lies in: the nearest folder upwards with a `.muster/` or a `muster.toml`.

    MUSTER_ROOT in `env` overrides the search; BadConfig where it names no folder.
    """
    start = start.resolve()
    if named := env.get(ROOT_VARIABLE):
        root = (start / named).resolve()
        if not _is(Path.is_dir, root):
            raise BadConfig(
                f"{ROOT_VARIABLE} is {named!r}, which is not a folder",
                f"set {ROOT_VARIABLE} to the folder that holds {STATE_DIR_NAME}/, or unset it",
            )
        return Project(root)
    for folder in (start, *start.parents):
        if _is(Path.is_dir, folder / STATE_DIR_NAME) or _is(Path.is_file, folder / FILE_NAME):
            return Project(folder)
    return None


def _is(test: Callable[[Path], bool], path: Path) -> bool:
    try:
        return test(path)
    except OSError:  # up to Python 3.13 a parent that we may not look into raises here
        return False


def load_config(root: Path) -> Config:
    """The configuration in `root`; the defaults where there is no `muster.toml`.  Raises BadConfig."""
    try:
        text = (root / FILE_NAME).read_bytes().decode("utf-8-sig")  # editors on Windows write a BOM
    except FileNotFoundError:
        return Config()
    except OSError as error:
        hint = f"make {root / FILE_NAME} a file that you can read"
        raise BadConfig(f"{FILE_NAME} cannot be read: {error.strerror}", hint) from error
    except UnicodeDecodeError as error:
        raise BadConfig(f"{FILE_NAME} is not UTF-8 text", f"save it as UTF-8 (byte {error.start})") from error

    import tomllib

    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadConfig(f"{FILE_NAME} is not valid TOML: {error}", "correct that line") from error
    return parse_config(raw)


def parse_config(raw: Mapping[str, object]) -> Config:
    """The content of a `muster.toml`, checked.  Raises BadConfig."""
    top = _Table("", raw)
    health, lease_is_explicit = _health(top.table("health"))
    agents = _built_in_agents()
    for agent in _agents(top.table("agents")):
        agents[agent.name] = agent
    if lease_is_explicit:
        _refuse_short_lease(health, agents.values())
    config = Config(
        task=_task(top.table("task")),
        workers=_workers(top.table("workers")),
        health=health,
        agents=agents,
        default_agent=top.read("agent", _text, None),
    )
    top.refuse_the_rest()
    if config.default_agent is not None and config.default_agent not in agents:
        hint = _near(config.default_agent, agents) or f"define [agents.{config.default_agent}]"
        _fail("agent", f"no agent is called {config.default_agent!r}", hint)
    return config


def parse_duration(text: str | float) -> float:
    """Seconds in `500ms`, `30s`, `5m`, `2h`, `1d`, `1h30m`, `90` or a number.

    Raises BadConfig for anything else, and for what is negative, not finite or longer than ten years.
    """
    seconds = _seconds(text)
    if not 0 <= seconds <= DURATION_MAX_S:  # false for nan as well
        raise BadConfig(f"{text!r} is out of range for a duration (0 s to 10 years)", _DURATION_HINT)
    return seconds


def _seconds(text: object) -> float:
    if isinstance(text, int | float) and not isinstance(text, bool):
        # An integer may be too large for a float; it is out of range in any case.
        return float(text) if abs(text) <= DURATION_MAX_S else math.inf
    if isinstance(text, str):
        squeezed = text.strip().replace(" ", "")
        if _SECONDS.fullmatch(squeezed):
            return float(squeezed)
        if _DURATION.fullmatch(squeezed):
            return math.fsum(float(n) * _UNIT_S[unit] for n, unit in _DURATION_PART.findall(squeezed))
    raise BadConfig(f"{text!r} is not a duration", _DURATION_HINT)


class _Table:
    """One TOML table: hands out its keys and knows which were never asked for."""

    def __init__(self, path: str, raw: Mapping[str, object]) -> None:
        self._path = path
        self._raw = raw
        self._known: list[str] = []

    def path(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key

    def has(self, key: str) -> bool:
        return key in self._raw

    def names(self) -> tuple[str, ...]:
        return tuple(self._raw)

    def read(self, key: str, parse: Callable[[str, object], _T], default: _D) -> _T | _D:
        self._known.append(key)
        return parse(self.path(key), self._raw[key]) if key in self._raw else default

    def table(self, key: str) -> _Table:
        return self.read(key, _table, _Table(self.path(key), {}))

    def refuse_the_rest(self) -> None:
        """Raises BadConfig for the first key that nothing has read."""
        for key in self._raw:
            if key not in self._known:
                known = "known keys: " + ", ".join(sorted(self._known))
                _fail(self.path(key), "is not a known key", _near(key, self._known) or known)


def _fail(key: str, problem: str, hint: str) -> NoReturn:
    raise BadConfig(f"{FILE_NAME}: {key}: {problem}", hint)


def _near(word: str, known: Mapping[str, object] | list[str] | tuple[str, ...]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else ""


def _table(key: str, value: object) -> _Table:
    if not isinstance(value, Mapping):
        _fail(key, f"{value!r} is not a table", f"write it as a section [{key}] or as {{ key = value }}")
    return _Table(key, value)


def _text(key: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        _fail(key, f"{value!r} is not a text", f'write {key.rpartition(".")[2]} = "..."')
    return value


def _texts(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        parts = ", ".join(f'"{part}"' for part in value.split())
        _fail(key, "is one text where a list is needed", f"write {key.rpartition('.')[2]} = [{parts}]")
    if not isinstance(value, list):
        _fail(key, f"{value!r} is not a list of texts", f'write {key.rpartition(".")[2]} = ["..."]')
    return tuple(_text(f"{key}[{at}]", item) for at, item in enumerate(value))


def _whole(key: str, value: object, least: int) -> int:
    # TOML's true is an int to Python.
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= 1_000_000:
        _fail(key, f"{value!r} is not a whole number from {least} up", "write it without quotes, like 3")
    return value


def _count(key: str, value: object) -> int:
    return _whole(key, value, 1)


def _count_or_zero(key: str, value: object) -> int:
    return _whole(key, value, 0)


def _duration(key: str, value: object) -> float:
    try:
        return parse_duration(value)  # type: ignore[arg-type]  # it refuses what is neither text nor number
    except BadConfig as error:
        _fail(key, error.message, error.hint)


def _interval(key: str, value: object) -> float:
    seconds = _duration(key, value)
    if seconds == 0:
        _fail(key, "may not be zero", _DURATION_HINT)
    return seconds


def _task(table: _Table) -> TaskDefaults:
    usual = TaskDefaults()
    backoff = table.table("backoff")
    first_s = backoff.read("first", _duration, usual.backoff_first_s)
    cap_s = backoff.read("max", _duration, max(usual.backoff_cap_s, first_s))
    backoff.refuse_the_rest()
    if cap_s < first_s:
        if backoff.has("first"):
            _fail("task.backoff.max", f"{cap_s:g} s is less than first = {first_s:g} s", "raise max")
        first_s = cap_s
    parsed = TaskDefaults(
        timeout_s=table.read("timeout", _interval, usual.timeout_s),
        retries=table.read("retries", _count_or_zero, usual.retries),
        backoff_first_s=first_s,
        backoff_cap_s=cap_s,
        losses_max=table.read("losses", _count, usual.losses_max),
    )
    table.refuse_the_rest()
    return parsed


def _workers(table: _Table) -> Workers:
    usual = Workers()
    parsed = Workers(
        count=table.read("count", _count, None),
        slots=table.read("slots", _count, usual.slots),
        drain_s=table.read("drain", _duration, usual.drain_s),
    )
    table.refuse_the_rest()
    return parsed


def default_lease_s(heartbeat_s: float) -> float:
    """The lease, in seconds, of a holder that reports every `heartbeat_s` seconds and has none of its own."""
    return max(15.0, 3 * heartbeat_s)


def _health(table: _Table) -> tuple[Health, bool]:
    """The section, and whether it names a lease."""
    usual = Health()
    heartbeat_s = table.read("heartbeat", _interval, usual.heartbeat_s)
    parsed = Health(
        heartbeat_s=heartbeat_s,
        lease_s=table.read("lease", _interval, default_lease_s(heartbeat_s)),
        sweep_s=table.read("sweep", _interval, usual.sweep_s),
        orphan_grace_s=table.read("orphan_grace", _duration, usual.orphan_grace_s),
    )
    table.refuse_the_rest()
    return parsed, table.has("lease")


def _refuse_short_lease(health: Health, agents: Iterable[AgentConfig]) -> None:
    """A lease must outlive one lost heartbeat, or a hiccup costs a healthy holder its task."""
    slowest_s, where = health.heartbeat_s, "health.heartbeat"
    for agent in agents:
        if agent.heartbeat_s is not None and agent.heartbeat_s > slowest_s:
            slowest_s, where = agent.heartbeat_s, f"agents.{agent.name}.heartbeat"
    if health.lease_s < 2 * slowest_s:
        _fail(
            "health.lease",
            f"{health.lease_s:g} s is less than twice {where} ({slowest_s:g} s): "
            "one late heartbeat would take the task from a healthy worker",
            f'write lease = "{default_lease_s(slowest_s):g}s", or leave it out',
        )


def _agents(table: _Table) -> list[AgentConfig]:
    return [table.read(name, _agent, SHELL) for name in table.names()]


def _agent(key: str, value: object) -> AgentConfig:
    name = key.removeprefix("agents.")
    if not _AGENT_NAME.fullmatch(name):
        _fail(key, "is not a name for an agent", "use letters, digits, '.', '_' and '-', at most 64")
    table = _table(key, value)
    env_names = table.read("env", _env_names, ())
    env: dict[str, str] = table.read("set", _env, {})
    for twice in sorted(env.keys() & set(env_names)):
        _fail(f"{key}.set.{twice}", "is in env as well", "env hands it on, set gives it a value: keep one")
    parsed = AgentConfig(
        name=name,
        command=table.read("command", _command, ()),
        prompt=table.read("prompt", _prompt, "argument"),
        env_names=env_names,
        env=env,
        exit_codes=table.read("exit_codes", _exit_codes, {}),
        capabilities=table.read("capabilities", _texts, ()),
        profiles=table.read("profiles", _texts, ()),
        slots=table.read("slots", _count, None),
        heartbeat_s=table.read("heartbeat", _interval, None),
    )
    table.refuse_the_rest()
    if not parsed.command:
        _fail(f"{key}.command", "is missing", 'write command = ["program", "argument"]')
    return parsed


def _command(key: str, value: object) -> tuple[str, ...]:
    if isinstance(value, list) and value:
        program, *arguments = value
        if all(isinstance(argument, str) and "\0" not in argument for argument in arguments):
            return (_text(f"{key}[0]", program), *arguments)  # an argument may well be empty
    return _texts(key, value)


def _prompt(key: str, value: object) -> str:
    text = _text(key, value)
    if text not in PROMPT_CHANNELS:
        known = "write one of " + ", ".join(f'"{channel}"' for channel in PROMPT_CHANNELS)
        _fail(key, f"{text!r} is no way to hand over a prompt", _near(text, PROMPT_CHANNELS) or known)
    return text


def _env_names(key: str, value: object) -> tuple[str, ...]:
    names = _texts(key, value)
    for name in names:
        if not _ENV_NAME.fullmatch(name):
            _fail(key, f"{name!r} is not a variable's name", 'for a value write set = { NAME = "value" }')
    return names


def _env(key: str, value: object) -> dict[str, str]:
    variables: dict[str, str] = {}
    for name in (table := _table(key, value)).names():
        if not _ENV_NAME.fullmatch(name):
            _fail(table.path(name), "is not a variable's name", "use letters, digits and '_'")
        variables[name] = table.read(name, _env_value, "")
    return variables


def _env_value(key: str, value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        _fail(key, "is not a text", "put the value in quotes")  # it may be secret: never repeat it
    return value


def _exit_codes(key: str, value: object) -> dict[int, ErrorKind]:
    table = _table(key, value)
    kinds: dict[int, ErrorKind] = {}
    for kind in ErrorKind:
        for code in table.read(kind.value, _codes, ()):
            if code in kinds:
                _fail(table.path(kind), f"{code} is {kinds[code].value} as well", "keep it in one list")
            kinds[code] = kind
    table.refuse_the_rest()
    return kinds


def _codes(key: str, value: object) -> tuple[int, ...]:
    codes = value if isinstance(value, list) else None
    if codes is None or not all(type(code) is int and 1 <= code <= 255 for code in codes):
        _fail(key, f"{value!r} is not a list of exit codes", "write it like [64, 65], each from 1 to 255")
    return tuple(codes)
