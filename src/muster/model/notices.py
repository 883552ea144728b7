"""What an agent is told while it works: paragraphs, each of which is said once."""

from __future__ import annotations

TOLD = "Message from a person: "
NOTE_CHARS_MAX = 10_000
_BETWEEN = "\n\n"


def paragraphs(notice: str) -> list[str]:
    return [part for part in notice.split(_BETWEEN) if part]


def with_notice(notice: str, more: str) -> str:
    return _BETWEEN.join([*paragraphs(notice), more])


def without(notice: str, less: str) -> str:
    return _BETWEEN.join(part for part in paragraphs(notice) if part != less)
