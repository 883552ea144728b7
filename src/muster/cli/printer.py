"""What a command that supervises shows while work goes on: a line for each event, and remarks between them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any

from muster.cli.output import Screen, inert, print_json

QUIET_EVENTS = frozenset({"enqueued", "unblocked", "promoted", "claimed"})
"""Steps that nobody waits for: the next line says the same."""


class EventPrinter:
    """With `as_json`: events as JSON lines on stdout, remarks on stderr.  May be used by several threads."""

    def __init__(self, *, as_json: bool, colour: str) -> None:
        self._as_json = as_json
        self._screen = Screen(colour)
        self._lock = threading.Lock()

    def event(self, event: Mapping[str, Any]) -> None:
        with self._lock:
            if self._as_json:
                print_json(event, lines=True)
            elif event["event"] not in QUIET_EVENTS:
                self._screen.line(self._screen.event(event))
                sys.stdout.flush()

    def say(self, text: str) -> None:
        with self._lock:
            print(inert(text), file=sys.stderr if self._as_json else sys.stdout, flush=True)
