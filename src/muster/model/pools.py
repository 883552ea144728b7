"""A provider's pool: agents that wait together when their provider takes no more requests."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.model.states import ErrorKind

CLOSING = frozenset({ErrorKind.RATE_LIMIT, ErrorKind.QUOTA, ErrorKind.AUTH, ErrorKind.BILLING})
FOR_A_PERSON = frozenset({ErrorKind.AUTH, ErrorKind.BILLING})
"""No time heals these: the pool stays closed until a person opens it."""
FIRST_S, CAP_S = 15.0, 300.0
"""How long all wait for a provider that does not say how long."""
STATED_S_MIN = 1.0
"""What costs nothing must not go round in circles at full speed."""
_DOUBLINGS_MAX = 16


class Pool(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """A pool whose provider has refused somebody; one that takes requests has no row.

    Once it is no longer closed one attempt tries, and all others wait for what comes of it.
    """

    kind: ErrorKind
    reason: str
    since_ms: int
    until_ms: int | None
    """Wall time; None: until a person says so."""
    task: int
    """The task whose attempt met the refusal, or is trying now ..."""
    epoch: int = 0
    """... and the attempt that tries; 0: none does."""
    tries: int = 0
    """How often in a row those who tried had to give up."""
    told: bool = False
    """That it may be tried again, to those who wait."""

    def closed(self, now_ms: int) -> bool:
        return self.until_ms is None or now_ms < self.until_ms

    def shifted(self, by_ms: int) -> Pool:
        until_ms = None if self.until_ms is None else self.until_ms + by_ms
        return replace(self, since_ms=self.since_ms + by_ms, until_ms=until_ms)


Pools = Mapping[str, Pool]

_DECODER = msgspec.json.Decoder(dict[str, Pool])


@lru_cache(maxsize=1)
def pools_of(text: str | None) -> Pools:
    """What the store holds; each claim asks."""
    return _DECODER.decode(text) if text else {}


def closed_again(before: Pool | None, refused: Pool, stated_s: float | None, jitter: float) -> Pool:
    """`refused` with its end: what the provider has stated, else longer each time that nobody got through.

    A closing that lasts longer is not shortened by a later, milder word.
    """
    tries = before.tries + 1 if before else 1
    if refused.kind in FOR_A_PERSON:
        return replace(refused, until_ms=None, tries=tries)
    wait_s = min(CAP_S, FIRST_S * 2.0 ** min(tries - 1, _DOUBLINGS_MAX) * (1 + jitter / 2))
    if stated_s is not None:
        wait_s = max(STATED_S_MIN, stated_s)
    until_ms = refused.since_ms + int(wait_s * 1000)
    if before is not None and (before.until_ms is None or until_ms <= before.until_ms):
        return before
    return replace(refused, until_ms=until_ms, tries=tries)
