"""Where the keys of a TOML text stand, so that a message can name the line."""

from __future__ import annotations

import re
from collections.abc import Mapping

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_NAME = rf"{_PART}(?:\s*\.\s*{_PART})*"
_TABLE = re.compile(rf"\s*\[\[?\s*({_NAME})\s*\]")
_KEY = re.compile(rf"\s*({_NAME})\s*=")
_PARTS = re.compile(_PART)
_INDEX = re.compile(r"\[\d+\]$")


def key_lines(text: str) -> dict[str, int]:
    """The line, from 1, of each dotted key and table of a valid TOML text; keys of inline tables have none."""
    found: dict[str, int] = {}
    table, closing = "", ""
    for number, line in enumerate(text.splitlines(), 1):
        if closing:  # within a text of several lines
            closing = "" if closing in line else closing
            continue
        if heading := _TABLE.match(line):
            table = _dotted(heading[1])
            found.setdefault(table, number)
            continue
        if key := _KEY.match(line):
            name = _dotted(key[1])
            found.setdefault(f"{table}.{name}" if table else name, number)
        closing = next((quotes for quotes in ('"""', "'''") if line.count(quotes) % 2), "")
    return found


def line_of(lines: Mapping[str, int], key: str) -> int | None:
    """Of the key, of the first one in it, or of the table that it stands in."""
    while key:
        key = _INDEX.sub("", key)
        within = [line for name, line in lines.items() if name == key or name.startswith(f"{key}.")]
        if within:
            return min(within)
        key = key.rpartition(".")[0]
    return None


def _dotted(name: str) -> str:
    return ".".join(part.strip("\"'") for part in _PARTS.findall(name))
