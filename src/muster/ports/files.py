"""Files on this host's disk that the owner's services see to: working trees, attempts' folders, plans."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol


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

    def unfinished(self, limit: int) -> list[tuple[int, int]]:
        """(task id, epoch) of attempts of whose files not all parts have come."""

    def drop_unfinished(self, task_id: int, epoch: int) -> None:
        """What has come of these."""

    def turn_log(self) -> None:
        """Makes a log that has become too long an old one; of those the oldest goes."""


Mark = tuple[int, int, int]
"""Tells versions of a file apart without reading it: inode, size, time of the last change."""


class PlanBytes(NamedTuple):
    data: bytes
    mark: Mark
    written: bool
    """Some program has it open for writing, so there may be more to come."""
    text: str
    """A digest of all but the boxes' marks."""
    boxes: Mapping[str, bool]
    """By key, whether its box is ticked."""
    restored: bool
    """A version that we have replaced a moment ago, written back: by an editor that had it open, most likely."""


class PlanBoxes(Protocol):
    def tick(self, path: str, keys: Collection[str], clear: Collection[str] = ()) -> frozenset[str]:
        """Ticks the boxes of these tasks in the plan file, clears those of others, and returns the keys whose
        boxes are so now.

        A key that the file does not hold is left out.  Keeps every other byte, and never overwrites an edit
        made meanwhile.  Raises BadPlan where the file cannot be read as a plan now (the caller tries later).
        """


class PlanFiles(PlanBoxes, Protocol):
    def glance(self, path: str, known: Mark | None) -> tuple[Mark | None, bool]:
        """The file's mark, None where there is none; and whether only our ticks have changed it since `known`."""

    def boxes(self, path: str) -> dict[str, bool]:
        """By key, whether its box is ticked.  Raises BadPlan where the file cannot be read."""

    def read(self, path: str) -> PlanBytes:
        """Raises BadPlan where it cannot be read."""
