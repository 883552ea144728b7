"""The trailing `{#id key=value}` of a task's line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from muster.model.fields import ATTRIBUTES

from .problems import Problems, quoted

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]*")

_MEANT = re.compile(r"#|(?:.*[ \t])?[A-Za-z_][\w-]*=(?!=)")
_CODE_SPAN = re.compile(r"(`+)[^`]*\1")
_GROUP = re.compile(r"(?<![\\{$])\{([^{}]*)\}(?!\})")
_TEXT_AFTER = re.compile(r"[^\W_](?![^{]*\})")
"""What is neither punctuation nor in braces."""
_PAIR = re.compile(r"(?:^|[ \t,;:])([A-Za-z_][\w-]*)[ \t]*[=:](?!=)")
_SPACED_PAIR = re.compile(r"[ \t,;]*(?<![\w-])([A-Za-z_][\w-]*)[ \t]*[=:][ \t]*")
_AFTER = frozenset({"after", "depends", "depends_on", "depends-on", "deps"})
_BARE_AFTER = re.compile(r"(?:^|[ \t])(\(?\[?after=[\w./,#-]+[\])}]*)[.;]?$")
_TOKEN = re.compile(r'[ \t]*(?:#([^ \t]*)|([A-Za-z_][\w-]*)=(?:"([^"]*)"(?=[ \t]|\Z)|([^ \t]*))|([^ \t]+))')


@dataclass(slots=True)
class Attributes:
    id: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    """What is said, by field of a task."""


def split(text: str, line: int, problems: Problems) -> tuple[str, str]:
    """A task's text without its attributes, and what stands between their braces."""
    start = text.rfind("{")
    if start < 0 or text[start - 1 : start] == "\\":
        return text, ""
    group = text[start + 1 :]
    inner = group.removesuffix("}").strip()
    if "}" in inner or not _MEANT.match(inner) or "`" in inner:
        return text, ""
    if not group.endswith("}"):
        problems.add(line, f"the attributes {quoted(text[start:])} have no closing brace")
        inner = ""
    return text[:start].rstrip(), inner


def doubt(title: str, line: int, problems: Problems) -> None:
    """Notes what stayed in a title although it is meant as attributes: the order of the plan would be lost."""
    prose = _CODE_SPAN.sub("", title)
    for group in _GROUP.finditer(prose):
        words = _PAIR.findall(group[1])
        last = not _TEXT_AFTER.search(prose, group.end())
        known = last and (all(word in ATTRIBUTES for word in words) if words else ID.fullmatch(group[1][1:]))
        if not _AFTER.intersection(words) and not (known and (words or group[1].startswith("#"))):
            continue
        meant = " ".join(_SPACED_PAIR.sub(r" \1=", group[1].lstrip(":")).split())
        meant = re.sub(r"\bdep[a-z_-]*=", "after=", meant)
        problems.add(
            line,
            f"{quoted(group[0])} is not read as attributes: write {{{meant}}} as the last thing on the line, "
            "all in one pair of braces (or `...` around it, if it is none)",
        )
        return
    if bare := _BARE_AFTER.search(prose):
        problems.add(line, f"{quoted(bare[1])} stands in no braces: write {{{bare[1].strip('{}()[]')}}}")


def read(inner: str, line: int, problems: Problems) -> Attributes:
    """The attributes between the braces; what is wrong with them goes to `problems`."""
    found = Attributes()
    seen: set[str] = set()
    for anchor, key, in_quotes, bare, stray in _TOKEN.findall(inner):
        name = key or ("" if stray else "#")
        if stray:
            problems.add(line, f"{quoted(stray)} is no attribute (a list is written after=a,b)")
        elif name in seen:
            problems.add(line, f"attribute {name!r} is given twice")
        elif key and key not in ATTRIBUTES:
            problems.add(line, f"unknown attribute {key!r}", key, tuple(ATTRIBUTES))
        elif not key:
            found.id = _read_id(anchor, line, problems)
        else:
            known = ATTRIBUTES[key]
            try:
                if '"' in bare:
                    raise ValueError(bare)
                found.fields |= known.read((in_quotes or bare).strip())
            except ValueError:
                problems.add(line, f"{key}={in_quotes or bare} is wrong: {known.expected}")
        seen.add(name)
    if {"delay", "not-before"} <= seen:
        problems.add(line, "delay and not-before both say when it may start: keep one")
    return found


def _read_id(name: str, line: int, problems: Problems) -> str | None:
    if not ID.fullmatch(name):
        problems.add(line, f"{{#{name}}} is no id: letters, digits and . _ / - only, a letter or digit first")
    return name or None
