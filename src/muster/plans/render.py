"""A kept plan written out as a plan file.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from muster.model.edits import KeptTask, PlanTask, differences, slug, task_fields_of, without_barriers
from muster.model.fields import ATTRIBUTES
from muster.model.states import TaskStatus
from muster.model.task import TaskFields

from .attributes import ID
from .markdown import parse
from .problems import Problems


class Usual(NamedTuple):
    """What need not be written, because the file's reader would take the same."""

    agent: str | None
    timeout_s: int
    retries: int


class Rendered(NamedTuple):
    text: str
    lost: tuple[str, ...]
    """What a plan file cannot say, a sentence each."""


def render(name: str, tasks: Sequence[KeptTask], usual: Usual, guessed: Mapping[str, str]) -> Rendered:
    """The plan as markdown.  `guessed` is the profile that each key's words suggest: that one is not written.

    Raises BadPlan where the texts of the tasks would be read as something else altogether.
    """
    shown = without_barriers([task for task in tasks if not task.gone])
    keys = {task.key for task in shown}
    inner = _inner(shown)
    lines = [f"# {name}", ""]
    groups: dict[tuple[str, str], list[KeptTask]] = {}
    within = {task.key for below in inner.values() for task in below}
    for task in shown:
        if task.key not in within:
            groups.setdefault((task.epic, task.feature), []).append(task)
    at: tuple[str, str] = ("", "")
    for group in ordered_groups(groups):
        lines += _headings(at, group)
        at = group
        for task in groups[group]:
            lines += _nested(task, inner, lambda task: _task(task, usual, keys, guessed))
        lines.append("")
    text = "\n".join(lines)
    return Rendered(text, tuple(_lost(text, name, shown, keys)))


def _inner(tasks: Sequence[KeptTask]) -> dict[str, list[KeptTask]]:
    """The boxes below each group, by its key."""
    groups = {task.key: task for task in tasks if task.is_group}
    found: dict[str, list[KeptTask]] = {}
    for task in tasks:
        group = groups.get(task.parent or "")
        if group is not None and (group.epic, group.feature) == (task.epic, task.feature):
            found.setdefault(group.key, []).append(task)
    return found


def _nested(
    task: KeptTask, inner: Mapping[str, Sequence[KeptTask]], written: Callable[[KeptTask], list[str]]
) -> list[str]:
    children = (replace(child, parent=None) for child in inner.get(task.key, ()))
    below = [line for child in children for line in _nested(child, inner, written)]
    return written(task) + [f"  {line}" if line else "" for line in below]


def ordered_groups(groups: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """In their order, but each epic in one piece, and what has no heading first: no heading ends another one."""
    epics = list(dict.fromkeys(epic for epic, _ in groups))
    epics.sort(key=bool)
    by_epic: dict[str, list[tuple[str, str]]] = {epic: [] for epic in epics}
    for epic, feature in groups:
        by_epic[epic].append((epic, feature))
    return [group for epic in epics for group in sorted(by_epic[epic], key=lambda group: bool(group[1]))]


def _headings(before: tuple[str, str], group: tuple[str, str]) -> list[str]:
    epic, feature = group
    lines = [f"## {epic}", ""] if epic and epic != before[0] else []
    if feature and group != before:
        lines += [f"### {feature}", ""]
    return lines


def _task(task: KeptTask, usual: Usual, keys: set[str], guessed: Mapping[str, str]) -> list[str]:
    title = " ".join(task.title.split())
    box = "x" if task.status is TaskStatus.COMPLETED else " "
    found = _attributes(task, usual, keys, guessed)
    derived = "/".join(part for part in (slug(task.epic), slug(task.feature), slug(title) or "task") if part)
    if task.key != derived and ID.fullmatch(task.key):
        found.insert(0, f"#{task.key}")
    if not found and "{" in title:
        found.append(f"priority={task.priority}")  # or the title's own brace would be taken for attributes
    end = f" {{{' '.join(found)}}}" if found else ""
    body = [f"  {line}" if line.strip() else "" for line in task.description.splitlines()]
    return [f"- [{box}] {title}{end}", *(["", *body, ""] if body else [])]


def _attributes(task: KeptTask, usual: Usual, keys: set[str], guessed: Mapping[str, str]) -> list[str]:
    asks = task.capabilities or task.profile or task.target
    words_suffice = guessed.get(task.key) == task.profile and not task.capabilities and not task.target
    unwritten = {
        "agent": task.agent == usual.agent and not asks,
        "profile": words_suffice,
        "timeout_s": task.timeout_s == usual.timeout_s,
        "max_retries": task.max_retries == usual.retries,
        "parent": task.parent not in keys,
        "depends_on": task.is_group,
    }
    values = {known.name: getattr(task, known.name, None) for known in ATTRIBUTES.values()}
    values["depends_on"] = tuple(name for name in task.depends_on if name in keys)
    return [
        f"{known.attribute}={quoted_value(known.kind.write(value))}"
        for known in ATTRIBUTES.values()
        if (value := values[known.name]) not in (None, known.usual) and not unwritten.get(known.name)
    ]


def quoted_value(value: str) -> str:
    return f'"{value}"' if any(char in value for char in " \t\"'{}`") else value


def _lost(text: str, name: str, tasks: Sequence[KeptTask], keys: set[str]) -> Iterable[str]:
    """Reads what was written, and says what comes out otherwise."""
    if not tasks:
        return
    doubts = Problems(f"{name}.md")
    read = {task.key: task for task in parse(text, doubts.file, doubts).tasks}
    yield from doubts.told()
    for task in tasks:
        found = read.get(task.key)
        if found is None:
            yield f"{task.key}: its name cannot be written; read again it is another task"
            continue
        outside = [parent for parent in task.depends_on if parent not in keys]
        if outside:
            yield f"{task.key}: it waits for {', '.join(outside)}, which is not in this file"
        fields = differences(_told(task, keys), _as_read(task, found))
        if fields:
            yield f"{task.key}: {', '.join(fields)} cannot be written as it is"


def _told(task: KeptTask, keys: set[str]) -> TaskFields:
    fields = task_fields_of(task)
    inside = tuple(name for name in fields.depends_on if name in keys)
    return replace(fields, depends_on=inside, parent=task.parent if task.parent in keys else None)


def _as_read(task: KeptTask, found: PlanTask) -> TaskFields:
    """What is not in the file is what its reader takes: that was looked at before it was left out."""
    kept = {name: getattr(task, name) for name in ("agent", "profile", "timeout_s", "max_retries")}
    return task_fields_of(replace(found, **{n: v for n, v in kept.items() if getattr(found, n) is None}))
