"""Working trees of tasks on this host's disk, as far as whoever clears them up needs to know."""

from __future__ import annotations

from typing import Protocol


class TaskTrees(Protocol):
    def ids(self) -> list[int]:
        """Numbers of the tasks that have a tree here, lowest first."""

    def put_away(self, task_id: int, plan: str, key: str, epoch: int) -> str:
        """Removes the tree of a task that has ended, once all of its work is behind a ref; why it stays, else "".

        `epoch` is the task's newest one as of when it was known to have ended: a tree that a newer attempt has
        begun in stays.  So does one in which a process works, or which holds what git would not keep.
        """
