"""What tasks wait for, as people and models write it in words."""

from __future__ import annotations

import re

SPAN_MAX = 50
_SPAN = re.compile(r"(?:\s*(?:-|–|—|\.\.+|to|through|bis)\s*)")


class Waits:
    """Reads `depends on T012, T014-T016` for ids of one form."""

    def __init__(self, code: str) -> None:
        """`code` is a regular expression for one id, without groups."""
        between = r"\s*(?:,\s*and\b|[,;&+/–—-]|\.\.+)\s*|\s+(?:and|or|to|through)\s+"
        several = rf"{code}(?:(?:{between}){code})*"
        depends = r"depend(?:s|ing|ent|ency|encies)?(?:\s+(?:up)?on)?"
        words = rf"{depends}|blocked[ _-]?by|requires|needs|after|waits\s+for"
        self._code = re.compile(code)
        self._said = re.compile(
            rf"(?<![\w-])(?:\*\*|_)?(?:{words})(?:\*\*|_)?\s*:?(?:\*\*|_)?\s*[\[(]?\s*(?:task\s+|tasks\s+)?({several})",
            re.IGNORECASE,
        )
        self._aside = re.compile(
            rf"\s*[(\[](?:{words})\s*:?\s*(?:tasks?\s+)?{several}\s*[)\]]|\s*(?:[|;—–-]\s*)?\b(?:{words})\s*:\s*{several}\s*$",
            re.IGNORECASE,
        )

    def read(self, text: str) -> tuple[str, ...]:
        """Ids in their order, ranges filled in."""
        found: dict[str, None] = {}
        if not self._code.search(text):
            return ()
        for said in self._said.finditer(text):
            for name in self._listed(said[1]):
                found[name] = None
        return tuple(found)

    def without(self, title: str) -> str:
        """A title without the aside that says what it waits for."""
        return self._aside.sub("", title).strip() or title

    def _listed(self, text: str) -> list[str]:
        found: list[str] = []
        at = 0
        for match in self._code.finditer(text):
            if found and _SPAN.fullmatch(text[at : match.start()]):
                found += _between(found[-1], match[0])
            found.append(match[0])
            at = match.end()
        return found


def _between(first: str, last: str) -> list[str]:
    """`T013`, `T014` of `T012-T015`."""
    one, other = re.fullmatch(r"(.*?)(\d+)", first), re.fullmatch(r"(.*?)(\d+)", last)
    if not one or not other or one[1] != other[1] or not 0 < int(other[2]) - int(one[2]) <= SPAN_MAX:
        return []
    return [f"{one[1]}{number:0{len(one[2])}d}" for number in range(int(one[2]) + 1, int(other[2]))]
