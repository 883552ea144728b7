"""CODITECT's task lists: `- [ ] T001.002: Title (P0)` with `blocked_by:` or `Depends:`."""

from __future__ import annotations

import re

from muster.model.kinds import PRIORITIES
from muster.plans.dialects.base import Dialect, Parts
from muster.plans.dialects.top import FileTop

_CODE = r"(?:S?T\d{3,4}(?:\.\d{1,3}){0,3}|[A-Z](?:\.\d{1,3}){2,4}|TASK-[A-Z]+-\d+)"
_TITLE = re.compile(rf"(?:\*\*|`|\[)?({_CODE})(?:\*\*|`|\])?(?::\*\*|[:.]|\s+[-–—])?\s+(?=\S)")
_ID = re.compile(rf"(?<![\w.]){_CODE}(?![\w])(?!\.\d)")
_WAITS = r"(?:blocked[_ ]by|depends(?:[_ ]on)?|dependencies)"
_SEVERAL = rf"{_CODE}(?:\s*(?:,|&|and)\s*{_CODE})*"
_ASIDE = re.compile(
    rf"\s*[(\[|]\s*(?:\*\*)?(?i:{_WAITS})(?:\*\*)?:\s*([^)\]|]*)[)\]]?"
    rf"|(?:[;,]?\s+|\s+[-–—]\s+)(?:\*\*)?(?i:{_WAITS})(?:\*\*)?:\s*({_SEVERAL}|(?i:none))(?=\s*(?:$|[(\[]))"
)
"""In brackets; bare only where nothing but ids follow, or words of a title would be lost."""
_START = r"(?im)^[ \t]*(?:[-*][ \t]+)?(?:\*\*|_)?"
_LINE = re.compile(rf"{_START}{_WAITS}(?:\*\*|_)?:(?:\*\*)?(.*)$\n?")
_SPEC_KIT = re.compile(r"\[P\]|\[US\d+\]")
_PRIORITY = re.compile(r"\s*[(\[](P[0-2])[)\]]\s*$")
_PRIORITY_LINE = re.compile(rf"{_START}priority(?:\*\*)?:(?:\*\*)?[ \t]*(P[0-2])\b.*$\n?")


class Coditect(Dialect):
    name = "coditect"
    order = "free"
    says = "a task waits for what its blocked_by: or Depends: names"

    def recognise(self, top: FileTop) -> str:
        if top.share(_TITLE) < 0.6 or top.count(_SPEC_KIT):
            return ""
        if top.count(_ASIDE) or top.count_below(_LINE):
            return "it has ids like T001.002 with blocked_by: or Depends:"
        if top.count(_PRIORITY):
            return "it has ids like T001.002 and priorities like (P0)"
        return ""

    def read_title(self, text: str) -> Parts:
        asides = [match[1] or match[2] or "" for match in _ASIDE.finditer(text)]
        title = _ASIDE.sub("", text)
        fields: dict[str, object] = {}
        if priority := _PRIORITY.search(title):
            fields["priority"] = PRIORITIES[priority[1]]
            title = title[: priority.start()]
        code = _TITLE.match(title)
        if code:
            title = title[code.end() :]
        name = code[1] if code else ""
        return Parts(title, name, _ids(asides, name), fields=fields)

    def read_body(self, text: str, parts: Parts) -> tuple[str, Parts]:
        after = _ids(_LINE.findall(text), parts.id)
        fields = dict(parts.fields)
        if priority := _PRIORITY_LINE.search(text):
            fields.setdefault("priority", PRIORITIES[priority[1].upper()])
        kept = _PRIORITY_LINE.sub("", _LINE.sub("", text)).strip("\n")
        return kept, parts._replace(after=tuple(dict.fromkeys((*parts.after, *after))), fields=fields)


def _ids(texts: list[str], own: str) -> tuple[str, ...]:
    found = (name for text in texts for name in _ID.findall(text))
    return tuple(dict.fromkeys(name for name in found if name != own))
