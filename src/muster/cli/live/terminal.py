"""A terminal that is drawn on: entered, painted line by line, read key by key, and left as it was."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any, Self

from muster.cli.terminal import harmless

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_ESCAPE_WAIT_S = 0.03
"""The rest of an arrow key arrives within this; a lone Escape has none."""
_SEQUENCES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "pgup",
    "\x1b[6~": "pgdn",
    "\x1b[H": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1b[4~": "end",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\b": "backspace",
    "\x06": "pgdn",
    "\x02": "pgup",
}
_ENDS = (signal.SIGTERM, signal.SIGHUP)


class Terminal:
    """Use with `with`: whatever ends the block, and also Ctrl-Z, the terminal is as it was before."""

    def __init__(self, *, wake: int) -> None:
        self._in = sys.stdin.fileno()
        self._out = sys.stdout.fileno()
        self._wake = wake
        self._drawn: list[str] = []
        self._size = (0, 0)
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._in)
        self._handlers = {number: signal.signal(number, _end) for number in _ENDS}
        self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, self._suspend)
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def _begin(self) -> None:
        tty.setcbreak(self._in)
        self._drawn = []
        self._write(_ENTER)

    def _leave(self) -> None:
        # A terminal that was closed has nothing to be restored.
        with contextlib.suppress(OSError, termios.error):
            self._write(_LEAVE)
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def _suspend(self, _: int, __: FrameType | None) -> None:
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._begin()

    def size(self) -> tuple[int, int]:
        """(columns, rows)."""
        found = os.get_terminal_size(self._out)
        return max(found.columns, 20), max(found.lines, 4)

    def draw(self, lines: Sequence[str]) -> None:
        """Writes the lines that differ from those on the screen."""
        size = self.size()
        if size != self._size:
            self._size, self._drawn = size, []
            self._write("\x1b[2J")
        parts = []
        for at, line in enumerate(lines):
            if at >= len(self._drawn) or self._drawn[at] != line:
                parts.append(f"\x1b[{at + 1};1H{harmless(line)}\x1b[0m\x1b[K")
        self._drawn = list(lines)
        if parts:
            self._write("".join(parts))

    def keys(self, timeout_s: float) -> Iterator[str]:
        """Waits for a key, the wake-up or the time, and gives the keys that were pressed."""
        ready, _, _ = select.select([self._in, self._wake], [], [], timeout_s)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._in in ready:
            yield from self._split(self._read())

    def _read(self) -> str:
        data = os.read(self._in, 1024)
        if not data:
            raise KeyboardInterrupt  # the terminal was closed
        while data.endswith(b"\x1b") and select.select([self._in], [], [], _ESCAPE_WAIT_S)[0]:
            data += os.read(self._in, 1024)
        return data.decode(errors="replace")

    def _split(self, text: str) -> Iterator[str]:
        while text:
            found = next((sequence for sequence in _SEQUENCES if text.startswith(sequence)), None)
            if found is not None:
                yield _SEQUENCES[found]
                text = text[len(found) :]
            elif text.startswith(("\x1b[", "\x1bO")):
                text = _without_sequence(text)
            else:
                yield "esc" if text[0] == "\x1b" else text[0]
                text = text[1:]

    def _write(self, text: str) -> None:
        data = text.encode(getattr(sys.stdout, "encoding", None) or "utf-8", errors="replace")
        while data:
            data = data[os.write(self._out, data) :]


def _without_sequence(text: str) -> str:
    """After a key that means nothing here."""
    for at, char in enumerate(text[2:], start=2):
        if "@" <= char <= "~":
            return text[at + 1 :]
    return ""


def _end(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
