"""Signals that are heard whatever the main thread waits for."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable


def hear(number: int, call: Callable[[], None]) -> None:
    """From now on a thread of its own makes the call for each signal of this number.  For the main thread, once.

    The kernel gives a signal to any thread.  Python runs handlers in the main one, and does not wake it: where
    that waits for a lock, it sleeps on: https://docs.python.org/3/library/signal.html#signals-and-threads
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(number, lambda *_: None)

    def listen() -> None:
        while True:
            for heard in os.read(reader, 64):
                if heard == number:
                    call()

    threading.Thread(target=listen, name="signals", daemon=True).start()
