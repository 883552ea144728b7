"""What a person says of work that they have looked at, as the note of the next attempt.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from muster.model.errors import BadInput, Conflict
from muster.model.notices import NOTE_CHARS_MAX

QUOTE_CHARS = 120
REMARKS_MAX = 20
"""On lines, in one note."""
BACK = ("resume", "retry")
"""What sends work back to its agent, whichever is possible."""
UNSENT = "what you wrote was not sent, and nobody would read it"


class Remark(NamedTuple):
    path: str
    place: str
    """As `DiffLine.place`."""
    quote: str
    """The line, as it stands there."""
    text: str

    @property
    def where(self) -> str:
        before = " (a line that is gone)" if self.place.startswith("-") else ""
        return f"{self.path}:{self.place[1:]}{before}"


def review_note(about: str, words: str, remarks: Sequence[Remark]) -> str:
    """Raises BadInput where nothing is said, or more than a note takes."""
    if not words and not remarks:
        raise BadInput(
            "nothing is said of it; nothing was sent", "write a comment on a line, or on all of it"
        )
    lines = [f"Your work was looked at ({about})."]
    lines += ["", words] if words else []
    for one in remarks:
        quote = one.quote.strip()
        cut = quote if len(quote) <= QUOTE_CHARS else f"{quote[:QUOTE_CHARS]}..."
        lines += ["", f"{one.where}: {cut}", one.text]
    note = "\n".join(lines)
    if len(note) > NOTE_CHARS_MAX:
        raise BadInput(
            f"this is {len(note)} characters, and a note takes {NOTE_CHARS_MAX}; nothing was sent",
            "say less, or send a part of it first",
        )
    return note


def way_back(name: str, actions: Collection[str], why: str) -> str:
    """The action that sends it back.  Raises Conflict."""
    for action in BACK:
        if action in actions:
            return action
    raise Conflict(f"{name} cannot take a note now: {why}; nothing was sent", "wait until it has ended")


def work_of(base: str, head: str) -> str:
    """What was looked at, to tell it from what there is later."""
    return f"{base}..{head}"


def refuse_other_work(base: str, head: str, seen: str) -> None:
    """Raises Conflict: lines that were commented are others by now."""
    if seen != work_of(base, head):
        raise Conflict(
            "the work has changed since it was shown; nothing was sent", "look at what is there now"
        )


def refuse_unsent(unsent: bool, hint: str) -> None:
    """Raises Conflict: who accepts work has nothing more to say of it.  `hint` is in the words of that place."""
    if unsent:
        raise Conflict(f"{UNSENT}; nothing was accepted", hint)
