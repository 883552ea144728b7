"""Requests that are lost, doubled, late or overtaken by others; on one machine only as late as the owner is."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from muster.model.answers import Answer
from muster.model.commands import Command
from muster.model.errors import MusterError, Unavailable
from simulator.hosts import Process
from simulator.scenario import stream
from simulator.world import World

if TYPE_CHECKING:
    from simulator.owner import Owner

PATIENCE_S = 5.0
LATEST_S = 20.0
"""So late, long after its sender has given up, a request may still arrive."""
_AWAY = "nobody answers; whether it was written is unknown"


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.owner: Owner | None = None
        self._dice = stream(world.scenario.seed, "network")

    async def ask(self, sender: Process, command: Command) -> Answer:
        """The owner's answer.  Raises the MusterError that refuses it, Unavailable where none comes in time."""
        answer: asyncio.Future[Answer] = self.world.loop.create_future()
        remote = sender.host.number != 0
        doubled = remote and self._chance(self.world.scenario.double)
        for _ in range(2 if doubled else 1):
            self.world.spawn(self._carry(sender, command, answer, remote=remote))
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await answer
        except TimeoutError:
            raise Unavailable(_AWAY) from None
        finally:
            await sender.going()

    async def _carry(
        self, sender: Process, command: Command, answer: asyncio.Future[Answer], *, remote: bool
    ) -> None:
        await asyncio.sleep(self._travel_s(remote, patient=False))
        owner = self.owner
        if self._lost(sender, remote):
            return
        if owner is None or not owner.process.alive or not owner.leads:
            _refuse(answer, Unavailable("no owner listens"))
            return
        await owner.process.going()
        try:
            said = await owner.ask(command)
        except ConnectionResetError:
            _refuse(answer, Unavailable(_AWAY))
            return
        except MusterError as error:
            await asyncio.sleep(self._travel_s(remote, patient=True))
            if not self._lost(sender, remote):
                _refuse(answer, error)
            return
        await asyncio.sleep(self._travel_s(remote, patient=True))
        if not self._lost(sender, remote) and not answer.done():
            answer.set_result(said)

    def _chance(self, of: float) -> bool:
        return not self.world.healing and self._dice.random() < of

    def _lost(self, sender: Process, remote: bool) -> bool:
        lost = remote and (sender.host.cut_off or self._chance(self.world.scenario.loss))
        if lost:
            self.world.seen["a message was lost"] += 1
        return lost

    def _travel_s(self, remote: bool, *, patient: bool) -> float:
        if not remote:
            return 0.0001 + 0.0005 * self._dice.random()
        if not patient and self._chance(self.world.scenario.slow):
            return self._dice.uniform(0.5, LATEST_S)
        return self._dice.uniform(0.001, 0.05)


def _refuse(answer: asyncio.Future[Answer], error: MusterError) -> None:
    with suppress(asyncio.InvalidStateError):
        answer.set_exception(error)
