"""Whether Ctrl-C ends this process.

A shell that hears the same Ctrl-C goes on with its loop or script unless its command has died of SIGINT.
"""

from __future__ import annotations

heard = False


def note() -> None:
    global heard
    heard = True


def forget() -> None:
    """The process ends otherwise after all."""
    global heard
    heard = False


def die() -> None:
    """Of SIGINT, where Ctrl-C was it; all that was to be written is written."""
    if not heard:
        return
    import os
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
