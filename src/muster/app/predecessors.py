"""Workers of one folder, by name: who is started anew tells the server which of them are gone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

from muster.hosts.plain_files import read_plain, replace_plain
from muster.model.marks import worker_mark
from muster.ports.host import Host, ProcessId

_BYTES_MAX = 1 << 12


class Predecessors:
    def __init__(self, folder: Path, host: Host) -> None:
        self._folder = folder
        self._host = host

    def gone(self) -> tuple[str, ...]:
        """Those whose process is proven to be gone; nothing that they had started is left then."""
        found = tuple(sorted(path.name for path in self._known() if self._is_gone(path)))
        if found:
            self._host.kill_marked([worker_mark(name) for name in found])
        return found

    def enter(self, name: str, process: ProcessId) -> None:
        """Before its server knows of it: killed at any moment, it is found.  On a full disk its lease tells."""
        told = [self._host.hostname, self._host.boot_id, *process]
        with contextlib.suppress(OSError):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            replace_plain(self._folder / name, json.dumps(told).encode())

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            with contextlib.suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)

    def _known(self) -> list[Path]:
        return list(self._folder.glob("worker-*")) if self._folder.is_dir() else []

    def _is_gone(self, path: Path) -> bool:
        """False for one of another host that has this folder too: nobody here can know."""
        try:
            hostname, boot_id, pid, start = json.loads(read_plain(path, _BYTES_MAX))
        except (OSError, ValueError):
            return False
        if hostname != self._host.hostname:
            return False
        return boot_id != self._host.boot_id or not self._host.alive(ProcessId(int(pid), int(start)))
