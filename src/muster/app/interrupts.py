"""How a person, or another command, tells the supervisor of a crew to end it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from muster.hosts import ctrl_c
from muster.model.errors import NotAllowed

DRAIN, STOP, KILL = 1, 2, 3
"""Let the agents finish; have them save a checkpoint and stop; kill everything."""
_SIGNALS = {DRAIN: signal.SIGUSR1, STOP: signal.SIGUSR2}
"""What another command sends.  It may repeat them: unlike Ctrl-C they do not add up."""


class Interrupts:
    """Counts Ctrl-C (and SIGTERM, SIGHUP), and hears what other commands ask for."""

    def __init__(self, begun: int = 0, *, reloads: bool = False) -> None:
        """`begun`: the step that is being carried out already; Ctrl-C asks for those after it.

        `reloads`: nobody's terminal can be closed, so SIGHUP asks to begin anew with the settings as they are.
        """
        self.count = 0
        self.by_hand = False
        """One of them was Ctrl-C, or a terminal that was closed; a keeper of services sends SIGTERM."""
        self.reload = False
        """That was asked for."""
        self._reloads = reloads
        self._begun = begun
        self._asked = begun

    @property
    def level(self) -> int:
        """DRAIN, STOP or KILL; 0 while nobody has asked for an end."""
        return min(max(self._asked, self._begun + self.count if self.count else 0), KILL)

    def ask(self, level: int) -> None:
        self._asked = max(self._asked, level)

    @contextmanager
    def counting(self) -> Iterator[Interrupts]:
        def count(number: int, _: object) -> None:
            self.count += 1
            self.by_hand |= number != signal.SIGTERM
            if number == signal.SIGINT:
                ctrl_c.note()

        def asked(number: int, _: object) -> None:
            self.ask(next(level for level, sent in _SIGNALS.items() if sent == number))

        def reload(*_: object) -> None:
            self.reload = True

        counted = [signal.SIGINT, signal.SIGTERM]
        if not self._reloads and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as `nohup` has it
            counted.append(signal.SIGHUP)
        before = {
            **{n: signal.signal(n, count) for n in counted},
            **{n: signal.signal(n, asked) for n in _SIGNALS.values()},
            **({signal.SIGHUP: signal.signal(signal.SIGHUP, reload)} if self._reloads else {}),
        }
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def as_ctrl_c() -> Iterator[None]:
    """SIGTERM and a closed terminal end what runs here as Ctrl-C does: what it has open is closed."""

    def end(number: int, _: object) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    heard = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, end) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ask(supervisor: int, level: int) -> None:
    """Tells another process's Interrupts, also where that process was stopped; KILL ends it at once."""
    for number in (_SIGNALS.get(level, signal.SIGKILL), signal.SIGCONT):
        try:
            os.kill(supervisor, number)
        except ProcessLookupError:
            return
        except PermissionError:
            told = f"process {supervisor} was started by another user"
            raise NotAllowed(f"{told}, and takes no orders from you", "sudo muster down") from None
