"""A provider's pool: agents that wait together when their provider takes no more requests."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.model.states import ErrorKind

CLOSING = frozenset({ErrorKind.RATE_LIMIT, ErrorKind.QUOTA, ErrorKind.AUTH, ErrorKind.BILLING})
FOR_A_PERSON = frozenset({ErrorKind.AUTH, ErrorKind.BILLING})
"""No time heals these: the pool stays closed until a person opens it."""


class Pool(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A pool that is closed; one that is open has no row."""

    kind: ErrorKind
    reason: str
    since_ms: int
    until_ms: int | None
    """Wall time; None: until a person says so."""
    task: int
    """The task whose attempt met the refusal."""

    def closed(self, now_ms: int) -> bool:
        return self.until_ms is None or now_ms < self.until_ms

    def shifted(self, by_ms: int) -> Pool:
        until_ms = None if self.until_ms is None else self.until_ms + by_ms
        return replace(self, since_ms=self.since_ms + by_ms, until_ms=until_ms)


Pools = dict[str, Pool]


_DECODER = msgspec.json.Decoder(dict[str, Pool])


def pools_of(text: str | None, now_ms: int) -> Pools:
    """Those that are closed now, of what the store holds."""
    known = _DECODER.decode(text) if text else {}
    return {name: pool for name, pool in known.items() if pool.closed(now_ms)}


def closed_with(pools: Mapping[str, Pool], name: str, pool: Pool) -> Pools:
    """With this one closed too.  A closing that lasts longer is not shortened by a later, milder word."""
    before = pools.get(name)
    if before is not None and (
        before.until_ms is None or (pool.until_ms is not None and pool.until_ms <= before.until_ms)
    ):
        return dict(pools)
    return {**pools, name: pool}
