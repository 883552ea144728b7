"""GitHub Spec Kit's `tasks.md`: `- [ ] T012 [P] [US1] Create the model in src/models/user.py`."""

from __future__ import annotations

import re

from muster.plans.dialects.base import Dialect, Parts
from muster.plans.dialects.top import FileTop
from muster.plans.dialects.words import Waits

_CODE = r"T\d{2,4}[a-z]?"
_TITLE = re.compile(rf"(?:\*\*)?({_CODE})(?:\*\*)?[.:]?\s+")
_PHASE = re.compile(r"\W*(?:(?:sub-?)?phase\b|tasks\b|阶段|フェーズ)", re.IGNORECASE)
_MARK = re.compile(r"\[([^\]\[]{1,40})\]\s*")
_WAITS = Waits(rf"\b{_CODE}\b")
_BLOCKED = re.compile(r"blocked_by:|depends:", re.IGNORECASE)
_NEEDED = re.compile(r"[ \t]*(?:[-*][ \t]+)?(?:\*\*)?depend(?:s on|encies|ency)(?:\*\*)?:", re.IGNORECASE)


class SpecKit(Dialect):
    name = "spec-kit"
    order = "file"
    says = "phases in order, [P] side by side"

    def recognise(self, top: FileTop) -> str:
        share = top.share(_TITLE)
        if share < 0.6 or top.count(re.compile(rf"^{_CODE}:")) > len(top.titles) / 2:
            return ""
        phases = top.headed(_PHASE)
        marks = top.count(re.compile(r"\[P\]|\[US\d+\]"))
        if not marks and (not phases or top.count_below(_BLOCKED)):
            return ""
        return "it has ids like T001" + (", [P] and [US1]" if marks else " and phases")

    def read_title(self, text: str) -> Parts:
        code = _TITLE.match(text)
        if not code:
            return Parts(text)
        title, tags, beside = text[code.end() :], [], False
        while mark := _MARK.match(title):
            if title[mark.end() - 1 : mark.end()] == "]" and title[mark.end() :].startswith("("):
                break  # a link
            beside = beside or mark[1].strip() == "P"
            if mark[1].strip() != "P":
                tags.append(mark[1].strip())
            title = title[mark.end() :]
        if "*" in text[: code.end()] and title.endswith("**"):
            title = title[:-2]
        after = tuple(name for name in _WAITS.read(title) if name != code[1])
        fields = {"tags": tuple(tags)} if tags else {}
        return Parts(
            (_WAITS.without(title) if after else title) or code[1],
            code[1],
            after,
            beside=beside,
            fields=fields,
        )

    def read_body(self, text: str, parts: Parts) -> tuple[str, Parts]:
        """`**Dependencies**: T002` in a line of its own; prose says nothing certain."""
        kept, after = [], list(parts.after)
        for line in text.split("\n"):
            if _NEEDED.match(line):
                after += _WAITS.read(line)
            else:
                kept.append(line)
        names = tuple(name for name in dict.fromkeys(after) if name != parts.id)
        return "\n".join(kept).strip("\n"), parts._replace(after=names)
