"""Words that every sentence for a person is made of."""

from __future__ import annotations


def counted(number: int, what: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
