"""The items of another tool, written as a plan file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import count, pairwise
from typing import Any, NamedTuple

from muster.model.edits import slug
from muster.model.errors import BadPlan
from muster.model.fields import ATTRIBUTES
from muster.model.graph import find_cycle
from muster.model.kinds import NAME_CHARS_MAX, TITLE_CHARS_MAX
from muster.plans import attributes
from muster.plans.attributes import ID
from muster.plans.blocks import scan
from muster.plans.markdown import leading_priority
from muster.plans.problems import Problems
from muster.plans.render import ordered_groups, quoted_value

from .source import Item, Reading

MATTER = "---\norder: {}\ndialect: none\n---\n"
"""What a source says of order is written as `after=`, and its titles are not to be read a second time."""
PASSED_ON_MAX = 1000
"""Characters of a group's text that each task below it is told."""
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufeff]")
_NO_ID = re.compile(r"[^A-Za-z0-9._/-]+")
_ENDS = ("", "\n```", "\n~~~", "\n-->", "\n</pre>", "\n</script>", "\n</style>", "\n</textarea>")


class WrittenPlan(NamedTuple):
    name: str
    text: str
    tasks: int
    lost: tuple[str, ...]


def written(found: Reading) -> WrittenPlan:
    """Raises BadPlan where there is nothing to be written."""
    if not found.items:
        raise BadPlan(
            "\n".join(["nothing in it can be carried over", *found.lost]), "muster plan import --help"
        )
    title = _line(found.title) or "Imported"
    items = _with_ids(found)
    below: dict[str, list[Item]] = {}
    for item in items:
        below.setdefault(item.parent, []).append(item)
    _pass_on(found, items, below)
    lines = [MATTER.format(found.order), f"# {title}", ""]
    groups: dict[tuple[str, str], list[Item]] = {}
    for item in below[""]:
        epic, feature = _line(item.epic), _line(item.feature)
        groups.setdefault((epic or feature, feature if epic else ""), []).append(item)
    at = ""
    for epic, feature in ordered_groups(groups):
        lines += [f"## {epic}", ""] if epic and epic != at else []
        lines += [f"### {feature}", ""] if feature else []
        at = epic
        for item in groups[epic, feature]:
            lines += _box(item, below, 0)
        lines.append("")
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip("\n") + "\n"
    return WrittenPlan(slug(title) or "imported", text, len(items), tuple(found.lost))


def _line(text: str) -> str:
    return " ".join(_UNFIT.sub("", text).split())


def _with_ids(found: Reading) -> list[Item]:
    """With names that a plan takes, and without edges to what is not there."""
    keys: dict[str, str] = {}
    taken: set[str] = set()
    for item in found.items:
        key = _free(
            _NO_ID.sub("-", item.id).strip("._/-")[:NAME_CHARS_MAX] or slug(item.title) or "task", taken
        )
        if key != item.id:
            found.lost.append(f"{item.id or item.title} is called {key}")
        keys.setdefault(item.id, key)
        item.id = key
        taken.add(key)
    for item in found.items:
        item.after = tuple(dict.fromkeys(_known(found, item, item.after, keys, "waited for")))
        item.parent = next(_known(found, item, filter(None, [item.parent]), keys, "belonged to"), "")
        for name in ("tags", "metadata"):
            if name in item.fields:
                item.fields[name] = _without_commas(item.fields[name])
    items = {item.id: item for item in found.items}
    for item in found.items:
        seen, at = {item.id}, item
        while at.parent:
            if at.parent in seen:
                found.lost.append(f"{at.id} no longer belongs to {at.parent}: they belong to each other")
                at.parent = ""
                break
            seen.add(at.parent)
            at = items[at.parent]
    _cut_cycles(found, items)
    return found.items


def _cut_cycles(found: Reading, items: Mapping[str, Item]) -> None:
    """A group waits for what is below it, and that for all that the group waits for."""
    groups = {key: _groups_above(item, items) for key, item in items.items()}
    while True:
        edges = {key: list(item.after) for key, item in items.items()}
        for key, above in groups.items():
            for group in above:
                edges[group.id].append(key)
                edges[key] += group.after
        if (cycle := find_cycle(edges)) is None:
            return
        for one, other in pairwise(cycle):
            waiting = next((item for item in (items[one], *groups[one]) if other in item.after), None)
            if waiting is not None:
                waiting.after = tuple(name for name in waiting.after if name != other)
                found.lost.append(f"{waiting.id} waited for {other}, which waits for it in turn")
                break


def _groups_above(item: Item, items: Mapping[str, Item]) -> list[Item]:
    found: list[Item] = []
    while item.parent:
        item = items[item.parent]
        if item.group or not item.text:
            found.append(item)
    return found


def _without_commas(values: Any) -> Any:
    """A comma would end a value."""
    if isinstance(values, dict):
        return {_name(key).replace("=", "-"): _name(value) for key, value in values.items()}
    return tuple(dict.fromkeys(filter(None, map(_name, values))))


def _name(text: str) -> str:
    return _line(text.replace(",", " "))[:NAME_CHARS_MAX]


def _free(wanted: str, taken: set[str]) -> str:
    wanted = wanted if ID.fullmatch(wanted) else "task"
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in count(1))
    return next(name for name in names if name not in taken)


def _known(
    found: Reading, item: Item, names: Iterable[str], keys: dict[str, str], verb: str
) -> Iterator[str]:
    for name in names:
        key = keys.get(name)
        if item.done and (key is None or key == item.id):
            continue  # it waits for nothing any more
        if key == item.id:
            found.lost.append(f"{item.id} {verb} itself")
        elif key is None:
            found.lost.append(f"{item.id} {verb} {name}, which is not carried over")
        else:
            yield key


def _pass_on(found: Reading, items: list[Item], below: dict[str, list[Item]]) -> None:
    """A group has no text of its own, or it would be a task as well: those below it are told."""
    for item in items:
        if not item.group or item.id not in below or not item.text:
            continue
        text = item.text
        if len(text) > PASSED_ON_MAX:
            text = text[:PASSED_ON_MAX].rpartition(" ")[0] + " ..."
            found.lost.append(f"the text of {item.id} is cut where the tasks below it are told of it")
        for child in below[item.id]:
            if child.done:
                continue
            child.text = "\n\n".join(filter(None, [child.text, f"This is part of {item.title}: {text}"]))
        item.text = ""


def _box(item: Item, below: dict[str, list[Item]], depth: int) -> list[str]:
    margin = "  " * depth
    lines = [f"{margin}- [{'x' if item.done else ' '}] {_titled(item)}"]
    if body := _body(item.text):
        lines += ["", *(f"{margin}  {line}".rstrip() for line in body.split("\n")), ""]
    for child in below.get(item.id, ()):
        lines += _box(child, below, depth + 1)
    return lines


def _titled(item: Item) -> str:
    title = _line(item.title)[: TITLE_CHARS_MAX - 100] or item.id
    priority, rest = leading_priority(title)
    if priority and rest:
        title = rest
        item.fields.setdefault("priority", priority)
    doubts = Problems("")
    if attributes.split(title, (1, 1), doubts, doubts)[0] != title or doubts:
        title = title.translate(str.maketrans("{}", "()")).replace("after=", "after: ")
    values = {"depends_on": item.after, **item.fields}
    said = [
        f"{known.attribute}={quoted_value(_plain(known.kind.write(values[known.name])))}"
        for known in ATTRIBUTES.values()
        if values.get(known.name)
    ]
    return f"{title} {{{' '.join([f'#{item.id}', *said])}}}"


def _plain(value: str) -> str:
    return _line(value).translate(str.maketrans('"{}`', "'()'"))


def _body(text: str) -> str:
    """As text that holds no box and leaves nothing open: what comes after it are tasks of their own."""
    body = _UNFIT.sub("", text.replace("\r\n", "\n").replace("\r", "\n")).strip("\n").rstrip()
    if not body.strip():
        return ""
    lines = body.expandtabs(4).split("\n") if "\t" in body else body.split("\n")
    shown = _indented(lines)
    for _ in lines:
        blocks = scan(shown)
        boxes = blocks.boxes[1:]
        if not boxes and all(near.read for near in blocks.near_boxes):
            break
        for box in boxes:
            number = box.line - 3
            lines[number] = lines[number].replace("[", "\\[", 1)
        for at in (near.line - 3 for near in blocks.near_boxes if not near.read):
            lines[at] = re.sub(r"(?<!\\)[\[☐☑☒]", lambda mark: "\\" + mark[0], lines[at], count=1)
        shown = _indented(lines)
    for end in _ENDS:
        if len(scan(_indented((*lines, *end.split("\n"))) + "\n\n  - [ ] x").boxes) == 2:
            return "\n".join([*lines, *filter(None, end.split("\n"))])
    return "\n".join(re.sub(r"^\s*(`{3,}|~{3,}|<)", r"\\\1", line) for line in lines)


def _indented(lines: Iterable[str]) -> str:
    return "- [ ] x\n\n" + "\n".join(f"  {line}" for line in lines)
