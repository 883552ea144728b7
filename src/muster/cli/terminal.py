"""The last gate before a person's terminal: what passes may colour, and nothing else.

Commands clean what they print themselves, also for pipes; this holds for whatever they forget, for tracebacks,
and for the commands to come.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from muster.cli.output import BLUE, BOLD, CYAN, DIM, GREEN, RED, YELLOW, inert

_OURS = re.compile(rf"(\x1b\[(?:0|{'|'.join((RED, GREEN, YELLOW, BLUE, CYAN, DIM, BOLD))})m)")
_SUSPECT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """`text` with our own colours, line ends and tabs as they are, and every other control made visible."""
    if not _SUSPECT.search(text):
        return text
    return "".join(part if at % 2 else inert(part) for at, part in enumerate(_OURS.split(text)))


class Gate:
    """A text stream in front of a terminal's; its bytes (`buffer`) are for those who clean them themselves."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(harmless(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def gated() -> Iterator[None]:
    """Puts a gate before stdout and stderr where these are terminals."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_gate(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _gate(stream: TextIO) -> TextIO:
    if stream is None or not stream.isatty():  # a process may well have been started without
        return stream
    return cast(TextIO, Gate(stream))
