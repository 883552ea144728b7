"""Which processes belong to an attempt, and the file that remembers them beyond the worker's death."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterable
from pathlib import Path

from msgspec import Struct

from muster.hosts.local_host import LocalHost, kill_all
from muster.hosts.plain_files import read_plain, replace_plain
from muster.hosts.process_table import HostCounts, Proc, environment, family, scan
from muster.ports.host import ProcessId

log = logging.getLogger(__name__)

PIDS_FILE = "pids"
PIDS_GLOB = f"*/*/{PIDS_FILE}"
_PIDS_BYTES_MAX = 1 << 20
_told: set[Path] = set()
"""Files that could not be read, as was said: the sweep comes by twice a second."""


class ProcessTree(Struct):
    """An attempt's root process and everything that came from it."""

    root: ProcessId
    mark: str
    begun: HostCounts = HostCounts()
    """What the host had begun soon after the root."""
    members: dict[ProcessId, Proc] = {}
    """The living ones, as of the last look."""
    sessions: set[int] = set()
    """Every session that a member was ever seen in."""
    pids: set[int] = set()
    """Of all that were ever seen."""
    recorded: frozenset[ProcessId] = frozenset()
    """The members that the file knows."""

    def __post_init__(self) -> None:
        self.sessions.add(self.root.pid)
        self.pids.add(self.root.pid)

    def grow(self, table: Collection[Proc], orphans: Iterable[Proc]) -> None:
        """Takes in what the process table shows, and `orphans` known to be ours.

        Only valid while the root has not been reaped: that keeps its pid, and so its session's id, ours.
        """
        adopted = {proc.id for proc in orphans}
        mark = os.fsencode(self.mark)

        def ours(proc: Proc) -> bool:
            if proc.sid == self.root.pid or proc.id in self.members or proc.id in adopted:
                return True
            # Nothing older than the root came from it; this keeps us from reading every environment.
            return proc.start >= self.root.start and mark in environment(proc.pid)

        found = family(table, ours, by_session=True)
        self.members = found
        self.sessions |= {proc.sid for proc in found.values()}
        self.pids |= {proc.pid for proc in found.values()}

    def take(self, born: Proc, *, orphan: bool) -> bool:
        """Whether this process, which has just begun, came from here or is an `orphan` known to; takes it in.

        Looks at it alone: a table of all takes longer than some processes live.
        """
        if not orphan:
            sessions = {proc.sid for proc in self.members.values()} - {0, os.getsid(0)} | {self.root.pid}
            parents = {process.pid for process in self.members}
            kin = born.sid in sessions or born.ppid in parents
            if not kin and os.fsencode(self.mark) not in environment(born.pid):
                return False
        self.members[born.id] = born
        self.sessions.add(born.sid)
        self.pids.add(born.pid)
        return True

    def could_hold(self, proc: Proc) -> bool:
        """Whether an orphan without a trace may have come from this tree."""
        return proc.start >= self.root.start


class Record(Struct, frozen=True, kw_only=True):
    """What a `pids` file says: who held the attempt, and the processes that were seen last."""

    boot_id: str
    holder: ProcessId
    project: str | None = ""
    """Whose processes they are: a copy of the file is no word on them.  None: those of the folder, by a build
    before the first release, which knew of no projects."""
    mark: str
    members: frozenset[ProcessId]

    def save(self, path: Path) -> None:
        """Replaces the file as a whole.  A failure is logged: the mark still finds most of the tree."""
        lines = [f"boot {self.boot_id}", f"holder {self.holder.pid} {self.holder.start}"]
        lines += [f"project {self.project}", f"mark {self.mark}"]
        lines += [f"{process.pid} {process.start}" for process in sorted(self.members)]
        try:
            replace_plain(path, "\n".join([*lines, ""]).encode())
        except OSError as exc:
            log.warning("cannot record the processes of an attempt in %s: %s", path, exc)

    @classmethod
    def load(cls, path: Path) -> Record | None:
        """None where the file is not, or not one of ours: that is said once for each file."""
        try:
            boot, holder, *lines = read_plain(path, _PIDS_BYTES_MAX).decode().splitlines()
            project = None if lines and lines[0].startswith("mark ") else lines.pop(0)
            mark, *members = lines
            record = cls(
                boot_id=boot.removeprefix("boot "),
                holder=_process(holder.removeprefix("holder ")),
                project=project and project.removeprefix("project "),
                mark=mark.removeprefix("mark "),
                members=frozenset(_process(line) for line in members),
            )
        except FileNotFoundError:  # its attempt has ended a moment ago
            return None
        except (OSError, ValueError, IndexError) as exc:
            if path not in _told:
                _told.add(path)
                log.warning("cannot read %s: %s", path, exc)
            return None
        _told.discard(path)
        return record


def kill_recorded(folder_root: Path, host: LocalHost) -> int:
    """Kills the host's project's process trees that outlived their worker; returns how many processes that were.

    `folder_root` holds the attempts' folders (`<task>/<epoch>/`).  Trees whose worker still lives are left
    alone, and so is every process whose start time or boot is not the recorded one.
    """
    killed = 0
    for path in folder_root.glob(PIDS_GLOB):
        record = Record.load(path)
        if record is None or (record.boot_id == host.boot_id and host.alive(record.holder)):
            continue
        if record.boot_id == host.boot_id and record.project in (host.project, None):
            killed += _kill_tree(record)
        path.unlink(missing_ok=True)
    return killed


def _kill_tree(record: Record) -> int:
    known = set(record.members)
    mark = os.fsencode(record.mark)

    def find() -> Collection[Proc]:
        table = scan()
        found = family(table, lambda proc: proc.id in known or mark in environment(proc.pid), by_session=True)
        known.update(found)
        return found.values()

    return len(kill_all(find, lambda born: mark in environment(born.pid)))


def _process(line: str) -> ProcessId:
    pid, start = line.split()
    return ProcessId(int(pid), int(start))
