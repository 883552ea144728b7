"""What is looked for in texts, as a pattern in the language of a store.

`LIKE` of SQLite knows the case of ASCII alone, and `ILIKE` of PostgreSQL goes by the locale of the database.  So
that all say the same, each letter becomes the choice of all that differ from it in case only.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cache
from itertools import chain

_WITH_CASE = (range(0x3000), range(0xA640, 0xAC00), range(0xFB00, 0x1E944))
"""Between these are the scripts of East Asia, which are most of all and know no case."""


@cache
def _namesakes() -> dict[str, str]:
    """All letters that are one and the same without regard to case, by each of them; found out once, in 20 ms."""
    kin: dict[str, list[str]] = {}
    for letter in map(chr, chain(*_WITH_CASE)):
        if not letter == letter.lower() == letter.upper():
            kin.setdefault(letter.casefold(), []).append(letter)
    return {letter: "".join(same) for same in kin.values() if len(same) > 1 for letter in same}


def forms_of(text: str) -> list[str]:
    """The ways to write the same accents, one or two: nothing says which of them a title has."""
    return list(dict.fromkeys(unicodedata.normalize(form, text) for form in ("NFC", "NFD")))


def glob_of(text: str) -> str:
    """For SQLite's GLOB: whatever contains it."""
    return f"*{_chosen(text, lambda one: f'[{one}]' if one in '*?[' else one)}*"


def regex_of(text: str) -> str:
    """For PostgreSQL's `~`: whatever contains it."""
    return _chosen(text, lambda one: f"\\{one}" if one in r"\.^$*+?()[]{}|" else one)


def _chosen(text: str, alone: Callable[[str], str]) -> str:
    kin = _namesakes()
    return "".join(f"[{kin[one]}]" if one in kin else alone(one) for one in text)
