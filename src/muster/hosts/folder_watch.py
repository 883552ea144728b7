"""Hints that something in a folder has changed, where the system gives them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

log = logging.getLogger(__name__)

STEP_MS = 50
TIMEOUT_MS = 1000
"""A watch that is to end does so within this time."""


class FolderWatch:
    """Calls back, from a thread of its own, when a file in one of these folders changes.  A hint, and no promise:
    where the system has no watches left, nobody is called, and whoever needs to know looks by themselves.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._folders: frozenset[Path] = frozenset()
        self._stop = threading.Event()

    def follow(self, folders: Iterable[Path]) -> None:
        """These folders from now on, and no others."""
        wanted = frozenset(folder for folder in folders if folder.is_dir())
        if wanted == self._folders:
            return
        self.end()
        self._folders, self._stop = wanted, threading.Event()
        if wanted:
            threading.Thread(
                target=self._work, args=(wanted, self._stop), name="folder watch", daemon=True
            ).start()

    def end(self) -> None:
        self._stop.set()

    def _work(self, folders: frozenset[Path], stop: threading.Event) -> None:
        from watchfiles import watch

        try:
            for _ in watch(
                *folders,
                watch_filter=None,
                debounce=STEP_MS,
                step=STEP_MS,
                stop_event=stop,
                rust_timeout=TIMEOUT_MS,
                recursive=False,
                ignore_permission_denied=True,
                raise_interrupt=False,
            ):
                self._changed()
        except (OSError, RuntimeError) as error:
            log.info("plan files are looked at every other second, for they cannot be watched: %s", error)
