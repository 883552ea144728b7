"""A plan that a model has written, in the midst of whatever else it said.  Pure.

It is taken apart and written anew, so that the file holds nothing but what a model may decide: titles, texts,
ids, what waits for what, and who is to do it and what is to prove it, which a person sees before it is added.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from muster.model.edits import PlanDocument, PlanTask
from muster.model.errors import BadPlan
from muster.model.fields import ATTRIBUTES
from muster.model.profiles import GENERAL_PURPOSE
from muster.model.states import FILE_ORDER, FREE

from .blocks import scan
from .importers.source import Item, Reading
from .importers.writing import WrittenPlan, written
from .markdown import BOM, parse
from .problems import quoted

CHARS_MAX = 100_000
TASKS_MAX = 200
"""More than that nobody reads before saying yes."""
TITLE_CHARS_MAX = 100
"""Of the plan."""
TAKEN = ("after", "check", "agent", "profile", "touches")
"""Attributes that a model may give; `#id` too."""
NAME = "answer"
"""Of the plan in problems."""
_FENCE = re.compile(r"(`{3,}|~{3,})[ \t]*([^`\s]*)[^`]*$")
_HIDDEN = re.compile("[\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
"""What turns writing around, and letters that nobody sees."""
_POSES = re.compile(
    r"^\W*(?:(?:note|message|word|instruction)s?\s+from\s+(?:a\s+person|the\s+user|muster)|muster"
    r"|why\s+your\s+last\s+result\s+was\s+not\s+taken)\s*:.*",
    re.IGNORECASE | re.MULTILINE,
)
"""As Muster itself puts it where it adds something to a task's text."""
_KEY = re.compile(r"^([A-Za-z_][\w.-]*)[ \t]*:", re.MULTILINE)
_SHOWN = 5


class Allowed(NamedTuple):
    """What a model may name."""

    agents: Collection[str]
    profiles: Collection[str]


def read_answer(said: str, allowed: Allowed) -> WrittenPlan:
    """Its plan, written anew; `lost` names what of it was not taken.

    Raises BadPlan with what is wrong: `answer:7: ...` is the seventh line of the plan in it.
    """
    text = said.replace("\r\n", "\n").replace("\r", "\n").removeprefix(BOM)
    if not text.replace(BOM, "").strip():
        raise BadPlan("the answer is empty")
    if len(text) >= CHARS_MAX:
        raise BadPlan(f"the answer has {CHARS_MAX:,} characters or more, so it may be cut off")
    plan, dropped = _without_matter(_plan_in(text))
    if (number := len(scan(plan).boxes)) > TASKS_MAX:
        raise BadPlan(f"the plan has {number:,} tasks: at most {TASKS_MAX}")
    document = parse(plan, NAME, dialect="none")
    _refuse_hidden(plan)
    _refuse_posing(document)
    found = _reading(document, allowed)
    if dropped:
        found.lost.append(f"its front matter: {', '.join(dropped)}")
    return written(found)


def commands_of(document: PlanDocument) -> dict[str, str]:
    """By task, what will run to check it."""
    return {task.key: task.check_command for task in document.tasks if task.check_command not in ("", "none")}


def _plan_in(text: str) -> str:
    """The one fenced block with boxes in it, else all of it.  Raises BadPlan."""
    blocks = [block for block in _fenced(text) if scan(block.text).boxes]
    if len(blocks) > 1:
        raise BadPlan(f"{len(blocks)} blocks of the answer hold tasks: the plan is to be in one")
    if blocks and not blocks[0].closed:
        raise BadPlan("the answer ends within its plan: it was cut off, or the block has no end")
    plan = blocks[0].text if blocks else text
    if not scan(plan).boxes:
        raise BadPlan(f"the answer holds no plan, but: {quoted(' '.join(text.split()))}")
    return plan


class _Block(NamedTuple):
    text: str
    closed: bool


def _fenced(text: str) -> Iterator[_Block]:
    """Fences that are not indented: those that are belong to a task's text.

    Models forget that a block in a plan of the same marks would end it, so one with a word behind its marks opens
    another inside.
    """
    lines: list[str] = []
    marks: list[str] = []
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        if fence and marks and not fence[2] and fence[1].startswith(marks[-1]):
            marks.pop()
            if not marks:
                yield _Block("\n".join(lines) + "\n", closed=True)
                lines = []
                continue
        elif fence and (not marks or fence[2]):
            marks.append(fence[1])
            if len(marks) == 1:
                continue
        if marks:
            lines.append(line)
    if lines:
        yield _Block("\n".join(lines), closed=False)


def _without_matter(plan: str) -> tuple[str, list[str]]:
    """With empty lines in its place, and what it said."""
    lines = plan.split("\n")
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    matter = scan("\n".join(lines[first:])).matter
    if not matter:
        return plan, []
    end = first + matter.count("\n") + 3
    keys = [key for key in _KEY.findall(matter) if key != "order"]
    return "\n".join([*[""] * end, *lines[end:]]), keys


def _refuse_hidden(plan: str) -> None:
    told = [
        f"{NAME}:{number}: character U+{ord(found[0]):04X}, which hides what is written: remove it"
        for number, line in enumerate(plan.split("\n"), 1)
        if (found := _HIDDEN.search(line))
    ]
    if told:
        raise BadPlan("\n".join(told[:_SHOWN]))


def _refuse_posing(document: PlanDocument) -> None:
    texts = {"the plan's title": document.title}
    for task in document.tasks:
        texts[f"task {task.key}"] = "\n".join((task.title, task.description, task.epic, task.feature))
    told = [
        f"{name} speaks in the name of Muster or of a person: {quoted(found[0].strip())}"
        for name, text in texts.items()
        for found in _POSES.finditer(text)
    ]
    if told:
        raise BadPlan("\n".join(told[:_SHOWN]))


def _reading(document: PlanDocument, allowed: Allowed) -> Reading:
    open_tasks = [task for task in document.tasks if not task.is_group]
    in_turn = len(open_tasks) > 1 and not any(task.depends_on for task in open_tasks)
    found = Reading(document.title[:TITLE_CHARS_MAX] or "Plan", order=FILE_ORDER if in_turn else FREE)
    hold = {task.key for task in document.tasks if task.is_group or task.description}
    lost: Counter[str] = Counter()
    for task in document.tasks:
        said = _said(task)
        lost.update(f"{name}=" for name in said.keys() - TAKEN - {"parent"})
        kept = {name: value for name, value in said.items() if name in TAKEN and name != "after"}
        fields = {ATTRIBUTES[name].name: value for name, value in kept.items()}
        lost.update(_refused(fields, allowed))
        lost["its tick"] += task.done
        found.items.append(_item(task, fields, hold))
    found.count_lost(lost)
    return found


def _said(task: PlanTask) -> dict[str, Any]:
    """By attribute."""
    found: dict[str, Any] = {}
    for name, field in ATTRIBUTES.items():
        for said in filter(None, (field.name, field.span)):
            value = getattr(task, said)
            if value not in (field.usual, None, (), "", {}):
                found[name] = value
    return found


def _item(task: PlanTask, fields: dict[str, Any], hold: Collection[str]) -> Item:
    return Item(
        id=task.key,
        title=task.title,
        text=task.description,
        # What is below a group is what it waits for anyway.
        after=() if task.is_group else task.depends_on,
        parent=task.parent if task.parent and task.parent in hold else "",
        group=task.is_group,
        epic=task.epic,
        feature=task.feature,
        fields=fields,
    )


def _refused(fields: dict[str, Any], allowed: Allowed) -> Iterator[str]:
    """Takes out what a model may not say, and names it."""
    checks: Mapping[str, tuple[str, Collection[str]]] = {
        "agent": ("agent=", allowed.agents),
        "profile": ("profile=", {*allowed.profiles, GENERAL_PURPOSE}),
    }
    for name, (attribute, known) in checks.items():
        if name in fields and fields[name] not in known:
            yield f"{attribute}{fields.pop(name)}"
    if fields.get("check_command") == "none":
        yield f"check={fields.pop('check_command')}"
