"""What a person is asked before something is done, and what they write.  Pure: no clock, no terminal, no network.

A dialog begins at its question, where `y` does it and any other key changes nothing, or in its first field where
that has to be filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from muster.cli.live.review import ReviewedWork
from muster.cli.live.rows import RowId, row_id
from muster.cli.output import ref_of
from muster.model.forms import (
    BULK_MAX,
    PLAN_ACTIONS,
    POOL_ACTIONS,
    SEEN_EVENT,
    SEEN_MERGE,
    Action,
    Enough,
    FormField,
    action_for_all,
    body_of_form,
    task_action,
)
from muster.model.json_value import Json
from muster.model.wording import counted

TEXT_CHARS_MAX = 10_000
NOTHING = "nothing was changed"
_QUESTION = -1
_ALLOW, _DENY = "y", "n"
COMING = "coming"
"""Asks what a merge would bring."""
NAMED_MAX = 8


class Prompt(NamedTuple):
    """Something for the owner to do."""

    action: str
    row: Json
    """As it was when it was asked for: a task, a plan, or a provider."""
    body: Mapping[str, Any] = {}
    tag: str = ""
    """Of the newest event that was seen of it; it is refused where there is a newer one."""
    label: str = ""
    """What it is called where it is told that it was done."""
    work: ReviewedWork | None = None
    """What was looked at before; it is refused where there is other work by now."""
    rows: tuple[Json, ...] = ()
    """All with which it is done; empty: with `row` alone."""

    @property
    def texts(self) -> Mapping[str, str]:
        """What was written in its fields."""
        written = ((name, text) for name, text in self.body.items() if name not in SEEN_MERGE)
        return {name: text for name, text in written if isinstance(text, str) and text}


class Unsent:
    """What was written and not taken: it stands there again at the next try of the same, and is no answer to
    another question."""

    def __init__(self) -> None:
        self._texts: dict[tuple[str, RowId, str], Mapping[str, str]] = {}

    def keep(self, undone: Iterable[Prompt]) -> None:
        for asked in undone:
            if asked.texts:
                self._texts[_place(asked.action, asked.row)] = asked.texts

    def sent(self, asked: Prompt) -> None:
        self._texts.pop(_place(asked.action, asked.row), None)

    def again(self, dialog: Dialog) -> Dialog:
        for name, text in self._texts.get(_place(dialog.action, dialog.row), {}).items():
            if name in dialog.lines:
                dialog.lines[name].write(text)
        return dialog


def _place(action: str, row: Json) -> tuple[str, RowId, str]:
    return action, row_id(row), row.get("question", "")


@dataclass
class InputLine:
    """One line that is being written."""

    text: str = ""
    at: int = 0

    def key(self, key: str) -> None:
        text, at = self.text, self.at
        match key:
            case "left" | "right":
                self.at = max(0, min(len(text), at + (1 if key == "right" else -1)))
            case "home" | "end":
                self.at = 0 if key == "home" else len(text)
            case "backspace":
                self.text, self.at = text[: max(0, at - 1)] + text[at:], max(0, at - 1)
            case "delete":
                self.text = text[:at] + text[at + 1 :]
            case "ctrl-u":
                self.text, self.at = text[at:], 0
            case "ctrl-w":
                kept = text[:at].rstrip().rpartition(" ")
                begin = len(kept[0]) + len(kept[1])
                self.text, self.at = text[:begin] + text[at:], begin
            case _ if len(key) == 1 and key.isprintable():
                self.write(key)

    def write(self, text: str) -> None:
        text = text[: TEXT_CHARS_MAX - len(self.text)]
        self.text = self.text[: self.at] + text + self.text[self.at :]
        self.at += len(text)


@dataclass
class Dialog:
    title: str
    action: str
    row: Json
    fields: Sequence[FormField]
    says: Sequence[str] = ()
    """What it is about."""
    label: str = ""
    """What `y` or Enter does."""
    sure: bool = True
    """It asks once more after a field was written."""
    wish: str = ""
    """The exact command that is allowed or not; empty: it is no such question."""
    needs: frozenset[str] = frozenset()
    """Fields that have to be filled in."""
    body: Callable[[Mapping[str, str]], Json] | None = None
    """Of what was written; None: as forms of the pages do.  Raises MusterError."""
    tag: str = ""
    work: ReviewedWork | None = None
    rows: tuple[Json, ...] = ()
    at: int = _QUESTION
    lines: dict[str, InputLine] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    message: str = ""

    def __post_init__(self) -> None:
        self.lines = {one.name: InputLine() for one in self.fields if not one.flag}
        if self.needs:
            self.at = 0

    @property
    def field(self) -> FormField | None:
        """The one that is written; None: it stands at its question."""
        return None if self.at == _QUESTION else self.fields[self.at]

    def paste(self, text: str) -> None:
        """What is pasted is written, and presses nothing."""
        if (at := self.field) is not None and not at.flag:
            self.lines[at.name].write(text)

    def key(self, key: str) -> Prompt | str | None:
        """What is to be done, or why it is left; None: it goes on."""
        self.message = ""
        if key == "esc":
            return NOTHING
        if key in ("tab", "backtab", "down", "up"):
            step = 1 if key in ("tab", "down") else -1
            places = len(self.fields) + (0 if self.needs else 1)
            first = 0 if self.needs else _QUESTION
            self.at = (self.at - first + step) % places + first
            return None
        at = self.field
        if at is not None and not at.flag:
            return self._write(at, key)
        if at is not None and key == " ":
            self.flags ^= {at.name}
            return None
        return self._decide(key)

    def _write(self, at: FormField, key: str) -> Prompt | str | None:
        if key != "enter":
            self.lines[at.name].key(key)
            return None
        if at.name in self.needs and not self.lines[at.name].text.strip():
            self.message = f"{at.label}: write something, or Esc"
            return None
        if self.sure:
            self.at = _QUESTION
            return None
        return self._done()

    def _decide(self, key: str) -> Prompt | str | None:
        if self.wish:
            if key in (_ALLOW, _DENY):
                return self._done(allow=key == _ALLOW)
        elif key == "y" or (key == "enter" and not self.sure):
            return self._done()
        return None if self.field is not None else NOTHING

    def _done(self, **more: Any) -> Prompt:
        written = {name: line.text for name, line in self.lines.items()}
        fields = {**written, **dict.fromkeys(self.flags, "true")}
        made = Action(self.label, tuple(self.fields))
        body = self.body(fields) if self.body is not None else body_of_form(made, fields)
        label = {True: "Allow", False: "Deny"}.get(more.get("allow", ""), self.label)
        return Prompt(self.action, self.row, {**body, **more}, self.tag, label, self.work, self.rows)


def dialog_of(action: str, row: Json, tag: str = "", refused: str = "") -> Dialog:
    """What is asked before `action` is done with a task or a plan; again, where that was `refused`."""
    wanted = _form(action, row)
    ends = (
        f"{counted(row['open'], 'task')} will be ended."
        if (action, row.get("kind")) == ("cancel", "plan")
        else ""
    )
    made = Dialog(
        title=f"{wanted.label}: {ref_of(row)}",
        action=action,
        row=row,
        fields=wanted.fields,
        says=tuple(filter(None, (refused, row["why"], ends, wanted.warns))),
        label=wanted.label,
        sure=bool(wanted.warns),
        needs=frozenset(one.name for one in wanted.fields if one.required),
        tag=tag,
        body=_of_plan_seen(wanted, row) if ends else None,
    )
    return _answering(made, row) if action == "answer" else made


def _of_plan_seen(wanted: Action, row: Json) -> Callable[[Mapping[str, str]], Json]:
    """More than stands in its question is not ended by it."""
    return lambda fields: {**body_of_form(wanted, fields), SEEN_EVENT: row[SEEN_EVENT]}


def dialog_of_all(action: str, rows: Sequence[Json]) -> Dialog:
    """What is asked before `action` is done with all of these, as far as they are not too many for one time."""
    some = tuple(rows[:BULK_MAX])
    wanted = action_for_all(action, some)
    names = ", ".join(ref_of(row) for row in some[:NAMED_MAX])
    more = f" and {len(some) - NAMED_MAX} more" if len(some) > NAMED_MAX else ""
    left = f"{len(rows) - BULK_MAX} others are left for another time." if len(rows) > BULK_MAX else ""
    all_of_them = {"id": "all", "kind": "all", "plan": "", "key": counted(len(some), "task")}
    return Dialog(
        title=f"{wanted.label}: {counted(len(some), 'task')}",
        action=action,
        row=all_of_them,
        fields=wanted.fields,
        says=tuple(filter(None, (f"{names}{more}", left, wanted.warns))),
        label=wanted.label,
        rows=some,
    )


def _answering(made: Dialog, row: Json) -> Dialog:
    """A free answer, or whether it may do exactly what it has asked for."""
    text, _, always = made.fields
    made.says, made.wish = (row["question"],), row["wish"]
    made.fields = (always,) if made.wish else (text,)
    made.needs = frozenset() if made.wish else frozenset({text.name})
    made.__post_init__()
    return made


def at_once(action: str, row: Json) -> bool:
    """Nobody is asked before."""
    wanted = _form(action, row)
    return wanted.enough is Enough.KEY and not wanted.warns


def label_of(action: str, row: Json) -> str:
    return _form(action, row).label


def _form(action: str, row: Json) -> Action:
    kinds = {"plan": PLAN_ACTIONS, "pool": POOL_ACTIONS}
    kind = row.get("kind", "")
    return kinds[kind][action] if kind in kinds else task_action(action, row)
