"""What a server that shares its store remembers of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from muster.model.rows import Lane, LaneKey
from muster.model.task import Attempt, Task
from muster.stores.postgres.changes import HeldRows
from muster.stores.rows import lane_of

_ROWS_KNOWN_MAX = 2000
_LANES_KNOWN_MAX = 10_000
_NAMES_ASKED_MAX = 16
IDS_TAKEN, IDS_KEPT_MS = 100, 1000
"""More numbers than a transaction needs, for the next ones: no number is given long after its time."""


class StoreKnown:
    """What a server remembers from one transaction to the next: lanes, which never change; tasks and
    attempts, each with the version that says whether it is still that; and what is asked.

    It counts for one state of the database: where another one may have taken its place, it is made anew.
    """

    def __init__(self) -> None:
        self._tasks: dict[int, tuple[Task, int]] = {}
        self._attempts: dict[tuple[int, int], tuple[Attempt, int]] = {}
        self._lanes: dict[int, Lane] = {}
        self._numbers: dict[tuple[int, LaneKey], int] = {}
        self._ids: tuple[range, float] = (range(0), 0.0)
        """Numbers that were taken and given to nobody, and until when."""
        self._names: dict[bool, dict[str, None]] = {False: {}, True: {}}
        """Of what is kept by name, by whether that is the store's own."""

    def remember(self, tasks: HeldRows[Task], attempts: HeldRows[Attempt], added: Collection[int]) -> None:
        """As a committed transaction has left them; not the tasks that it has `added`, which nobody has read, nor
        attempts that are over, which hardly anybody asks for."""
        for task, version in tasks.versioned():
            if task.id not in added:
                self._tasks.pop(task.id, None)  # the last ones stay longest
                self._tasks[task.id] = (task, version)
        for attempt, version in attempts.versioned():
            key = (attempt.task_id, attempt.epoch)
            self._attempts.pop(key, None)
            if attempt.ended_at_ms is None:
                self._attempts[key] = (attempt, version)
        _shorten(self._tasks)
        _shorten(self._attempts)

    def most(self, ids: Sequence[int]) -> bool:
        """Whether asking for their versions first is worth its while."""
        return 2 * sum(i in self._tasks for i in ids) > len(ids)

    def task(self, task_id: int, version: int) -> Task | None:
        """None where it is another one by now, or unknown."""
        task, known = self._tasks.get(task_id, (None, 0))
        return task if known == version else None

    def attempt(self, task_id: int, epoch: int, version: int | None) -> Attempt | None:
        """As `task`."""
        attempt, known = self._attempts.get((task_id, epoch), (None, 0))
        return attempt if known == version else None

    async def lanes(self, ask: Callable[..., Awaitable[list[Any]]], ids: list[int]) -> list[Lane]:
        """`ask` has the rows of the statement of a name."""
        if missing := [i for i in ids if i not in self._lanes]:
            if len(self._lanes) > _LANES_KNOWN_MAX:
                self._lanes.clear()
                missing = ids
            for row in await ask("lanes_of", missing):
                lane = lane_of(row)
                self._lanes[lane.id] = lane
        return [self._lanes[i] for i in ids]

    def number(self, workspace_id: int, key: LaneKey) -> int | None:
        return self._numbers.get((workspace_id, key))

    def know_number(self, workspace_id: int, key: LaneKey, number: int) -> None:
        """Of a lane that is committed."""
        if len(self._numbers) > _LANES_KNOWN_MAX:
            self._numbers.clear()
        self._numbers[workspace_id, key] = number

    def forget_ids(self) -> None:
        self._ids = (range(0), 0.0)

    def keep_ids(self, ids: range, now_s: float) -> None:
        self._ids = (ids, now_s + IDS_KEPT_MS / 1000)

    def kept_ids(self, count: int, now_s: float) -> range | None:
        """So many of them; None where there are fewer."""
        ids, until_s = self._ids
        if count > len(ids) or now_s > until_s:
            return None
        self._ids = (ids[count:], until_s)
        return ids[:count]

    def names(self, workspace_id: int) -> list[str]:
        """What was asked for before, of any workspace, or of the store's own (0)."""
        return list(self._names[workspace_id == 0])

    def asked(self, workspace_id: int, name: str) -> list[str]:
        """That name, and those that were asked for before."""
        names = self._names[workspace_id == 0]
        if len(names) < _NAMES_ASKED_MAX:
            names[name] = None
        return list(names) if name in names else [name]


def _shorten(known: dict[Any, Any]) -> None:
    while len(known) > _ROWS_KNOWN_MAX:
        del known[next(iter(known))]
