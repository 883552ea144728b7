"""The coordinator's term: a leader's write is checked against it in the same transaction (S10)."""

from __future__ import annotations

from muster.model.errors import TermOver
from muster.ports.store import Tx

_TERM = "term"


async def present_term(tx: Tx) -> int:
    return int(await tx.meta(_TERM) or 0)


async def take_term(tx: Tx) -> int:
    term = await present_term(tx) + 1
    await tx.set_meta(_TERM, str(term))
    return term


async def check_term(tx: Tx, term: int) -> None:
    """Raises TermOver where another coordinator has taken over since `term` was taken."""
    present = await present_term(tx)
    if term != present:
        raise TermOver(f"this coordinator's term {term} is over; term {present} leads now")
