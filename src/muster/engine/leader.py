"""Who leads, of servers that share a store: one has the coordinator's place, under a lease and a term.

The lease is told by the store's clock.  It only says when another one may try: what fences a leader that stood
still is its term, which every write of its loops checks in the same transaction (S10).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from muster.engine.clock_jumps import STORE_SET_MS
from muster.engine.fence import present_term
from muster.engine.server_keys import given_up, note_server, sealing_key, wrong_clocks
from muster.engine.service import Service
from muster.engine.views import Views
from muster.engine.workers import Workers
from muster.model.answers import Led
from muster.model.commands import Lead
from muster.model.errors import MusterError, TermOver
from muster.ports.engine import Execute
from muster.ports.locks import TERM, locks
from muster.ports.runtime import Clock

log = logging.getLogger(__name__)

LEASE_S = 15.0
MARGIN_S = 3.0
"""So much earlier a leader stops to trust its lease: another one's clock may be a little ahead."""
ASK_S = 2.0
"""How often each server asks."""
_LEADER = "leader"


class _Place(Struct, frozen=True):
    """Who has it, as the store keeps it."""

    server: str = ""
    named: str = ""
    term: int = 0
    until_ms: int = 0
    unheard: bool = False
    """The store's clock was set, and its server has not been heard since: leases of before prove no silence."""
    settings: dict[str, str] = field(default_factory=dict)


async def lead(views: Views, command: Lead, workers: Workers) -> Led:
    tx = views.tx
    await tx.lock(locks(TERM))
    now_ms = views.now.mono_ms
    told = await tx.store_meta(_LEADER)
    kept = msgspec.json.decode(told, type=_Place) if told else _Place()
    place = _by_the_clock_as_it_is(kept, command, now_ms)
    others = await note_server(tx, command, now_ms)
    led = Led(
        vault_key=await sealing_key(tx),
        given_up=await given_up(tx),
        at_ms=now_ms,
        others_are_up=bool(others),
        clocks=wrong_clocks(others.values(), command),
    )
    taken = now_ms < place.until_ms and place.term == await present_term(tx)
    if taken and place.server != command.server:
        if place != kept:
            await tx.set_store_meta(_LEADER, _text(place))
        return replace(led, leader=place.named, settings=place.settings)
    if command.give_up:
        if taken:
            await tx.set_store_meta(_LEADER, _text(replace(place, until_ms=now_ms)))
        return replace(led, last_term=await present_term(tx))
    term = place.term
    if not taken:
        # It stood empty for longer than a server leaves it: there was none, and nobody could be heard.
        empty = now_ms - place.until_ms > 2 * ASK_S * 1000
        known = place.server and not place.unheard
        until_ms = place.until_ms - command.lease_ms if known else None
        unheard = command.unheard or place.unheard or empty
        term = await workers.new_leader(views, command.named, unheard=unheard, heard_until_ms=until_ms)
    mine = _Place(command.server, command.named, term, now_ms + command.lease_ms, settings=command.settings)
    await tx.set_store_meta(_LEADER, _text(mine))
    return replace(led, term=term, leader=command.named, took=not taken)


def _by_the_clock_as_it_is(place: _Place, command: Lead, now_ms: int) -> _Place:
    """After the store's clock was set nobody has the place for longer than a lease."""
    expects_ms = now_ms if command.expects_ms is None else command.expects_ms
    was_set = abs(now_ms - expects_ms) > STORE_SET_MS
    latest_ms = now_ms + command.lease_ms + STORE_SET_MS
    if place.until_ms <= latest_ms:
        return replace(place, unheard=place.unheard or was_set)
    return replace(place, until_ms=latest_ms, unheard=True)


def _text(place: _Place) -> str:
    return msgspec.json.encode(place).decode()


def differing(here: Mapping[str, str], there: Mapping[str, str]) -> tuple[str, ...]:
    """In words."""
    unset = "not set"
    return tuple(
        f"{key} is {here.get(key, unset)} here and {there.get(key, unset)} there"
        for key in sorted(here.keys() | there.keys())
        if here.get(key) != there.get(key)
    )


class Leader:
    """Asks for the place again and again, and runs the coordinator's loops while it has it."""

    def __init__(
        self,
        clock: Clock,
        engine: Execute,
        loops: Callable[[int, int], Sequence[Service]],
        *,
        server: str,
        named: str,
        place: str = "",
        elapsed_ms: Callable[[], int],
        absences: Callable[[], int],
        settings: Mapping[str, str],
        keys: Callable[[], tuple[str, ...]] = tuple,
        wrong_ms: Callable[[], int] = int,
        hear: Callable[[Led], None] = lambda _: None,
        lease_s: float = LEASE_S,
    ) -> None:
        """`loops` makes those of a term, which was asked for at a time of `clock`.

        `elapsed_ms` counts suspend.  `place`, `settings`, `keys` and `wrong_ms`: as Lead has them.  `hear` is
        told each answer.
        """
        self.clock = clock
        self.term = 0
        """0 while another one leads, or none."""
        self.leader = ""
        """Who leads, as far as is known."""
        self._engine, self._make = engine, loops
        self._lead = Lead(
            server=server,
            named=named,
            place=place,
            lease_ms=int(lease_s * 1000),
            settings=dict(settings),
        )
        self._trust_ms = int(max(lease_s - MARGIN_S, lease_s / 2) * 1000)
        self._elapsed_ms, self._absences = elapsed_ms, absences
        self._keys, self._wrong_ms, self._hear = keys, wrong_ms, hear
        self._absences_seen = absences()
        self._trusted_until_ms = 0
        self._store_ahead_ms: int | None = None
        """The store's clock, of this process's: how far it was the last time."""
        self._running: set[asyncio.Task[None]] = set()
        self.away = ""
        """Why the store has not answered the last time."""
        self.differs: tuple[str, ...] = ()
        """Settings that are others than the leader's, each in words."""

    async def run(self) -> None:
        """Ends by cancellation, or with the error of a loop that has failed: a bug."""
        try:
            while True:
                await self._ask()
                await self._work()
        finally:
            await self._stop()

    async def give_up(self) -> Led | None:
        """Once `run` has ended: another one leads at once.  None where the store did not answer."""
        with contextlib.suppress(MusterError, TimeoutError):
            async with asyncio.timeout(MARGIN_S):
                led = await self._engine.execute(replace(self._lead, give_up=True))
                assert isinstance(led, Led)
                return led
        return None

    async def _ask(self) -> None:
        # Before the round trip: a slow yes buys no more time.
        asked, asked_ms, absences = self.clock.now(), self._elapsed_ms(), self._absences()
        left_s = (self._trusted_until_ms - asked_ms) / 1000 if self.term else self._trust_ms / 1000
        try:
            async with asyncio.timeout(max(0.0, left_s)):
                unheard, ahead_ms = absences != self._absences_seen, self._store_ahead_ms
                expects_ms = None if ahead_ms is None else asked.mono_ms + ahead_ms
                asking = replace(
                    self._lead,
                    unheard=unheard,
                    expects_ms=expects_ms,
                    keys=self._keys(),
                    wrong_ms=self._wrong_ms(),
                )
                led = await self._engine.execute(asking)
        except (MusterError, TimeoutError) as error:
            self._tell_of(str(error) or "the store does not answer")
            if self.term and self._elapsed_ms() >= self._trusted_until_ms:
                log.warning("term %d: the lease on it could not be renewed; its loops end", self.term)
                await self._stop()
            return
        assert isinstance(led, Led)
        self.away, self.leader, self._absences_seen = "", led.leader, absences
        self._store_ahead_ms = led.at_ms - asked.mono_ms
        self._hear(led)
        if led.term != self.term:
            await self._stop()
            self.leader = led.leader
        self._compare(led)
        self._trusted_until_ms = asked_ms + self._trust_ms
        if led.term and not self.term:
            log.info("term %d: this server leads", led.term)
            self.term = led.term
            self._running = {asyncio.create_task(one.run()) for one in self._make(led.term, asked.mono_ms)}

    def _compare(self, led: Led) -> None:
        """Tells each change once: servers are given other settings one after the other."""
        differs = differing(self._lead.settings, led.settings) if led.leader and not led.term else ()
        if differs and differs != self.differs:
            log.warning("settings are not those of %s, which leads: %s", led.leader, "; ".join(differs))
        self.differs = differs

    def _tell_of(self, problem: str) -> None:
        """Once, not every time."""
        self.leader = ""
        if problem != self.away:
            self.away = problem
            log.warning("who leads is not known: %s", problem)

    async def _work(self) -> None:
        """Until it is time to ask again."""
        if not self._running:
            await self.clock.sleep(ASK_S)
            return
        left_s = (self._trusted_until_ms - self._elapsed_ms()) / 1000
        wait_s = min(ASK_S, max(0.05, left_s))
        done, _ = await asyncio.wait(self._running, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        for loop in done:
            if isinstance(error := loop.exception(), TermOver):
                log.warning("%s", error)
                await self._stop()
                return
            loop.result()

    async def _stop(self) -> None:
        """What is being written meanwhile is fenced by its term."""
        running, self._running, self.term, self.leader = self._running, set(), 0, ""
        for loop in running:
            loop.cancel()
        await asyncio.gather(*running, return_exceptions=True)
