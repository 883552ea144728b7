"""What the engine keeps between transactions, because it is the only writer.

Where other servers write the store too, each transaction has a Memory of its own, which reads all that it is
asked for: `Memory.lasting` and `Memory.of_one` are the only two there are.
"""

from __future__ import annotations

from typing import Self

from muster.engine.fence import Incarnation
from muster.engine.incarnation import read_incarnation
from muster.engine.known import Known, RememberedRequests, Requests
from muster.model.seals import Grants
from muster.ports.store import Transaction, Tx


class Memory:
    def __init__(self, grants: Grants | None, requests: Requests) -> None:
        self._grants = grants
        self.requests = requests
        self._known: dict[int, Known] = {}
        """By workspace."""
        self.incarnation = Incarnation(grants)
        self._fresh = False

    @classmethod
    def lasting(cls, grants: Grants | None) -> Self:
        return cls(grants, RememberedRequests())

    @classmethod
    def of_one(cls, grants: Grants | None) -> Self:
        """For one transaction."""
        return cls(grants, Requests())

    def forget(self) -> None:
        """After a roll-back: the next transaction reads anew.  No request is ever used twice."""
        self._fresh = False

    async def refresh(self, tx: Transaction) -> None:
        if self._fresh:
            return
        self._known.clear()
        self.incarnation = Incarnation(self._grants, *await read_incarnation(tx))
        self._fresh = True

    async def of(self, tx: Tx) -> Known:
        known = self._known.get(tx.workspace_id)
        if known is None:
            known = self._known[tx.workspace_id] = await Known.read(tx)
        return known
