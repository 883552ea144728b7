"""The `{#id key=value}` of a task's line: usually the last thing on it, and told where it is read elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from muster.model.fields import ATTRIBUTES
from muster.model.wording import near

from .problems import Problems, quoted

ID = re.compile(r"[^\W_](?:[\w./-]|[^\s\x00-\u02ff])*")
"""Of letters and marks of any script."""

_MEANT = re.compile(r"#|(?:.*[ \t])?[A-Za-z_][\w-]*=(?!=)")
_CODE_SPAN = re.compile(r"(`+)[^`]*\1")
_GROUP = re.compile(r"(?<![\\{$])\{([^{}]*)(\}(?!\})|\Z)")
_WORD = re.compile(r"[^\W_](?![^{(]*[})])")
"""What is neither punctuation nor in braces."""
_PAIR = re.compile(r"(?:^|[ \t,;:])([A-Za-z_][\w-]*)[ \t]*[=:](?!=)")
_SPACED_PAIR = re.compile(r"[ \t,;]*(?<![\w-])([A-Za-z_][\w-]*)[ \t]*[=:][ \t]*")
_AFTER = frozenset({"after", "depends", "depends_on", "depends-on", "deps"})
_BARE_AFTER = re.compile(r"(?:^|[ \t])(\(?\[?after=[\w./,#-]+[\])}]*)[.;]?$")
_TOKEN = re.compile(r'[ \t]*(?:#([^ \t]*)|([A-Za-z_][\w-]*)=(?:"([^"]*)"(?=[ \t]|\Z)|([^ \t]*))|([^ \t]+))')
_USUAL = re.compile(r"\{(?:#|[a-z-]+=)[^ \t\"{}]+(?:[ \t]+[a-z-]+=[^ \t\"{}]+)*\}\Z")
"""Most of what there is; to look at it more closely takes three times as long."""
TEMPLATE = frozenset({"if", "each", "await", "unless", "snippet"})
"""Words behind a `#` that begin a block of a page template (`{#each}`), and are no ids."""


@dataclass(slots=True)
class Attributes:
    id: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    """What is said, by field of a task."""


class _Group(NamedTuple):
    """A pair of braces in a title."""

    start: int
    end: int
    inner: str
    closed: bool
    behind: str
    """The rest of the line."""


class _Read(NamedTuple):
    inner: str
    """As it is to be read."""
    told: bool
    """It is meant so, but not written so."""


def split(text: str, place: tuple[int, int], problems: Problems, doubts: Problems) -> tuple[str, Attributes]:
    """A task's text without its attributes, and these.  `place` is the line and column where the text begins."""
    line, column = place
    start = text.find("{")
    if start < 0 and "after=" not in text:
        return text, Attributes()
    if (
        _USUAL.match(text, start)
        and text[start - 1] == " "
        and "after=" not in text[:start]
        and "`" not in text
    ):
        inner_text = text[start + 1 : -1]
        if inner_text[1:] not in TEMPLATE and (
            inner_text[0] == "#" or inner_text.partition("=")[0] in ATTRIBUTES
        ):
            return text[:start].rstrip(), _read(inner_text, line, problems)
    title, last, inner = "", 0, list[str]()
    groups = [(group, _reading(group)) for group in _groups(text)]
    named = [read for _, read in groups if read is not None and read.inner.startswith("#")]
    for group, found in groups:
        # Only one of them names the task: the last one.
        read = None if found in named[:-1] and " " not in group.inner else found
        at = column + group.start
        if read is None:
            _doubt(group, line, at, doubts)
            continue
        title, last = _joined(title, text[last : group.start]), group.end
        inner.append(read.inner)
        if read.told:
            seen, meant = text[group.start : group.end], f"{{{read.inner}}}"
            told = f"{quoted(seen)} is read" + (f" as {meant}" if meant != seen else "")
            told += ": attributes are the last thing on the line, in one pair of braces"
            doubts.add(line, told, column=at)
    title = _joined(title, text[last:]) if inner else text
    if "after=" in title and (bare := _BARE_AFTER.search(_without_code(title))):
        meant = f"{{{bare[1].strip('{}()[]')}}}"
        told = f"{quoted(bare[1])} stands in no braces, so it is text: write {meant}"
        doubts.add(line, told, column=column + bare.start(1) if not inner else 0)
    return title, _read(" ".join(inner), line, problems) if inner else Attributes()


def _joined(title: str, more: str) -> str:
    more = more.strip()
    between = " " if title and more[:1] not in ".,;:!?" else ""
    return f"{title}{between}{more}" if more else title


def _without_code(text: str) -> str:
    """With as many characters."""
    return _CODE_SPAN.sub(lambda span: "`" * len(span[0]), text) if "`" in text else text


def _groups(text: str) -> Iterator[_Group]:
    if "{" not in text:
        return
    prose = _without_code(text)
    for found in _GROUP.finditer(prose):
        if "`" not in found[1]:
            behind = prose[found.end() :]
            yield _Group(
                found.start(), found.end(), text[slice(*found.span(1))].strip(), bool(found[2]), behind
            )


def _reading(group: _Group) -> _Read | None:
    """What stands in these braces as attributes; None: they are part of the title."""
    inner, alone = group.inner, not _WORD.search(group.behind)
    meant, odd = bool(_MEANT.match(inner)), _is_odd(inner)
    if alone and (odd or not meant):
        mended = _mended(inner)
        words = [word for _, word, *_ in _TOKEN.findall(mended) if word]
        if "after" in words and all(word in ATTRIBUTES for word in words) and not _is_odd(mended):
            return _Read(mended, told=True)
    ids = [anchor for anchor, *_ in _TOKEN.findall(inner) if anchor]
    names = [name for _, name, *_ in _TOKEN.findall(inner) if name]
    known = [name for name in names if name in ATTRIBUTES]
    others = bool(names) and not known and not ids and not any(near(name, ATTRIBUTES) for name in names)
    if not meant or others or (not names and ids[:1] and ids[0] in TEMPLATE):
        return None
    if alone and group.closed:
        return _Read(inner, told=bool(group.behind.strip()))
    sure = known == names and not odd and (bool(names) or not group.closed)
    return _Read(inner, told=True) if sure else None


def _is_odd(inner: str) -> bool:
    """It has parts that are neither an id nor `name=value`."""
    return any(stray for *_, stray in _TOKEN.findall(inner))


def _mended(inner: str) -> str:
    """As it would be written: `after: a, priority: P1` is `after=a priority=P1`."""
    meant = " ".join(_SPACED_PAIR.sub(r" \1=", inner.lstrip(":")).split())
    return re.sub(r"\bdep[a-z_-]*=", "after=", meant)


def _doubt(group: _Group, line: int, column: int, doubts: Problems) -> None:
    """Tells of what may be meant as attributes."""
    words = _PAIR.findall(group.inner)
    last = not _WORD.search(group.behind)
    if not words or not last or not all(word in ATTRIBUTES for word in words):
        return
    doubts.add(
        line,
        f"{quoted(f'{{{group.inner}}}')} is read as text: write {{{_mended(group.inner)}}} as the last thing on "
        "the line where attributes are meant, or `...` around it",
        column=column,
    )


def _read(inner: str, line: int, problems: Problems) -> Attributes:
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
