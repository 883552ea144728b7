"""A folder of Backlog.md: a file is a task, and its boxes are what has to hold before it is done."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePath

from .source import Item, Reading, ToolFiles, Value, priority_of, text_of, texts_of

NAME = "backlog.md"
_MATTER = re.compile(r"---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)
_MARK = re.compile(r"[ \t]*<!-- (?:SECTION:\w+|AC|DOD):(?:BEGIN|END) -->[ \t]*\n?")
_CRITERION = re.compile(r"^([ \t]*[-*+]) \[([ xX])\] ", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6}[ \t]+(.*?)[ \t]*$", re.MULTILINE)
_EMPTY_HEADING = re.compile(r"^[^\n]+:\n+(?=[^\n]+:\n|\Z)", re.MULTILINE)
_AWAY = ("drafts", "archive", "decisions", "docs", "milestones")
_DONE = {"done", "completed", "complete", "closed"}


def recognise(source: ToolFiles) -> str:
    tasks = [matter for name, text in source.files.items() if (matter := _matter(name, text))]
    return "a file a task, with id and status at its top" if tasks else ""


def read(source: ToolFiles) -> Reading:
    found = Reading("Backlog" if source.stem in {"backlog", ".backlog", "tasks"} else source.stem)
    lost: Counter[str] = Counter()
    rows = []
    for name, text in source.files.items():
        if matter := _matter(name, text):
            rows.append((name, matter, _MATTER.sub("", text, count=1)))
        elif name.endswith(".md") and "tasks" in PurePath(name).parts:
            found.leave_out(name, "it has no id and status at its top")
    ids = [_named(matter, "id") for _, matter, _ in rows]
    parents = {_meant(_named(matter, "parent_task_id", "parent"), ids) for _, matter, _ in rows}
    for name, matter, body in sorted(rows, key=_place):
        number = _named(matter, "id")
        fields = priority_of(text_of(matter, "priority"))
        if labels := texts_of(matter, "labels"):
            fields["tags"] = tuple(labels)
        found.items.append(
            Item(
                id=number,
                title=text_of(matter, "title"),
                text=_text(body),
                done=text_of(matter, "status").lower() in _DONE or "completed" in PurePath(name).parts,
                after=[_meant(other.upper(), ids) for other in texts_of(matter, "dependencies")],
                parent=_meant(_named(matter, "parent_task_id", "parent"), ids),
                group=number in parents and not _CRITERION.search(body),
                epic=text_of(matter, "milestone"),
                fields=fields,
            )
        )
        lost["the assignee"] += bool(texts_of(matter, "assignee")) and not found.items[-1].done
        lost["the references"] += bool(texts_of(matter, "references")) and not found.items[-1].done
    found.count_lost(lost)
    return found


def _matter(name: str, text: str) -> Value:
    """What stands at the top of a task; None for all other files."""
    match = _MATTER.match(text.replace("\r\n", "\n"))
    if not match or not name.endswith(".md") or set(_AWAY) & set(PurePath(name).parts[:-1]):
        return None
    import yaml

    try:
        found = yaml.safe_load(match[1])
    except yaml.YAMLError:
        return None
    wanted = isinstance(found, dict) and {"id", "title", "status"} <= found.keys()
    return found if wanted else None


def _named(matter: Value, *names: str) -> str:
    """Its ids are written in either case."""
    return text_of(matter, *names).upper()


def _meant(name: str, ids: Sequence[str]) -> str:
    """A project that has changed the letters in front of its numbers still has the old ones in its links."""
    if name in ids:
        return name
    number = name.rpartition("-")[2]
    alike = [other for other in ids if other.rpartition("-")[2] == number]
    return alike[0] if number and len(alike) == 1 else name


def _place(row: tuple[str, Value, str]) -> tuple[float, list[tuple[int, str]]]:
    _, matter, _ = row
    ordinal = matter.get("ordinal")
    digits = re.findall(r"(\d+)|(\D+)", text_of(matter, "id"))
    return (
        float(ordinal) if isinstance(ordinal, int | float) else float("inf"),
        [(int(number or 0), word) for number, word in digits],
    )


def _text(body: str) -> str:
    text = _MARK.sub("", body.replace("\r\n", "\n"))
    text = _CRITERION.sub(lambda box: f"{box[1]} {'(done) ' if box[2] in 'xX' else ''}", text)
    text = _HEADING.sub(lambda heading: f"{heading[1]}:", text)
    text = re.sub(r"\n{3,}", "\n\n", _EMPTY_HEADING.sub("", text)).strip()
    return text.removeprefix("Description:").strip()
