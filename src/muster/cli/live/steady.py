"""Texts of others, so that every terminal gives them the same room."""

from __future__ import annotations

from unicodedata import category, normalize

from muster.cli.output import clean

_TONES = range(0x1F3FB, 0x1F400)
_SELECTORS = range(0xFE00, 0xFE10)


def steady(text: str) -> str:
    """`text` in one line, without what moves a cursor, and without joiners, tones and selectors of emoji: some
    terminals make one sign of three with them, others do not.  Letters are put together for the same reason."""
    text = clean(text)
    if text.isascii():
        return text
    return normalize("NFC", "".join(char for char in text if not _varies(char)))


def _varies(char: str) -> bool:
    return ord(char) in _SELECTORS or ord(char) in _TONES or category(char) == "Cf"
