"""The file that tells an agent what it should know while it works."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from muster.hosts.plain_files import replace_plain

log = logging.getLogger(__name__)


class NoticeFile:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._shown = ""

    def show(self, lines: Iterable[str]) -> None:
        """Puts them where the agent finds them, whole or not at all, and takes them away again."""
        notice = "\n".join(lines)
        if notice == self._shown:
            return
        try:
            if notice:
                replace_plain(self._path, f"{notice}\n".encode())
            else:
                self._path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("the notice %s: %s", self._path, error)
            return
        self._shown = notice
