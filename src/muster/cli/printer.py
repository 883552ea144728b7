"""What a command that supervises shows while work goes on: a line for each event, and remarks between them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from muster.cli.output import Screen, columns, drop_unwritten, fit, inert, print_json
from muster.cli.terminal import beneath

QUIET_EVENTS = frozenset({"enqueued", "unblocked", "promoted", "claimed", "checkpoint"})
"""Steps that nobody waits for; `muster task show` and `muster watch` have them all."""


class EventPrinter:
    """With `as_json`: events as JSON lines on stdout, remarks on stderr.  May be used by several threads."""

    def __init__(self, *, as_json: bool, colour: str) -> None:
        self.as_json = as_json
        self._screen = Screen(colour)
        self._lock = threading.Lock()
        self._mute = False
        self._footer = ""
        self._live = self._screen.tty and not as_json and os.environ.get("TERM", "dumb") != "dumb"

    @property
    def attended(self) -> bool:
        """Somebody sits there who can be asked."""
        return self._screen.tty and not self.as_json and sys.stdin is not None and sys.stdin.isatty()

    @property
    def footer(self) -> Callable[[str], None] | None:
        """Shows one line below all others that is written over; None where that cannot be shown."""
        return self._set_footer if self._live else None

    def _set_footer(self, text: str) -> None:
        if text != self._footer:
            self._footer = text
            self._show(lambda: None)

    def event(self, event: Mapping[str, Any]) -> None:
        if self.as_json:
            self._show(lambda: print_json({"type": "event", **event}, lines=True))
        elif event["event"] not in QUIET_EVENTS:
            self._show(lambda: self._screen.line(self._screen.event(event)))

    def result(self, told: Mapping[str, Any]) -> None:
        if self.as_json:
            self._show(lambda: print_json({"type": "result", **told}, lines=True))

    def say(self, text: str) -> None:
        """Nothing where there is nothing to say."""
        if text:
            self._show(lambda: print(inert(text), file=sys.stderr if self.as_json else sys.stdout))

    def _show(self, show: Callable[[], None]) -> None:
        """A terminal that was closed, or `| head`, must not cost the crew its supervisor."""
        with self._lock:
            if self._mute:
                return
            try:
                if self._live:
                    beneath(sys.stdout).write("\r\x1b[K")
                show()
                if self._live and self._footer:
                    sys.stdout.write(fit(self._footer, columns() - 1).rstrip())
                (sys.stderr if self.as_json else sys.stdout).flush()
                sys.stdout.flush()
            except OSError:
                self._mute = True
                drop_unwritten()
