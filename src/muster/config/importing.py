"""Reads the settings of another orchestrator and writes them as a `muster.toml`, with where Muster differs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from textwrap import dedent
from typing import Any, NamedTuple

from muster.config.keys import KEYS
from muster.config.layers import Layers, text_source
from muster.config.load import checked
from muster.model.durations import duration_text
from muster.model.errors import BadConfig, BadInput
from muster.model.wording import near

POOL, CLUSTER, PLANNER = "worker pool (JSON)", "agent cluster (YAML)", "plan orchestrator (JSON)"
COUNT_MAX = 1_000_000
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


def _count(least: int, less: int = 0) -> Callable[[object], str]:
    def read(value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= COUNT_MAX:
            raise ValueError(f"a whole number from {least} to {COUNT_MAX}")
        return str(value - less)

    return read


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
    "count": _count(1),
    "count_or_zero": _count(0),
    "one_less": _count(1, less=1),
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


PROBLEMS_MAX = 20
LEAVES_MAX = 1000
DEPTH_MAX = 10
_CAPITAL = re.compile(r"_([a-z])")
_POOL_TABLES = ("", "orchestrator.", "worker.")


class Found(NamedTuple):
    setting: Setting
    key: str
    """As it stands in the file."""
    line: int
    value: str
    """As TOML; empty where it is not carried over."""


class Imported(NamedTuple):
    kind: str
    taken: list[Found]
    aside: list[Found]
    """Also those that have no key of ours, or that another key of the file goes before."""
    toml: str


def import_settings(text: str, file: str) -> Imported:
    """Raises BadInput with every problem of the file, one `file:line: problem` per line."""
    # Anchors can make a short file endless.
    leaves = list(islice(_leaves(_tree(text, file), ""), LEAVES_MAX))
    kind = _kind([key for key, _, _ in leaves])
    known = {setting.source: setting for setting in SETTINGS if setting.kind == kind}
    problems: list[str] = []
    found: list[Found] = []
    for key, line, value in leaves:
        plain = _plain(key, kind)
        setting = known.get(plain) or known.get(f"{plain.rpartition('.')[0]}.*")
        if setting is None:
            problems.append(f"{file}:{line}: unknown key {key}{near(plain, known)}")
            continue
        try:
            written = setting.read(value) if setting.read is not None else ""
        except ValueError as error:
            problems.append(f"{file}:{line}: {key} = {json.dumps(value, default=str)} is not {error}")
            continue
        found.append(Found(setting, key, line, written))
    if not leaves:
        problems.append(f"{file}:1: there are no settings in it")
    if problems:
        more = f"\nand {len(problems) - PROBLEMS_MAX} more" if len(problems) > PROBLEMS_MAX else ""
        raise BadInput(
            "\n".join(problems[:PROBLEMS_MAX]) + more + "\nnothing was written",
            f"it was read as {kind}; `muster config import` in the reference lists the known keys",
        )
    return _sorted_out(kind, found, file)


def _tree(text: str, file: str) -> Any:
    """The YAML nodes of the file, which know their lines.  JSON is YAML but for its tabs."""
    import yaml

    if file.endswith(".json"):
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", 1)
            raise BadInput(
                f"{file}:{line}: not JSON: {error}; nothing was written", "correct that line"
            ) from None
        text = text.replace("\t", " ")
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        reason = getattr(error, "problem", None) or error
        raise BadInput(
            f"{file}:{line}: not YAML: {reason}; nothing was written", "correct that line"
        ) from None


def _leaves(node: Any, path: str) -> Iterator[tuple[str, int, object]]:
    """(dotted key, line, value)."""
    import yaml

    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        # It is repeated in a comment, which must not end where a key says so.
        word = "".join(char if char.isprintable() else "?" for char in str(key.value))
        name = f"{path}.{word}" if path else word
        if isinstance(value, yaml.MappingNode) and value.value and name.count(".") < DEPTH_MAX:
            yield from _leaves(value, name)
        else:
            yield name, key.start_mark.line + 1, _value(value)


def _value(node: Any) -> object:
    """Of a scalar; no setting that is read is anything else."""
    import yaml

    if not isinstance(node, yaml.ScalarNode):
        return None
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError):
        return node.value


def _kind(keys: list[str]) -> str:
    if any(key.startswith("agent_cluster") for key in keys):
        return CLUSTER
    pool = {setting.source for setting in SETTINGS if setting.kind == POOL}
    is_pool = any(_plain(key, POOL) in pool for key in keys)
    tables = ("orchestrator.", "executor.", "sync.", "agent_mappings.")
    return PLANNER if not is_pool and any(key.startswith(tables) for key in keys) else POOL


def _plain(key: str, kind: str) -> str:
    """Pools are written flat or in two tables, in camelCase or with underscores."""
    if kind != POOL:
        return key
    table, dot, name = key.rpartition(".")
    return _CAPITAL.sub(lambda match: match[1].upper(), name) if table + dot in _POOL_TABLES else key


def _sorted_out(kind: str, found: list[Found], file: str) -> Imported:
    taken: dict[str, Found] = {}
    aside: list[Found] = []
    # The later one of the table goes before: it is the nearer relative.
    for one in sorted(found, key=lambda one: SETTINGS.index(one.setting)):
        if not one.setting.target or one.setting.aside:
            aside.append(one)
            continue
        if one.setting.target in taken:
            aside.append(taken[one.setting.target])
        taken[one.setting.target] = one
    toml = _toml(taken, aside, file)
    try:
        checked(Layers([text_source(toml)]), {})
    except BadConfig as error:
        raise BadInput(f"{file}: its values do not go together: {error.message}", error.hint) from error
    return Imported(kind, list(taken.values()), aside, toml)


def _toml(taken: dict[str, Found], aside: list[Found], file: str) -> str:
    lines = [f"# From {file}."]
    table = ""
    for key in KEYS:
        one = taken.get(key.path)
        if one is None:
            continue
        section, _, name = key.path.partition(".")
        if section != table:
            table = section
            lines += ["", f"[{section}]"]
        if one.setting.note:
            lines.append(f"# {one.setting.note}")
        lines.append(f"{name} = {one.value}  # {one.key}")
    if aside:
        lines += ["", "# Not carried over:"]
    for one in aside:
        ours = f" ({one.setting.target} = {one.value})" if one.setting.target else ""
        lines.append(f"# {one.key}{ours}: {one.setting.note or 'another key of that file goes before it'}")
    return "\n".join(lines) + "\n"
