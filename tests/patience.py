"""How long tests wait for what has to come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from muster.model.errors import MusterError

T = TypeVar("T")

PATIENCE_S = 120.0
"""A program that hangs has hung by then, however busy the machine is."""
HOURS_S = 10_000.0
"""Whoever waits for so long, though there is nothing to wait for, is ended by the limit of the test."""
LOOK_S, LOOK_CAP_S = 0.01, 0.05
"""Between two looks, at first and in the end: whoever looks takes time from what it waits for."""


def until(condition: Callable[[], T | None], what: str = "the condition", within_s: float = PATIENCE_S) -> T:
    """The first true value of `condition`."""
    deadline_s, look_s = time.monotonic() + within_s, LOOK_S
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"not within {within_s:g} s: {what}"
        time.sleep(look_s)
        look_s = min(1.2 * look_s, LOOK_CAP_S)
    return found


def through_restarts(call: Callable[[], T], within_s: float = PATIENCE_S) -> T:
    """What the owner answers, once it is there to answer."""

    def attempt() -> tuple[T] | None:
        try:
            return (call(),)
        except MusterError as error:
            if error.http_status != 503:
                raise
            return None

    return until(attempt, "the owner answers", within_s)[0]
