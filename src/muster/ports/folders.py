"""The attempt folders of one host: what agents printed and were given, as files."""

from __future__ import annotations

from typing import Protocol


class Folders(Protocol):
    def older_than(self, wall_ms: int, limit: int) -> list[tuple[int, int]]:
        """(task id, epoch) of folders that nothing was written in since."""

    def remove(self, task_id: int, epoch: int) -> None: ...
