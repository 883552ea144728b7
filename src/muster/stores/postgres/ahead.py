"""Several questions as one: their answers are kept until somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from muster.stores.postgres.together import moved

Question = tuple[str, tuple[Any, ...]]
"""A statement's name, and what is bound to it."""


class AnswersAhead:
    """What was read before it was asked for, and still holds."""

    def __init__(self, sql: Callable[[str], str]) -> None:
        self._sql = sql
        self._kept: dict[str, list[tuple[tuple[Any, ...], list[Any]]]] = {}
        """By statement; what is bound to one cannot always be hashed."""

    def keep(self, question: Question, rows: list[Any]) -> None:
        name, bindings = question
        self._kept.setdefault(name, []).append((bindings, rows))

    def of(self, name: str, bindings: tuple[Any, ...]) -> list[Any] | None:
        """None where it has to be asked."""
        return next((rows for known, rows in self._kept.get(name, ()) if known == bindings), None)

    def forget(self) -> None:
        """Something is other than it was, or may be."""
        self._kept.clear()

    def forget_lanes(self) -> None:
        """Tasks were added, and nothing else."""
        self._kept.pop("open_lanes", None)

    def statement(self, questions: Sequence[Question]) -> str:
        """Answers each by an array of its rows."""
        names = tuple((name, len(bindings)) for name, bindings in questions)
        made = _STATEMENTS.get(names)
        if made is None:
            made = _STATEMENTS[names] = f"SELECT {', '.join(self._parts(names))}"
        return made

    def _parts(self, names: Iterable[tuple[str, int]]) -> Iterable[str]:
        bound = 0
        for name, count in names:
            yield f"ARRAY(SELECT ROW(q.*) FROM ({moved(self._sql(name), bound)}) q)"  # noqa: S608
            bound += count


_STATEMENTS: dict[tuple[tuple[str, int], ...], str] = {}
