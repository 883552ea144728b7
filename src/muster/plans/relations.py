"""What the boxes of a plan have to do with each other: which wait for which, belong to which, and are groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from muster.model.graph import find_cycle

from .attributes import Attributes
from .blocks import Box
from .dialects.base import Parts
from .problems import Problems

CYCLES_TOLD_MAX = 20
CYCLE_SHOWN_MAX = 12

_OWN = frozenset({"depends_on", "parent"})
"""What a group says of itself ..."""
_KEPT_BY_A_GROUP = frozenset({"tags", "metadata"})
"""... and for itself as well: all else that it says is said of its tasks."""


@dataclass(slots=True)
class Draft:
    """A box whose identity is known."""

    box: Box
    key: str
    aliases: tuple[str, ...]
    """By which others may call it as well; its key without a number where several have the same."""
    named: bool
    """By an id or a code, and not by its title."""
    title: str
    attributes: Attributes
    parts: Parts
    """What its dialect has read beside."""
    name: str
    """What its title brings into its key."""
    epic: str = ""
    feature: str = ""
    section: str = ""
    """What stands for all tasks below its heading: see `order.ordered`."""
    body: str = ""


class Relations(NamedTuple):
    """All by key."""

    after: dict[str, tuple[str, ...]]
    parents: dict[str, str]
    groups: frozenset[str]
    fields: dict[str, dict[str, Any]]
    """What is said of each task, also by the groups above it."""


def relate(
    drafts: Sequence[Draft], skipped: Collection[str], problems: Problems, doubts: Problems
) -> Relations:
    """`skipped` are names of boxes that are no tasks, which nobody waits for."""
    names = _Names(drafts, skipped)
    parents = _parents(drafts, names, problems)
    groups = _groups(drafts, parents)
    below: dict[str, list[str]] = {key: [] for key in groups}
    for key, parent in parents.items():
        if parent in groups:
            below[parent].append(key)
    own = {draft.key: names.after(draft, problems, doubts) for draft in drafts}
    said = {
        draft.key: {**draft.parts.fields, **draft.attributes.fields}
        if draft.parts.fields
        else draft.attributes.fields
        for draft in drafts
    }
    after: dict[str, tuple[str, ...]] = {}
    fields: dict[str, dict[str, Any]] = {}
    for draft in drafts:
        key = draft.key
        above = _above(key, parents, groups) if groups else []
        if key in groups:
            after[key] = tuple(below[key])
            fields[key] = {name: value for name, value in said[key].items() if name in _KEPT_BY_A_GROUP}
            continue
        if not above:
            after[key], fields[key] = own[key], said[key]
            continue
        after[key] = tuple(dict.fromkeys(name for one in (key, *above) for name in own[one]))
        fields[key] = {}
        for one in (*reversed(above), key):
            fields[key] |= said[one]
    _find_cycles(after, names.lines, problems, "waits for", "wait for")
    _doubt_ticks(drafts, groups, below, doubts)
    return Relations(after, parents, groups, fields)


class _Names:
    def __init__(self, drafts: Sequence[Draft], skipped: Collection[str]) -> None:
        self.lines: dict[str, int] = {}
        self._aliases: dict[str, list[str]] = {}
        self._skipped = skipped
        self._ids: set[str] = set()
        self._twins: dict[str, list[str]] = {}
        """Those of one name, told apart by a number alone."""
        for draft in drafts:
            self.lines.setdefault(draft.key, draft.box.line)
            for alias in draft.aliases:
                self._aliases.setdefault(alias, []).append(draft.key)
            if draft.attributes.id:
                self._ids.add(draft.key)
            else:
                self._twins.setdefault(draft.aliases[0], []).append(draft.key)

    def after(self, draft: Draft, problems: Problems, doubts: Problems) -> tuple[str, ...]:
        """What it says itself that it waits for."""
        line, asked = draft.box.line, draft.attributes.fields.get("depends_on", ())
        if not asked and not draft.parts.after:
            return ()
        said = self.meant("after", asked, line, problems)
        if not draft.parts.after:
            return said
        return tuple(dict.fromkeys((*said, *self.meant("after", draft.parts.after, line, doubts))))

    def meant(self, attribute: str, names: Sequence[str], line: int, told: Problems) -> tuple[str, ...]:
        """The keys of those that are named, each by its key or an alias."""
        found: dict[str, None] = {}
        for name in names:
            if name in self._ids:
                found[name] = None
                continue
            meant = [name] if name in self.lines else self._aliases.get(name, [])
            if len(self._twins.get(name, ())) > 1:
                meant = self._twins[name]
            if len(meant) == 1:
                found[meant[0]] = None
            elif name in self._skipped:
                continue
            elif meant:
                known = " and ".join(str(self.lines[key]) for key in meant)
                told.add(line, f"{attribute}={name} may be any of lines {known}: name one by its {{#id}}")
            else:
                told.add(line, f"{attribute}={name}: no such task in this plan", name, self.lines.keys())
        return tuple(found)


def _parents(drafts: Sequence[Draft], names: _Names, problems: Problems) -> dict[str, str]:
    by_line = {draft.box.line: draft.key for draft in drafts}
    found: dict[str, tuple[str, ...]] = {}
    for draft in drafts:
        said = draft.attributes.fields.get("parent")
        if said is not None:
            found[draft.key] = names.meant("parent", (said,), draft.box.line, problems)
        elif draft.box.outer is not None:
            found[draft.key] = (by_line[draft.box.outer.line],)
        elif draft.parts.parent in names.lines:
            found[draft.key] = (draft.parts.parent,)
    _find_cycles(found, names.lines, problems, "belongs to", "belong to")
    return {key: parents[0] for key, parents in found.items() if parents and parents[0] != key}


def _groups(drafts: Sequence[Draft], parents: Mapping[str, str]) -> frozenset[str]:
    """Boxes without text of their own that others stand below; `parent=` alone makes no group of a task."""
    above = {
        parents[draft.key]
        for draft in drafts
        if draft.key in parents and "parent" not in draft.attributes.fields
    }
    return frozenset(draft.key for draft in drafts if draft.key in above and not draft.body)


def _above(key: str, parents: Mapping[str, str], groups: Collection[str]) -> list[str]:
    """The groups that it is in, the nearest first."""
    found: list[str] = []
    while (key := parents.get(key, "")) in groups and key not in found:
        found.append(key)
    return found


def _doubt_ticks(
    drafts: Sequence[Draft], groups: Collection[str], below: Mapping[str, Sequence[str]], doubts: Problems
) -> None:
    ticked = {draft.key for draft in drafts if draft.box.done}
    for draft in drafts if ticked and groups else ():
        open_keys = [key for key in below.get(draft.key, ()) if key not in ticked]
        if draft.key in groups and draft.box.done and open_keys:
            told = f"this group is ticked, and {open_keys[0]} below it is not: "
            told += "it is done with the last one below it"
            doubts.add(draft.box.line, told, column=draft.box.column + 1)


def _find_cycles(
    after: Mapping[str, Sequence[str]], lines: Mapping[str, int], problems: Problems, one: str, several: str
) -> None:
    """Notes the cycles among tasks, up to a limit: each without the edge that closed the one before."""
    left = dict(after)
    for _ in range(CYCLES_TOLD_MAX):
        if (cycle := find_cycle(left)) is None:
            return
        left[cycle[-2]] = [name for name in left[cycle[-2]] if name != cycle[-1]]
        if len(cycle) == 2:
            problems.add(lines[cycle[0]], f"the task {one} itself: {' -> '.join(cycle)}")
            continue
        first = cycle.index(min(cycle, key=lambda key: lines[key]))
        cycle = [*cycle[first:-1], *cycle[:first], cycle[first]]
        begin = lines[cycle[0]]
        if len(cycle) > CYCLE_SHOWN_MAX:
            more = f"({len(cycle) - CYCLE_SHOWN_MAX} more)"
            cycle = [*cycle[: CYCLE_SHOWN_MAX - 2], more, *cycle[-2:]]
        problems.add(begin, f"these tasks {several} each other: {' -> '.join(cycle)}")
