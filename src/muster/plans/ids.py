"""Writes ids into a plan, so that its tasks are known through every edit.  Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from muster.model.names import free_name, short_slug

from . import attributes
from .attributes import Attributes
from .markdown import decode, read_boxes
from .problems import Problems


class NewId(NamedTuple):
    line: int
    title: str
    id: str


def with_ids(data: bytes, file: str) -> tuple[bytes, list[NewId]]:
    """The plan with an id on each box that has neither an id nor a code, and which these are.

    No other byte differs.  Raises BadPlan with all that is wrong with the file.
    """
    text = decode(data, file)
    problems = Problems(file)
    drafts = list(read_boxes(text, problems, Problems(file)))
    if problems:
        problems.raise_all()
    # What others are called by now stays theirs, or an `after=` would mean another task.
    called = Counter(name for draft in drafts for name in {draft.key, *draft.aliases})
    taken = {*called, *attributes.TEMPLATE}
    pieces: list[str] = []
    end = 0
    new: list[NewId] = []
    for draft in drafts:
        if draft.named:
            continue
        own = {name for name in {draft.key, *draft.aliases} if called[name] == 1}
        taken -= own - attributes.TEMPLATE
        name = free_name(short_slug(draft.title), taken)
        taken |= {name, *own}
        begin = text.index(draft.box.text, draft.box.offset)
        at, written = _place(draft.box.text, name)
        at += begin
        pieces += [text[end:at], written]
        end = at
        new.append(NewId(draft.box.line, draft.title, name))
    return "".join([*pieces, text[end:]]).encode(), new


def _place(said: str, name: str) -> tuple[int, str]:
    """Where in a box's text its id goes, and how it is written there."""
    within = said.rfind("{") + 1, f"#{name} "
    title, found = _read(said)
    for at, written in [within] if said.endswith("}") else []:
        if _read(said[:at] + written + said[at:]) == (title, replace(found, id=name)):
            return at, written
    return len(said), f" {{#{name}}}"


def _read(said: str) -> tuple[str, Attributes]:
    return attributes.split(said, (1, 1), Problems(""), Problems(""))
