"""What a dialect is: how another tool writes its plans.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from muster.plans.dialects.top import FileTop


class Parts(NamedTuple):
    """What a box says, taken apart.  What its braces (`{#id after=a}`) say goes before all of this."""

    title: str
    """Without the dialect's own signs."""
    id: str = ""
    after: tuple[str, ...] = ()
    """Ids or keys of the same plan; a name that is not there is told and left out."""
    parent: str = ""
    """The id of the task that it belongs to, where its box does not stand under that one's."""
    beside: bool = False
    """In the file's order it may run at the same time as its neighbours that say the same."""
    skip: bool = False
    """Struck out, optional, cancelled: it is no task, and what waits for it goes on."""
    fields: Mapping[str, Any] = {}
    """More of what is said of the task, by field of a Spec: `priority`, `tags`, `not_before_ms`..."""
    doubt: str = ""
    """What people should know of how it is read."""


class Dialect:
    """Base of all dialects; itself it reads every box as Muster does."""

    name = ""
    """As people write it in `dialect: NAME`."""
    order = ""
    """`file`, `phases` or `free`, where the tool means one.  In `file` neighbours that are `beside` each other
    run at the same time, but never across a heading: phases in order, with marks on what may run in parallel, are
    `file`."""
    says = ""
    """How its tool means a plan, in words that go on after "looks like NAME: "."""
    dropped_marks = ""
    """What stands between the brackets of a box that is not to be done any more."""
    known_marks = ""
    """What stands there beside a blank and an x in a box that is to be done: nobody is told of it."""

    refusal = ""
    """Why a file of this tool is no plan; empty where it is one."""
    instead = ""
    """What is to be done with it instead."""

    def recognise(self, top: FileTop) -> str:
        """Why this file is one of its own, as "it has ..." goes on; empty: it is none.  Never raises."""
        raise NotImplementedError

    def read_title(self, text: str) -> Parts:
        """`text` is what follows the box on its line, without braces at its end that hold attributes."""
        return Parts(text)

    def read_body(self, text: str, parts: Parts) -> tuple[str, Parts]:
        """The prompt without lines that are meant for the tool, and `parts` with what these have said.

        A box with boxes below it and no prompt left is a group.  `id` and `skip` are no longer heard here.
        """
        return text, parts
