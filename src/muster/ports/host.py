"""What the engine and the workers need from the operating system's processes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol


class ProcessId(NamedTuple):
    """A process for good: a reused pid has another start time.

    `start` is in the kernel's own unit (clock ticks after boot on Linux); compare it, never compute with it.
    """

    pid: int
    start: int


class Host(Protocol):
    """One machine: its identity, its clock of this boot, and its processes."""

    @property
    def hostname(self) -> str: ...

    @property
    def boot_id(self) -> str:
        """Differs after every boot, so that a lease of another boot is known to be over."""

    def identify(self, pid: int) -> ProcessId | None:
        """The running process with this pid, or None.  A zombie counts as gone."""

    def alive(self, process: ProcessId) -> bool:
        """False once this very process has ended, also when its pid was given to another one."""

    def kill_marked(self, marks: Iterable[str]) -> int:
        """SIGKILL every process that began with one of these `NAME=value`, and all its descendants, until none is
        left.

        Returns how many processes were killed.  Never touches the calling process.
        """
