"""Whole numbers as people and programs write them.  Imports nothing: every command may need it."""

from __future__ import annotations

NUMBER_MAX = 1 << 53
"""Largest integer that every JSON parser keeps exact."""
_DIGITS_MAX = len(str(NUMBER_MAX))


def whole(text: str, least: int = 0, most: int = NUMBER_MAX) -> int:
    """The one reader of whole numbers.  Raises ValueError, which says what was expected."""
    digits = text.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MAX:
        number = int(text)
        if least <= number <= most:
            return number
    raise ValueError(f"{text!r} is not a number from {least} to {most}")


def is_number(text: str) -> bool:
    """Whether it may be the number of a task."""
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
