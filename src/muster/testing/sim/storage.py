"""The store as the simulator sees it: real SQLite in memory, that may crash, be full, and is looked at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from muster.model.errors import StoreRefused
from muster.ports.store import Reads, Store, Tx

T = TypeVar("T")


class Crashed(Exception):
    """The owner's process died within a transaction, before its commit."""


class SimStore:
    """ports.store.Store around another one."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.full = False
        self.crash_next = False
        self.committed: Callable[[object], None] = lambda _: None
        """Called after each commit with what the transaction returned."""

    @property
    def reads(self) -> Reads:
        return self.inner.reads

    async def transact(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        if self.full:
            raise StoreRefused("the disk is full", "free some space")

        async def and_perhaps_crash(tx: Tx) -> T:
            result = await work(tx)
            if self.crash_next:
                self.crash_next = False
                raise Crashed
            return result

        result = await self.inner.transact(and_perhaps_crash)
        self.committed(result)
        return result

    def close(self) -> None:
        self.inner.close()
