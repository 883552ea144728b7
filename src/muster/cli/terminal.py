"""The last gate before a person's terminal: what passes may colour or link to what it shows, and nothing else.

Commands clean what they print themselves, also for pipes; this holds for whatever they forget, for tracebacks,
and for the commands to come.
"""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager

from muster.cli.output import BLUE, BOLD, CYAN, DIM, GREEN, RED, YELLOW, clean, inert

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, TextIO

_CODE = f"(?:{'|'.join(('0', RED, GREEN, YELLOW, BLUE, CYAN, DIM, BOLD))})"
_LINK_BEGIN, _LINK_END = "\x1b]8;;", "\x1b]8;;\x1b\\"
_LINK = r"\x1b\]8;;(?:file://|https?://)[!-~]+\x1b\\[^\x1b]*\x1b\]8;;\x1b\\"
_OURS = rf"(\x1b\[{_CODE}(?:;{_CODE})*m|{_LINK})"
_SUSPECT = "[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"


def harmless(text: str) -> str:
    """`text` with our own colours and links, line ends and tabs as they are; every other control made visible."""
    if not re.search(_SUSPECT, text):
        return text
    parts = enumerate(re.split(_OURS, text))
    return "".join(part if at % 2 and _is_honest(part) else inert(part) for at, part in parts)


def _is_honest(part: str) -> bool:
    """Not a link that shows another address than its own."""
    if not part.startswith(_LINK_BEGIN):
        return True
    from urllib.parse import unquote

    target, shown = part.removeprefix(_LINK_BEGIN).removesuffix(_LINK_END).split("\x1b\\", 1)
    return shown in (target, clean(unquote(target.removeprefix("file://"))))


def beneath(stream: TextIO) -> TextIO:
    """The terminal below the gate, for those who move its cursor and clean what they write."""
    inner: TextIO = stream.stream if isinstance(stream, Gate) else stream
    return inner


class Gate:
    """A text stream in front of a terminal's; its bytes (`buffer`) are for those who clean them themselves."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(harmless(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


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
    gate: Any = Gate(stream)
    return gate  # type: ignore[no-any-return]
