"""Files on this host's disk that the owner's services see to: working trees, attempts' folders, plans."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol


class TaskTrees(Protocol):
    """Working trees of tasks, as far as whoever clears them up needs to know."""

    def ids(self) -> list[int]:
        """Numbers of the tasks that have a tree here, lowest first."""

    def put_away(self, task_id: int, plan: str, key: str, epoch: int) -> str:
        """Removes the tree of a task that has ended, once all of its work is behind a ref; why it stays, else "".

        `epoch` is the task's newest one as of when it was known to have ended: a tree that a newer attempt has
        begun in stays.  So does one in which a process works, or which holds what git would not keep.
        """


class Folders(Protocol):
    def older_than(self, wall_ms: int, limit: int) -> list[tuple[int, int]]:
        """(task id, epoch) of folders that nothing was written in since."""

    def remove(self, task_id: int, epoch: int) -> None: ...

    def turn_log(self) -> None:
        """Makes a log that has become too long the old one, in place of the last old one."""


class PlanFiles(Protocol):
    def tick(self, path: str, keys: Collection[str]) -> frozenset[str]:
        """Ticks the boxes of these tasks in the plan file and returns the keys whose boxes are now ticked.

        A key that the file no longer holds is left out.  Keeps every other byte, and never overwrites an edit
        made meanwhile.  Raises BadPlan where the file cannot be read as a plan now (the caller tries later).
        """
