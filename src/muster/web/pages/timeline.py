"""A task's attempts on a line of time, as numbers for a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from muster.model import shown
from muster.model.json_value import Json

WIDTH = 1000
BAR_MIN = 4
"""An attempt of no time at all is seen as well."""


class Bar(NamedTuple):
    epoch: int
    x: int
    width: int
    look: str


def bars(attempts: Sequence[Json], now_ms: int) -> list[Bar]:
    """From the first one's beginning to the last one's end, or to now."""
    if not attempts:
        return []
    begins = [_begun(one) for one in attempts]
    ends = [now_ms if one["endedAtMs"] is None else one["endedAtMs"] for one in attempts]
    begin = min(begins)
    span = max(1, max(ends) - begin)
    found = []
    for one, start, end in zip(attempts, begins, ends, strict=True):
        x = min(WIDTH - BAR_MIN, (start - begin) * WIDTH // span)
        width = max(BAR_MIN, min(WIDTH - x, (end - start) * WIDTH // span))
        found.append(Bar(one["epoch"], x, width, shown.attempt_look(one)))
    return found


def _begun(attempt: Json) -> Any:
    return attempt["startedAtMs"] or attempt["assignedAtMs"]
