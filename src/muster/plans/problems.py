"""What is wrong with a plan: collected over the whole file, told once."""

from __future__ import annotations

from collections.abc import Collection
from operator import itemgetter
from typing import NoReturn

from muster.model.errors import BadPlan
from muster.model.wording import near

SHOWN_MAX = 20
QUOTED_MAX = 60

HINT = "Correct these lines and try again. Nothing was changed."
EXAMPLE = "A task looks like this:  - [ ] Add the invoice model {#model agent=claude priority=P1}"


class Problems:
    """Everything that is wrong with one file."""

    def __init__(self, file: str, shown_max: int | None = SHOWN_MAX) -> None:
        """`shown_max`: the first of so many are told, and how many more there are; None: all."""
        self.file = file
        self._shown_max = shown_max
        self._found: list[tuple[int, int, str, str, Collection[str]]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(
        self, line: int, text: str, word: str = "", choices: Collection[str] = (), *, column: int = 0
    ) -> None:
        """Notes a problem; `word` is what was written where one of `choices` is meant.

        A column is 1 for the first character of its line, and 0 where it is not known.
        """
        self._found.append((line, column, text, word, choices))

    def told(self) -> list[str]:
        """A `file:line: problem` each, in the file's order, as many as are shown."""
        found = sorted(self._found, key=itemgetter(0, 1))
        # Only what is shown is compared with all the other words: 10,000 wrong names must not take an hour.
        told = [
            f"{self.file}:{line}:{f'{column}:' if column else ''} {text}{did_you_mean(word, choices)}"
            for line, column, text, word, choices in found[: self._shown_max]
        ]
        if self._shown_max is not None and len(found) > self._shown_max:
            told.append(f"and {len(found) - self._shown_max} more")
        return told

    def raise_all(self) -> NoReturn:
        """Raises one BadPlan that holds every problem."""
        raise BadPlan("\n".join(self.told()), HINT)


def did_you_mean(word: str, choices: Collection[str]) -> str:
    """`; did you mean 'x'?`, or nothing where no choice is near."""
    if not word:
        return ""
    return near(word, [choice for choice in choices if choice.endswith("/" + word)][:1]) or near(
        word, choices
    )


def quoted(text: str) -> str:
    """`text` as an error shows it: on one line, in quotes, cut when long."""
    return repr(text if len(text) <= QUOTED_MAX else text[: QUOTED_MAX - 1] + "…")
