"""Whether the database takes what is written."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import asyncpg

from muster.model.errors import Contended, StoreAway, Unavailable
from muster.stores.postgres.faults import TRIED_AGAIN

HELD_UP_S = 5.0
"""A server asks who leads every 2 s: where nothing is taken for so long, nothing is taken."""
PAUSE_S = 2.0
"""Longer than anybody waits before the next try."""


class Flow:
    """Of one server's transactions, which tell here when they begin and how they have ended.

    One that takes long says nothing as long as others end: it may be a large plan.  So somebody looks as well
    whether a table is held.
    """

    def __init__(self) -> None:
        self._open = 0
        self._ended_s = float("-inf")
        self._since_s = 0.0
        """The last time that something was taken, or was first tried after a rest."""
        self._refusal: StoreAway | None = None
        """Why the last one was not taken, where that was told."""
        self._held: tuple[str, int] | None = None
        self._held_s = 0.0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Around what `PostgresStore.transact` does."""
        if self._rests:
            self._since_s = _now_s()
        self._open += 1
        answered = False
        try:
            yield
            answered = True
        except Exception as error:
            answered = _is_answer(error)
            self._refusal = error if isinstance(error, StoreAway) else None
            raise
        finally:
            self._open -= 1
            self._ended_s = _now_s()
            if answered:
                self._since_s = self._ended_s

    def see(self, held: Sequence[Any] | None) -> None:
        """A table that is waited for, and the number of the process that has it: whoever looks finds none, or one
        again."""
        if self._held is None:
            self._held_s = _now_s()
        self._held = None if held is None else (held[0], held[1])

    @property
    def held_up(self) -> StoreAway | None:
        """Why nothing is written, where transactions wait and none has ended for some time."""
        now_s = _now_s()
        if self._held is not None and now_s - self._held_s > HELD_UP_S:
            table, pid = self._held
            said = f"process {pid} of PostgreSQL keeps everybody from the table {table}"
            return StoreAway(said, f"{TRIED_AGAIN}; SELECT pg_terminate_backend({pid}) ends that process")
        if self._rests or now_s - self._since_s <= HELD_UP_S:
            return None
        silent = StoreAway(f"PostgreSQL has taken nothing for more than {HELD_UP_S:.0f} s", TRIED_AGAIN)
        return self._refusal or silent

    @property
    def _rests(self) -> bool:
        return not self._open and _now_s() - self._ended_s > PAUSE_S


def _is_answer(error: Exception) -> bool:
    """Whether the database was there and free: it may refuse, and others may have been faster."""
    if isinstance(error, Contended):
        return not isinstance(error.__cause__, (asyncpg.LockNotAvailableError, asyncpg.QueryCanceledError))
    return not isinstance(error, Unavailable)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
