"""Reads a plan from markdown, and ticks its boxes.  Pure.

A plan is a markdown file with boxes (`- [ ] Title {#id after=a,b}`).  The document's only H1 is the plan's
title and the two highest levels of headings below it are epic and feature; with several H1s, or none, the two
highest levels there are.  What is indented beneath a box is the task's prompt.
"""

from __future__ import annotations

import gc
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import PurePath
from typing import Any, NamedTuple

from muster.model.edits import PlanDocument, PlanTask, key_part, slug
from muster.model.errors import BadPlan
from muster.model.fields import ATTRIBUTES
from muster.model.kinds import NAME_CHARS_MAX, PRIORITIES
from muster.model.states import ORDERS

from . import attributes
from .blocks import Blocks, Box, Heading, lines_of, scan
from .dialects import Recognised, recognised
from .keys import Keys
from .problems import EXAMPLE, Problems, quoted
from .relations import Draft, Relations, relate

BOM = "\ufeff"

TICKED = frozenset("xX")
PLAN_WIDE = ("check", "review")
"""Attributes that a front matter may give to all tasks of its plan."""
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_PRIORITY = re.compile(r"(?:\[(P[0-2])\]|\((P[0-2])\)|(P[0-2]):)(?:[ \t]+|\Z)")
_CODE = re.compile(r"([A-Za-z]+[-.]?[0-9][A-Za-z0-9]*(?:[.-][A-Za-z0-9]+)*):(?:[ \t]+|\Z)")


@dataclass(slots=True)
class _Levels:
    """What holds for the whole file: which headings are what, and whose file it is."""

    title: str
    epic: int
    feature: int
    usual: dict[str, str]
    """What the front matter says for all tasks, by field."""
    order: str
    """What it says of their order."""
    seen: Recognised
    skipped: set[str]
    """Keys of boxes that are no tasks, as far as they have been read."""

    def section(self, path: Iterable[Heading], alike: Counter[str]) -> _Section:
        """`alike`: how many sections above have the same names."""
        # All but the plan's title are part of a task's identity.
        names = [heading for heading in path if not (self.title and heading.level == 1)]
        begin, texts = _prefix(names), {heading.level: heading.text for heading in names}
        alike[begin] += 1
        number = alike[begin] if alike[begin] > 1 else ""
        return _Section(begin, f"{begin}*{number}", texts.get(self.epic, ""), texts.get(self.feature, ""))


class _Section(NamedTuple):
    """What the headings above a box say of it."""

    begin: str = ""
    """What the keys of its boxes begin with."""
    key: str = ""
    """As in `PlanTask.section`."""
    epic: str = ""
    feature: str = ""


@contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing of a plan is garbage before it is read, and looking for some takes an eighth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


@_no_collection()
def parse(text: str, file: str, doubts: Problems | None = None, dialect: str | None = None) -> PlanDocument:
    """The plan that `text` holds; `file` is its name in errors, `dialect` goes before what its front matter says.

    Raises BadPlan with every problem of the file, one `file:line: problem` per line (the first 20).  What looks
    odd, and was perhaps meant otherwise than it is read, is told in `PlanDocument.doubts`; `doubts` takes it too.
    """
    problems = Problems(file)
    doubts = Problems(file) if doubts is None else doubts
    levels, found = _read(text, problems, doubts, dialect)
    seen = levels.seen.dialect
    if seen.refusal:
        raise BadPlan(f"{file}:1: {seen.refusal}", seen.instead)
    drafts = list(found)
    if not drafts and not problems:
        raise BadPlan(f"{file}:1: the plan has no tasks", EXAMPLE)
    for draft in drafts:
        body = draft.box.body()
        draft.body, draft.parts = seen.read_body(body, draft.parts) if body else ("", draft.parts)
    relations = relate(drafts, levels.skipped, problems, doubts)
    name = slug(levels.title) or slug(PurePath(file).stem) or "plan"
    if len(name) > NAME_CHARS_MAX:
        _tell_too_long(name, levels.title, text, problems)
    if problems:
        problems.raise_all()
    return PlanDocument(
        name=name,
        title=levels.title,
        tasks=tuple(_task(draft, levels, relations) for draft in drafts),
        order=levels.order,
        dialect=seen.name,
        dialect_why=levels.seen.why,
        dialect_order=seen.order,
        dialect_says=seen.says,
        doubts=tuple(doubts.told()),
    )


def tick(data: bytes, keys: Collection[str], file: str = "the plan") -> tuple[bytes, frozenset[str]]:
    """The plan with the boxes of these tasks ticked, and the keys whose boxes are ticked now.

    One byte per box differs; one more is there where nothing stood between the brackets.  A key that the plan
    does not hold, or holds twice, is left out; whatever else is wrong with it keeps no box from being ticked.
    Raises BadPlan where it is not UTF-8.
    """
    text, boxes = _boxes_of(data, file, keys)
    return marked(text, {at: put_mark("x", text[at]) for at in boxes.values()}), frozenset(boxes)


def boxes(data: bytes, file: str) -> dict[str, int]:
    """The byte between the brackets of each task's box, or the second bracket; not of a task that the plan holds
    twice.

    Raises BadPlan where it is not UTF-8.
    """
    text, found = _boxes_of(data, file)
    if text.isascii():
        return found
    bytes_to, at = 0, 0
    places = {}
    for key, offset in sorted(found.items(), key=itemgetter(1)):
        bytes_to, at = bytes_to + len(text[at:offset].encode()), offset
        places[key] = bytes_to
    return places


def put_mark(mark: str, before: str) -> str:
    """What stands in the place of `before` once a box has this mark; what is ticked stays ticked as it is."""
    if before == "]":
        return f"{mark}]" if mark in TICKED else before
    return before if mark in TICKED and before in TICKED else mark


def _boxes_of(data: bytes, file: str, keys: Collection[str] | None = None) -> tuple[str, dict[str, int]]:
    """The text, and where between the brackets of each task's box is; with `keys` of these alone.

    Raises BadPlan where it is not UTF-8.
    """
    text = decode(data, file)
    _, drafts = _read(text, Problems(file), Problems(file))
    found: dict[str, int] = {}
    twice: set[str] = set()
    for draft in drafts:
        if keys is None or draft.key in keys:
            if draft.key in found:
                twice.add(draft.key)
            found[draft.key] = draft.box.offset
    return text, {key: at for key, at in found.items() if key not in twice}


def marked(text: str, marks: Mapping[int, str]) -> bytes:
    """`text` with these characters at these places."""
    pieces, end = [], 0
    for at in sorted(marks):
        pieces += [text[end:at], marks[at]]
        end = at + 1
    # Decoded strictly, or with surrogates, it encodes to the same bytes: what was not touched stays as it was.
    return "".join([*pieces, text[end:]]).encode(errors="surrogateescape")


_NEXT_MARKS = {b"<": b"|=", b"|": b"=", b"=": b">"}
"""By the mark of git's that begins a part of a conflict, those that may end it."""


def _mark(line: bytes) -> bytes:
    """Which of git's marks of a conflict the line is, as one character; empty for none."""
    first = line[:1]
    if first not in {b"<", b"|", b"=", b">"} or line[:7] != first * 7:
        return b""
    rest = line[7:].rstrip(b"\r")
    return first if not rest or (first != b"=" and rest[:1] == b" ") else b""


def _conflict(data: bytes) -> tuple[int, tuple[bytes, bytes]] | None:
    """The line of the first whole conflict of git's, and the text as either side has it; None without one."""
    ours: list[bytes] = []
    theirs: list[bytes] = []
    parts: dict[bytes, list[bytes]] = {}
    whole: list[bytes] = []  # all lines since a conflict has begun, which perhaps does not end
    part, began, first = b"", 0, 0
    for number, line in enumerate(data.split(b"\n"), 1):
        mark = _mark(line)
        if mark == b"<":
            ours += whole
            theirs += whole
            part, began, whole, parts = mark, number, [line], {b"<": [], b"|": [], b"=": []}
        elif part and mark and mark in _NEXT_MARKS[part]:
            whole.append(line)
            part = mark
            if mark == b">":
                ours += parts[b"<"]
                theirs += parts[b"="]
                part, whole, first = b"", [], first or began
        elif part:
            whole.append(line)
            parts[part].append(line)
        else:
            ours.append(line)
            theirs.append(line)
    return (first, (b"\n".join([*ours, *whole]), b"\n".join([*theirs, *whole]))) if first else None


def decode(data: bytes, file: str) -> str:
    """`data` as text, byte order mark included.  Raises BadPlan with the line that is not UTF-8, or where git has
    left a conflict: both sides of it would be tasks."""
    try:
        if b"<<<<<<<" in data and (found := _conflict(data)):
            line, sides = found
            error = BadPlan(
                f"{file}:{line}: git has left a conflict there; nothing of the file is taken in or ticked",
                "Keep what is right between <<<<<<< and >>>>>>>, without these lines, and save the file.",
            )
            error.sides = sides
            raise error
        return data.decode()
    except UnicodeDecodeError as error:
        line = len(re.findall(rb"\r\n|\r|\n", data[: error.start])) + 1
        byte = data[error.start]
        raise BadPlan(
            f"{file}:{line}: not UTF-8 (byte 0x{byte:02x})", "Save the file as UTF-8 and try again."
        ) from None


def _read(
    text: str,
    problems: Problems,
    doubts: Problems,
    dialect: str | None = None,
    *,
    every: bool = False,
) -> tuple[_Levels, Iterator[Draft]]:
    """`doubts` takes what was probably meant otherwise than it is read; `every` box, also one that is no task.

    The boxes come one by one: of a long plan, whoever looks for some of them is not to hold them all.
    """
    _find_unfit_characters(text, problems)
    marked = len(BOM) if text.startswith(BOM) else 0
    blocks = scan(text[marked:])
    levels = _levels(blocks, text, problems, dialect)
    _tell_near_boxes(blocks, levels, doubts)

    def drafts() -> Iterator[Draft]:
        number, section, alike = -1, _Section(), Counter[str]()
        ids: dict[str, int] = {}
        keys = Keys(blocks.boxes)
        outer: list[Draft] = []
        without: set[int] = set()
        dropped_marks = frozenset(levels.seen.dialect.dropped_marks)
        for box in blocks.boxes:
            box.offset += marked
            if box.section != number:
                number, section = box.section, levels.section(box.path, alike)
            while outer and outer[-1].box is not box.outer:
                outer.pop()
            begins: tuple[str, ...] = (section.begin,)
            if outer:
                path = "".join([f"{above.name}/" for above in outer])
                begins = (f"{outer[-1].key}/", section.begin + path, section.begin)
            draft = _draft(box, begins, keys, levels, (problems, doubts))
            draft.epic, draft.feature, draft.section = section.epic, section.feature, section.key
            outer.append(draft)
            dropped = draft.parts.skip or box.mark in dropped_marks
            if dropped or (box.outer is not None and box.outer.line in without):
                without.add(box.line)
                levels.skipped.update((draft.key, *draft.aliases))
                if every:
                    yield draft
                continue
            if draft.parts.doubt:
                doubts.add(box.line, draft.parts.doubt)
            name = draft.attributes.id
            if name and (line := ids.setdefault(name, box.line)) != box.line:
                problems.add(box.line, f"{quoted(name)} is also the id of line {line}: rename one of them")
            yield draft

    return levels, drafts()


def read_boxes(text: str, problems: Problems, doubts: Problems, *, every: bool = False) -> Iterator[Draft]:
    """As `_read`."""
    return _read(text, problems, doubts, every=every)[1]


def _tell_near_boxes(blocks: Blocks, levels: _Levels, doubts: Problems) -> None:
    known = {f"[{mark}]" for mark in levels.seen.dialect.known_marks + levels.seen.dialect.dropped_marks}
    for near in blocks.near_boxes:
        seen, meant = quoted(near.seen), quoted(near.meant)
        if near.read and near.seen in known:
            continue
        if near.read:
            told = f"{seen} is read as {near.read}" + (f": write {meant}" if near.meant else "")
        else:
            told = f"{seen} looks like a box, but is read as text: write {meant}, or a \\ before its bracket"
        doubts.add(near.line, told, column=near.column)
    for what in blocks.unclosed:
        number = "1 box below it is" if what.boxes == 1 else f"{what.boxes} boxes below it are"
        doubts.add(what.line, f"this {what.what} has no end: {number} read as text", column=what.column)


def _find_unfit_characters(text: str, problems: Problems) -> None:
    if not _UNFIT.search(text):
        return
    for number, (_, line) in enumerate(lines_of(text), 1):
        if found := _UNFIT.search(line):
            problems.add(
                number, f"control character U+{ord(found[0]):04X} at column {found.start() + 1}: remove it"
            )


def _levels(blocks: Blocks, text: str, doubts: Problems, dialect: str | None) -> _Levels:
    tops = [heading.text for heading in blocks.headings if heading.level == 1]
    title = tops[0] if len(tops) == 1 else ""
    below = sorted({heading.level for heading in blocks.headings if not (title and heading.level == 1)})
    epic, feature, *_ = *below, 0, 0
    matter = _front_matter(blocks.matter, doubts) if blocks.matter else {}
    seen = recognised(text, doubts.file, dialect or matter.get("dialect"))
    return _Levels(title, epic, feature, _usual(matter, doubts), _order(matter, doubts), seen, set())


def _tell_too_long(name: str, title: str, text: str, problems: Problems) -> None:
    line = next((at for at, one in enumerate(text.splitlines(), 1) if title and title in one), 1)
    of, cure = (
        ("the plan's title", "shorten the title") if title else ("the file's name", "give it a `# Title`")
    )
    problems.add(
        line,
        f"{of} makes a name of {len(name):,} characters, and a plan's name has at most {NAME_CHARS_MAX}: {cure}",
    )


def _front_matter(matter: str, doubts: Problems) -> dict[str, object]:
    import yaml

    try:
        said = yaml.safe_load(matter)
    except Exception as error:  # its readers of dates and numbers raise what they like
        doubts.add(
            1,
            f"the front matter is no YAML, so nothing of it is heeded: {' '.join(str(error).split())}",
        )
        return {}
    return said if isinstance(said, dict) else {}


def _order(matter: Mapping[str, object], doubts: Problems) -> str:
    """A number is another program's: it sorts pages by it."""
    said = matter.get("order", "")
    if isinstance(said, str) and said not in ("", *ORDERS):
        doubts.add(1, f"order of the front matter is {said!r}, and not one of {', '.join(ORDERS)}")
    return said if isinstance(said, str) and said in ORDERS else ""


def _usual(matter: Mapping[str, object], doubts: Problems) -> dict[str, str]:
    """The rest of a front matter is for other programs."""
    found = {name: matter[name] for name in PLAN_WIDE if name in matter}
    for name, value in found.items():
        if not isinstance(value, str):
            doubts.add(1, f"{name} of the front matter is {value!r}, and not a text: put it in quotes")
    return {ATTRIBUTES[name].name: value for name, value in found.items() if isinstance(value, str)}


def _prefix(names: list[Heading]) -> str:
    slugs = (key_part(heading.text) for heading in names)
    return "".join(f"{part}/" for part in slugs if part)


def _draft(
    box: Box, begins: tuple[str, ...], keys: Keys, levels: _Levels, told: tuple[Problems, Problems]
) -> Draft:
    """`begins` is what a key made of its title begins with, and with what others may begin it; `told` are
    problems and doubts."""
    problems, doubts = told
    text, found = attributes.split(box.text, (box.line, box.text_column), problems, doubts)
    parts = levels.seen.dialect.read_title(text)
    priority, text = leading_priority(parts.title)
    named_by = found.id or parts.id
    code = None if parts.id else _CODE.match(text)
    title = text
    if code and not named_by and not keys.is_id(code[1]):
        code = None
    if code and not named_by:
        second, title = leading_priority(text[code.end() :])
        priority = priority or second
    if priority and "priority" in found.fields:
        problems.add(box.line, "the priority is given twice")
    if priority:
        found.fields["priority"] = priority
    if not title:
        problems.add(box.line, "the task has no title")
    own = key_part(title) or "task"
    wanted = parts.id or (code[1] if code else begins[0] + own)
    derived = [begin + own for begin in begins]
    return Draft(
        box=box,
        key=found.id or keys.free(wanted),
        aliases=tuple(dict.fromkeys((wanted, *derived))),
        named=bool(named_by or code),
        title=title,
        attributes=found,
        parts=parts,
        name=own,
    )


def leading_priority(text: str) -> tuple[int | None, str]:
    match = _PRIORITY.match(text)
    if not match:
        return None, text
    return PRIORITIES[match[1] or match[2] or match[3]], text[match.end() :]


def _task(draft: Draft, levels: _Levels, found: Relations) -> PlanTask:
    group = draft.key in found.groups
    fields: dict[str, Any] = {
        **({} if group else levels.usual),
        **found.fields[draft.key],
        "key": draft.key,
        "title": draft.title,
        "description": draft.body,
        "done": draft.box.done,
        "depends_on": found.after[draft.key],
        "parent": found.parents.get(draft.key),
        "epic": draft.epic,
        "feature": draft.feature,
        "line": draft.box.line,
        "is_group": group,
        "section": draft.section,
        "beside": draft.parts.beside,
    }
    return PlanTask(**fields)
