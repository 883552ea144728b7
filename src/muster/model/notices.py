"""What an agent is told: while it works, paragraphs, each of which is said once; before, a note."""

from __future__ import annotations

TOLD = "Message from a person: "
NOTE_CHARS_MAX = 30_000
"""Of all that people have told; it has to fit into one variable of an environment."""
_BETWEEN = "\n\n"


def paragraphs(notice: str) -> list[str]:
    return [part for part in notice.split(_BETWEEN) if part]


def with_notice(notice: str, more: str) -> str:
    return _BETWEEN.join([*paragraphs(notice), more])


def without(notice: str, less: str) -> str:
    return _BETWEEN.join(part for part in paragraphs(notice) if part != less)


def beginning(notice: str, begins: str) -> list[str]:
    return [part for part in paragraphs(notice) if part.startswith(begins)]


def with_note(note: str, more: str) -> str:
    """What people have told so far, which the agent may not have read, with one thing more."""
    return f"{note}\n\n{more}".strip()[-NOTE_CHARS_MAX:] if more else note
