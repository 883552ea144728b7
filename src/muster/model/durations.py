"""Times as people write them."""

from __future__ import annotations

import math
import re

from muster.model.errors import BadConfig

DURATION_MAX_S = 10 * 365 * 86400.0
"""Beyond this a deadline would leave the range of dates."""

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_SECONDS = re.compile(r"[0-9]+(?:\.[0-9]+)?")
DURATION_HINT = 'write it like "500ms", "30s", "5m", "2h" or "1d"; a bare number is seconds'


def parse_duration(text: str | float) -> float:
    """Seconds in `500ms`, `30s`, `5m`, `2h`, `1d`, `1h30m`, `90` or a number.

    Raises BadConfig for anything else, and for what is negative, not finite or longer than ten years.
    """
    seconds = _seconds(text)
    if not 0 <= seconds <= DURATION_MAX_S:  # false for nan as well
        raise BadConfig(f"{text!r} is out of range for a duration (0 s to 10 years)", DURATION_HINT)
    return seconds


def _seconds(text: object) -> float:
    if isinstance(text, int | float) and not isinstance(text, bool):
        # An integer may be too large for a float; it is out of range in any case.
        return float(text) if abs(text) <= DURATION_MAX_S else math.inf
    if isinstance(text, str):
        squeezed = text.strip().replace(" ", "")
        if _SECONDS.fullmatch(squeezed):
            return float(squeezed)
        if _DURATION.fullmatch(squeezed):
            return math.fsum(float(n) * _UNIT_S[unit] for n, unit in _DURATION_PART.findall(squeezed))
    raise BadConfig(f"{text!r} is not a duration", DURATION_HINT)


def duration_text(seconds: float) -> str:
    """As a person would write it: `90s`, `5m`, `2h`, `500ms`."""
    ms = round(seconds * 1000)
    for unit in ("d", "h", "m", "s"):
        size_ms = round(_UNIT_S[unit] * 1000)
        if ms and ms % size_ms == 0:
            return f"{ms // size_ms}{unit}"
    return f"{ms}ms" if ms else "0s"
