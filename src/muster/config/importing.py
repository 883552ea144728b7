"""Reads the settings of another orchestrator and writes them as a `muster.toml`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

from muster.config.foreign import CLUSTER, PLANNER, POOL, SETTINGS, Setting
from muster.config.keys import KEYS
from muster.config.layers import Layers, text_source
from muster.config.load import checked
from muster.model.errors import BadConfig, BadInput
from muster.model.wording import near

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
        setting = _setting(key, known, kind)
        if setting is None:
            problems.append(f"{file}:{line}: unknown key {key}{near(_plain(key, kind), known)}")
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


def _setting(key: str, known: dict[str, Setting], kind: str) -> Setting | None:
    plain = _plain(key, kind)
    return known.get(plain) or known.get(f"{plain.rpartition('.')[0]}.*")


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
