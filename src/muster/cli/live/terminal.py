"""A terminal that is drawn on: entered, painted line by line, read key by key, and left as it was."""

from __future__ import annotations

import codecs
import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, Self

from muster.cli.terminal import harmless

_ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?2004h\x1b[2J"
"""A picture of its own, no cursor, no line that goes on in the next one, and what is pasted is marked."""
_LEAVE = "\x1b[0m\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[?1049l"
_PASTE, _PASTE_END = "\x1b[200~", "\x1b[201~"
_PASTE_CHARS_MAX = 100_000
_ESCAPE_WAIT_S = 0.03
"""The rest of an arrow key arrives within this; a lone Escape has none."""
_SEQUENCES = {
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[C": "right",
    "\x1bOC": "right",
    "\x1b[D": "left",
    "\x1bOD": "left",
    "\x1b[5~": "pgup",
    "\x1b[6~": "pgdn",
    "\x1b[H": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1b[4~": "end",
    "\x1bOH": "home",
    "\x1bOF": "end",
    "\x1b[7~": "home",
    "\x1b[8~": "end",
    "\x1b[3~": "delete",
    "\x1b[Z": "backtab",
    "\t": "tab",
    "\x01": "home",
    "\x05": "end",
    "\x15": "ctrl-u",
    "\x17": "ctrl-w",
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

    def __init__(self, *, wake: int, after: Callable[[], str] = str) -> None:
        """`after`: what puts back what `say` has changed."""
        self._in = sys.stdin.fileno()
        self._out = sys.stdout.fileno()
        self._wake = wake
        self._after = after
        self._drawn: list[str] = []
        self._size = (0, 0)
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._pasted: str | None = None
        """What has come of a paste that goes on."""

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

    def _begin(self, when: int = termios.TCSAFLUSH) -> None:
        """`when` decides what becomes of what was typed before: a stop may come between a look and a read."""
        tty.setcbreak(self._in, when)
        self._drawn, self._pasted = [], None
        self._write(_ENTER)

    def _leave(self) -> None:
        # A terminal that was closed has nothing to be restored.
        with contextlib.suppress(OSError, termios.error):
            self._write(self._after() + _LEAVE)
            termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def _suspend(self, _: int, __: FrameType | None) -> None:
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._begin(termios.TCSADRAIN)

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
                parts.append(f"\x1b[{at + 1};1H\x1b[0m\x1b[K{harmless(line)}")
        self._drawn = list(lines)
        if parts:
            self._write("".join(parts) + "\x1b[0m")

    def say(self, sequence: str) -> None:
        """What moves no cursor: a title, a bell."""
        if sequence:
            self._write(sequence)

    def keys(self, timeout_s: float) -> Iterator[str]:
        """Waits for a key, the wake-up or the time, and gives the keys that were pressed."""
        ready, _, _ = select.select([self._in, self._wake], [], [], timeout_s)
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self._in in ready:
            yield from self._split(self._read())

    def drop_keys(self, quiet_s: float) -> None:
        """Until none has come for so long."""
        while select.select([self._in], [], [], quiet_s)[0]:
            self._read()
        self._pasted = None

    def _read(self) -> str:
        if not select.select([self._in], [], [], 0)[0]:
            return ""  # a stop came between, and the shell has taken it
        data = os.read(self._in, 1024)
        if not data:
            raise KeyboardInterrupt("the terminal was closed")
        while data.endswith(b"\x1b") and select.select([self._in], [], [], _ESCAPE_WAIT_S)[0]:
            data += os.read(self._in, 1024)
        return self._decoder.decode(data)

    def _split(self, text: str) -> Iterator[str]:
        while text:
            if self._pasted is not None or text.startswith(_PASTE):
                pasted, text = self._paste(text)
                if pasted is not None:
                    yield f"paste:{pasted}"
                continue
            found = next((sequence for sequence in _SEQUENCES if text.startswith(sequence)), None)
            if found is not None:
                yield _SEQUENCES[found]
                text = text[len(found) :]
            elif text.startswith(("\x1b[", "\x1bO")):
                text = _without_sequence(text)
            else:
                yield "esc" if text[0] == "\x1b" else text[0]
                text = text[1:]

    def _paste(self, text: str) -> tuple[str | None, str]:
        """(all that was pasted, once it has come to its end, and the rest).  Nothing of it is a key."""
        begun = self._pasted if self._pasted is not None else ""
        whole = begun + (text if self._pasted is not None else text.removeprefix(_PASTE))
        content, end, rest = whole.partition(_PASTE_END)
        if not end:
            self._pasted = whole[:_PASTE_CHARS_MAX] + whole[_PASTE_CHARS_MAX:][-len(_PASTE_END) :]
            return None, ""
        self._pasted = None
        return content[:_PASTE_CHARS_MAX], rest

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
