"""What a person says of work that they have looked at, as the note of the next attempt.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from muster.model.errors import BadInput
from muster.model.notices import NOTE_CHARS_MAX

QUOTE_CHARS = 120


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
