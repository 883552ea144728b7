"""What grows on one host's disk beside the store: attempt folders, and the log of Muster's own processes."""

from __future__ import annotations

from typing import Protocol


class Folders(Protocol):
    def older_than(self, wall_ms: int, limit: int) -> list[tuple[int, int]]:
        """(task id, epoch) of folders that nothing was written in since."""

    def remove(self, task_id: int, epoch: int) -> None: ...

    def turn_log(self) -> None:
        """Makes a log that has become too long the old one, in place of the last old one."""
