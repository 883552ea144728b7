"""Whether Ctrl-C ends this process.

A shell that hears the same Ctrl-C goes on with its loop or script unless its command has died of SIGINT.
"""

from __future__ import annotations


class _CtrlC:
    heard = False


def note() -> None:
    _CtrlC.heard = True


def forget() -> None:
    """The process ends otherwise after all."""
    _CtrlC.heard = False


def die() -> None:
    """Of SIGINT, where Ctrl-C was it; all that was to be written is written."""
    if not _CtrlC.heard:
        return
    import os
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
