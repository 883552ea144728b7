"""What another tool's files hold, and the items that are read from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePath
from typing import Any

from muster.model.errors import BadPlan
from muster.model.states import FREE
from muster.model.wording import counted
from muster.plans.markdown import decode

Value = Any
"""What JSON or YAML holds."""


@dataclass(slots=True)
class Item:
    """A task as another tool keeps it."""

    id: str
    title: str
    text: str = ""
    done: bool = False
    after: Iterable[str] = ()
    """Ids of what must be done first."""
    parent: str = ""
    group: bool = False
    """It is done when those below it are; its text is for them."""
    epic: str = ""
    feature: str = ""
    fields: dict[str, Any] = field(default_factory=dict)
    """What else is said, by field of a task."""


@dataclass(slots=True)
class Reading:
    """What an importer has read."""

    title: str
    items: list[Item] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    """What is not carried over, a sentence each."""
    order: str = FREE
    """What is said of it besides `after`."""

    def leave_out(self, what: str, reason: str) -> None:
        self.lost.append(f"{what} is left out: {reason}")

    def count_lost(self, counts: Mapping[str, int]) -> None:
        """`counts`: in how many items there is something for which a plan has no place."""
        for what, number in counts.items():
            if number:
                self.lost.append(f"not carried over: {what} ({counted(number, 'task')})")


class ToolFiles:
    """One file, or those of a folder, by their names in it."""

    def __init__(self, name: str, files: Mapping[str, bytes], tag: str = "") -> None:
        """`name` is what errors call it; `tag` is which of several lists in it is meant."""
        self.name = name
        self.tag = tag
        self._files = files

    @cached_property
    def files(self) -> dict[str, str]:
        """Raises BadPlan where one is not UTF-8."""
        names = {name: name if len(self._files) > 1 else self.name for name in self._files}
        return {name: decode(data, names[name]).removeprefix("\ufeff") for name, data in self._files.items()}

    @property
    def stem(self) -> str:
        return PurePath(self.name).stem

    def file(self, *names: str) -> str:
        """The text of the only file, or of the first that ends in one of these."""
        if len(self._files) == 1:
            return next(iter(self.files.values()))
        return next((text for end in names for name, text in self.files.items() if name.endswith(end)), "")

    @cached_property
    def json(self) -> Value:
        """The one JSON value that the file holds; None where it holds none."""
        return _decoded(self.file("tasks/tasks.json", ".json"))

    @cached_property
    def rows(self) -> list[Value]:
        """An object a line, as far as the lines are that.  Empty where the first one is none."""
        lines = self.file("issues.jsonl", "beads.jsonl", ".jsonl").split("\n")
        filled = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
        if not filled or not isinstance(_decoded(filled[0][1]), dict):
            return []
        rows = []
        for number, line in filled:
            row = _decoded(line)
            if not isinstance(row, dict):
                raise BadPlan(
                    f"{self.name}:{number}: not a JSON object",
                    "Each line is to hold one; a merge may have left its marks there.",
                )
            rows.append(row)
        return rows


def _decoded(text: str) -> Value:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return None


def text_of(row: Value, *names: str) -> str:
    """The first of these that says anything, as text."""
    for name in names:
        value = row.get(name) if isinstance(row, dict) else None
        if isinstance(value, str | int | float) and not isinstance(value, bool) and str(value).strip():
            return str(value).strip()
    return ""


def list_of(row: Value, *names: str) -> list[Value]:
    """The first of these that is a list; `{"nodes": [...]}` is one, and a bare value one of itself."""
    for name in names:
        value = row.get(name) if isinstance(row, dict) else None
        if isinstance(value, dict):
            value = value.get("nodes")
        if isinstance(value, list):
            return value
        if isinstance(value, str | int) and not isinstance(value, bool):
            return [part.strip() for part in str(value).split(",") if part.strip()]
    return []


def texts_of(row: Value, *names: str) -> list[str]:
    return [str(value) for value in list_of(row, *names) if isinstance(value, str | int | float)]


PRIORITIES = {"critical": 10, "urgent": 10, "highest": 10, "high": 7, "low": 3, "lowest": 1}
"""Words of other tools; medium and normal are what a task has anyway."""


def priority_of(word: str) -> dict[str, Any]:
    from muster.model.kinds import PRIORITIES as NUMBERED

    found = PRIORITIES.get(word.lower()) or NUMBERED.get(word.upper())
    return {"priority": found} if found else {}


def sections(parts: Mapping[str, str]) -> str:
    """Texts one below the other; the empty name is for what needs no heading."""
    labels = {name: name and name + (":\n" if "\n" in text else ": ") for name, text in parts.items()}
    return "\n\n".join(labels[name] + _closed(text) for name, text in parts.items() if text)


def _closed(text: str) -> str:
    """A fence that is left open ends with the text that it stands in."""
    fences = [line for line in text.splitlines() if line.lstrip().startswith("```")]
    return f"{text}\n```" if len(fences) % 2 else text
