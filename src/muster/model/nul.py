"""NUL, the one character that not every store can keep in a text: it is refused wherever a text comes in."""

from __future__ import annotations

import re

_ESCAPED = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
"""The character itself, not a text about it: an even number of backslashes stands before."""


def holds_nul(data: bytes | bytearray) -> bool:
    """Whether a text in this JSON does."""
    return b"\\u0000" in data and _ESCAPED.search(data) is not None
