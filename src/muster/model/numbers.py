"""Whole numbers as people and programs write them.  Imports nothing: every command may need it."""

from __future__ import annotations

NUMBER_MAX = 1 << 53
"""Largest integer that every JSON parser keeps exact."""
PAGE_BYTES = 8 << 20
"""A page of a list ends with the row that makes it so long: whoever reads on finds the rest on the next one."""
_DIGITS_MAX = len(str(NUMBER_MAX))


_EPOCH_MS = 1_735_689_600_000
"""2025-01-01 UTC."""
_PER_MS_BITS = 12


def first_id(wall_ms: int) -> int:
    """The lowest number that is given at that time."""
    return (wall_ms - _EPOCH_MS) << _PER_MS_BITS


def given_at_ms(number: int) -> int:
    """When that number was given, or a little before."""
    return (number >> _PER_MS_BITS) + _EPOCH_MS


class Ids:
    """Numbers below NUMBER_MAX, growing with time and never repeated.

    41 bits of milliseconds since 2025 (69 years) and a counter of 12 bits; a clock that jumps back or a burst
    only lets the counter run ahead.
    """

    def __init__(self, last: int) -> None:
        self._last = last

    def next(self, wall_ms: int) -> int:
        self._last = max(self._last + 1, first_id(wall_ms))
        return self._last

    def next_after(self, last: int) -> None:
        """No number up to `last` is given again."""
        self._last = max(self._last, last)


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


ARTIFACT_BYTES_MAX = 16 << 20
"""Of a file that an attempt has made and named: a longer one is not kept."""
ARTIFACT_PART_BYTES = 512 << 10
"""It comes in parts of this size."""
ATTEMPT_ARTIFACTS_BYTES_MAX = 128 << 20
"""Of all that one attempt may have kept."""
