"""Who was not heard since it was given a fresh lease for it, because nobody could be heard (S15).

A store that is away again and again would give a dead worker one fresh lease after the other, and what it holds
would never move (L1).  So the time is added up in which it could have been heard: once that is a whole lease, and
most others were heard meanwhile, it gets no other one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.engine.view import View
from muster.model.rows import WorkerRow
from muster.model.task import Attempt

_META = "fresh leases"


class _Unheard(Struct, array_like=True):
    at_ms: int
    """When it was given its last fresh lease."""
    counted_ms: int
    """Up to here it is known whether it could have been heard."""
    well_ms: int
    """So long it could have been heard, and was not."""


class _Given(Struct):
    boot_id: str
    workers: dict[str, _Unheard]


class Silence:
    """What is known of the living workers of a workspace, at the time of one more fresh lease for them."""

    def __init__(self, given: _Given, heard_until_ms: int | None) -> None:
        """`heard_until_ms`: so long all was well lately, as far as that is known."""
        self._given, self._until_ms = given, heard_until_ms

    @classmethod
    async def of(cls, view: View, heard_until_ms: int | None) -> Silence:
        told, boot_id = await view.tx.meta_to_set(_META), view.now.boot_id
        given = msgspec.json.decode(told, type=_Given) if told else _Given(boot_id, {})
        return cls(given if given.boot_id == boot_id else _Given(boot_id, {}), heard_until_ms)

    def given_up(
        self,
        workers: Sequence[tuple[WorkerRow, Sequence[Attempt]]],
        now_ms: int,
        lease_ms: Callable[[WorkerRow], int],
    ) -> frozenset[str]:
        """Of these workers and what each holds, those that get no other one.

        `lease_ms`: how long the longest one of a worker's attempts is.
        """
        known = self._given.workers
        silent = {one.id for one, held in workers if self._well_ms(one, held, now_ms) >= lease_ms(one)}
        self._given.workers = {one.id: known[one.id] for one, _ in workers if one.id in known}
        most = 2 * (len(workers) - len(silent)) > len(workers) - 1
        return frozenset(silent if most else ())

    def _well_ms(self, worker: WorkerRow, held: Sequence[Attempt], now_ms: int) -> int:
        before = self._given.workers.get(worker.id)
        if before is None or _has_spoken(worker, held, before.at_ms):
            self._given.workers.pop(worker.id, None)
            return 0
        if self._until_ms is not None:
            before.well_ms += max(0, self._until_ms - before.counted_ms)
        before.counted_ms = now_ms
        return before.well_ms

    def give(self, worker: WorkerRow, view: View) -> WorkerRow:
        """A fresh lease: as if it were heard, a moment before a word of its own that comes in the same commit."""
        now, before = view.now, self._given.workers.get(worker.id)
        self._given.workers[worker.id] = _Unheard(now.mono_ms, now.mono_ms, before.well_ms if before else 0)
        return replace(worker, heard_mono_ms=now.mono_ms - 1, boot_id=now.boot_id)

    async def keep(self, view: View) -> None:
        await view.tx.set_meta(_META, msgspec.json.encode(self._given).decode())


def _has_spoken(worker: WorkerRow, held: Sequence[Attempt], given_ms: int) -> bool:
    """Since it was given a fresh lease.  A start is a word as well, and renews its attempt alone."""
    started = any(attempt.lease_until_ms - attempt.lease_ms > given_ms for attempt in held)
    return started or worker.heard_mono_ms != given_ms - 1
