"""Hints that a file has changed, where the system gives them: its folder is watched, for files are replaced."""

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
    """Calls back, from a thread of its own, when one of these files changes.  A hint, and no promise:
    where the system has no watches left, nobody is called, and whoever needs to know looks by themselves.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._files: frozenset[Path] = frozenset()
        self._stop = threading.Event()

    def follow(self, files: Iterable[Path]) -> None:
        """These from now on, and no others; also what links among them lead to."""
        paths = frozenset(path for file in files for path in (file.absolute(), file.resolve()))
        if paths == self._files:
            return
        self.end()
        self._files, self._stop = paths, threading.Event()
        folders = {path.parent for path in paths if path.parent.is_dir()}
        if folders:
            threading.Thread(
                target=self._work, args=(folders, paths, self._stop), name="folder watch", daemon=True
            ).start()

    def end(self) -> None:
        self._stop.set()

    def _work(self, folders: set[Path], paths: frozenset[Path], stop: threading.Event) -> None:
        from watchfiles import watch

        try:
            for changes in watch(
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
                if any(Path(path) in paths for _, path in changes):
                    self._changed()
        except (OSError, RuntimeError) as error:
            log.info("plan files are looked at every other second, for they cannot be watched: %s", error)
