"""Plans whose tasks have numbers: Kiro's, OpenSpec's, and the task lists of PRDs."""

from __future__ import annotations

import re

from muster.plans.dialects.base import Dialect, Parts
from muster.plans.dialects.top import FileTop

NUMBERED = re.compile(r"(?:\*\*)?(\d{1,3}(?:\.\d{1,3}){0,4})(?:[.):]|\.?\*\*)?(?:\*\*)?\s+(?=\S)")
DOTTED = re.compile(r"(?:\*\*)?\d{1,3}\.\d{1,3}(?:\.\d{1,3})*(?:[.):]|\.?\*\*)?\s+\S")


_WHOLE = re.compile(r"(?:\*\*)?\d{1,3}[.)]\s+\S")
_EITHER = re.compile(rf"\*?\s*(?:{NUMBERED.pattern})")
_NEEDS = re.compile(r"^(?:[-*]\s+)?_Requirements?:")
_SECTION = re.compile(r"(?:Phase\s+\d{1,3}\b|\d{1,3}[.)]\s+\S)", re.IGNORECASE)


def _in_sections(top: FileTop) -> bool:
    return top.headed(_SECTION) > 0


class NumberedDialect(Dialect):
    """Base of those dialects."""

    order = "file"

    def read_title(self, text: str) -> Parts:
        number = NUMBERED.match(text)
        if not number:
            return Parts(text)
        title = text[number.end() :]
        if text.startswith("**") and title.endswith("**") and "**" not in title[:-2]:
            title = title[:-2]
        return Parts(title, number[1], parent=self.above(number[1]))

    def above(self, number: str) -> str:
        """The number of the task that this one belongs to, where its box may stand beside that one's."""
        return number.rpartition(".")[0]


class Kiro(NumberedDialect):
    name = "kiro"
    known_marks = "- x"
    says = "in the order of its numbers; `*` is optional and left out"
    _REQUIREMENTS = re.compile(r"^[ \t]*(?:[-*][ \t]+)?_Requirements?:[ \t]*(.*?)_?[ \t]*$\n?", re.MULTILINE)
    _OPTIONAL = re.compile(r"\*(?!\*)\s*")

    def recognise(self, top: FileTop) -> str:
        if top.share(_EITHER) < 0.6:
            return ""
        if top.count_below(_NEEDS):
            return "it has numbers and _Requirements:_"
        nested = top.share(_WHOLE) and top.share(DOTTED)
        return "it has numbers like 1. and 1.1" if nested and not _in_sections(top) else ""

    def read_title(self, text: str) -> Parts:
        """`- [ ]* 2.2 Title` is optional: Kiro runs without it."""
        optional = self._OPTIONAL.match(text)
        parts = super().read_title(text[optional.end() :] if optional else text)
        return parts._replace(skip=optional is not None)

    def read_body(self, text: str, parts: Parts) -> tuple[str, Parts]:
        said = self._REQUIREMENTS.finditer(text) if "_Requirement" in text else ()
        found = [match[1].strip(" _") for match in said]
        if not found:
            return text, parts
        names = " ".join(" ".join(found).replace(",", " ").split())
        kept = self._REQUIREMENTS.sub("", text).strip("\n")
        return kept, parts._replace(fields={**parts.fields, "metadata": {"requirements": names}})


class OpenSpec(NumberedDialect):
    name = "openspec"
    says = "in the order of its numbers"

    def recognise(self, top: FileTop) -> str:
        if _in_sections(top) and top.share(DOTTED) >= 0.6 and not top.count_below(_NEEDS):
            return "it has sections like `1. Setup` and numbers like 1.1"
        return ""

    def above(self, number: str) -> str:
        """`1` is a section, and no task."""
        return number.rpartition(".")[0] if number.count(".") > 1 else ""


class TaskList(NumberedDialect):
    """A PRD's: `1.0` with `1.1`, `1.2` below."""

    name = "prd"
    says = "in the order of its numbers"

    def recognise(self, top: FileTop) -> str:
        parents = top.count(re.compile(r"^(?:\*\*)?\d{1,3}\.0(?:[.):]|\*\*)?\s"))
        if parents and not _in_sections(top) and top.share(DOTTED) >= 0.6:
            return "it has numbers like 1.0 and 1.1"
        return ""

    def above(self, number: str) -> str:
        start, _, last = number.rpartition(".")
        return start if "." in start else f"{start}.0" if last != "0" else ""
