"""Messages on the desktop of whoever runs the crew: freedesktop's notifications, or those of macOS."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from muster.hosts.handed_on import handed_on
from muster.model.errors import Unavailable
from muster.model.notify import Notification

SHOWN, ANSWER_S = 200, 10.0
NOBODY_THERE = "is somebody logged in to a desktop?"
_MAC = (
    *("-e", "on run argv"),
    *("-e", "display notification (item 2 of argv) with title (item 1 of argv)"),
    *("-e", "end run"),
)
"""A script that takes texts as arguments: none of them is ever part of it."""


class Desktop:
    """As outbound.channels.Delivery."""

    def __init__(self, in_thread: Callable[..., Awaitable[Any]]) -> None:
        self._in_thread = in_thread

    async def __call__(self, note: Notification, secret: str) -> int:  # noqa: ARG002
        # May be empty: the title stands above it, and is not said twice.
        text = "\n".join(part for part in (note.text, note.link) if part)
        status: int = await self._in_thread(_show, _argv(note.title, text, note.urgent))
        return status


def _argv(title: str, text: str, urgent: bool) -> Sequence[str]:
    """Raises Unavailable where this machine has no program for it."""
    if sys.platform == "darwin":
        return ("osascript", *_MAC, title, text)
    if shutil.which("notify-send") is None:
        raise Unavailable("this machine has no notify-send", "apt install libnotify-bin, or its like")
    # Its body has markup, and sequences that begin with a backslash.
    body = text.replace("\\", "\\\\").replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    urgency = "critical" if urgent else "normal"
    return ("notify-send", "--app-name=Muster", f"--urgency={urgency}", "--", title, body)


def _show(argv: Sequence[str]) -> int:
    try:
        done = subprocess.run(
            argv,
            env=handed_on(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=ANSWER_S,
            check=False,
        )
    except OSError as error:
        raise Unavailable(f"{argv[0]} does not run: {error}") from None
    except subprocess.TimeoutExpired:  # its own words are the whole message
        raise Unavailable(f"{argv[0]} has not ended within {ANSWER_S:g} s", NOBODY_THERE) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        ended = f"{argv[0]} ended with {done.returncode}" + (f": {said}" if said else "")
        raise Unavailable(ended, NOBODY_THERE)
    return SHOWN
