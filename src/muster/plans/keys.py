"""Which names the boxes of a file have, and which are left."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property

from .blocks import Box

_MEANT_AS_ID = re.compile(
    r"[A-Za-z]+[-.]?0[0-9].*|T[0-9].*|(?![Vv])[A-Za-z][0-9]+\..*|(?P<tracker>[A-Z][A-Z0-9]*)-[0-9]+"
)
"""`T001`, `US-01`, `T1`, `E1.F2`, `ABC-12`; not `HTTP2`, `Step1`, `P3`, `S3`, `v1.2`, but words."""
_STANDARDS = "AES CVE ES GPT HTTP IEC ISO MD PEP RFC RSA SHA TLS USB UTF WCAG"
_COUNTED = "CASE DAY LEVEL OPTION PART PHASE SPRINT STAGE STEP TIER WEEK"
_NO_TRACKERS = frozenset(f"{_STANDARDS} {_COUNTED}".split())
_ID = re.compile(r"(?<=[{ \t]#)[^ \t}]+")
_ASKED_FOR = re.compile(r'(?:after|parent)=("[^"]*"|[^ \t}]+)')


class Keys:
    def __init__(self, boxes: Collection[Box]) -> None:
        self._boxes = boxes
        self._ids = {name for braces in self._braces() for name in _ID.findall(braces)}
        self._taken: dict[str, int] = {}

    def _braces(self) -> Iterator[str]:
        return (box.text[start:] for box in self._boxes if (start := box.text.rfind("{")) >= 0)

    @cached_property
    def _asked_for(self) -> set[str]:
        asked = [names for braces in self._braces() for names in _ASKED_FOR.findall(braces)]
        return {name.strip() for names in asked for name in names.strip('"').split(",")}

    def is_id(self, code: str) -> bool:
        """Whether a leading code is meant as one: by its look, or because another box calls its task so."""
        if code in self._asked_for:
            return True
        look = _MEANT_AS_ID.fullmatch(code)
        return look is not None and look["tracker"] not in _NO_TRACKERS

    def free(self, wanted: str) -> str:
        """`wanted`, or with a number where an earlier box, or an id, has that name."""
        count = self._taken.get(wanted, 1)
        name = wanted if count == 1 else f"{wanted}-{count}"
        while name in self._ids or name in self._taken:
            count += 1
            name = f"{wanted}-{count}"
        self._taken[wanted] = count + 1
        self._taken.setdefault(name, 2)
        return name
