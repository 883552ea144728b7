"""A crew with one channel, and a phone at its end."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from engine_rig import Rig
from msgspec.structs import replace

from muster.engine.batch import drive
from muster.engine.services.notifier import Notifier
from muster.model import commands as c
from muster.model.notify import ChannelPlan, Matter, Notification, Quiet
from muster.model.webhooks import HookMessage
from muster.ports.hooks import Channel

BASE = "https://muster.example"
NIGHT = Quiet(22 * 60, 7 * 60)
BERLIN = ZoneInfo("Europe/Berlin")
ALL = tuple(Matter)


class Phone:
    """Takes what it is told; `status` 0: it cannot be reached."""

    def __init__(self) -> None:
        self.status = 200
        self.breaks = False
        self.tries: list[Notification] = []

    async def __call__(self, note: Notification) -> tuple[int, str]:
        self.tries.append(note)
        if self.breaks:
            raise LookupError("no such letter")
        return self.status, f"answered {self.status}"

    @property
    def titles(self) -> list[str]:
        return [note.title for note in self.tries]

    @property
    def texts(self) -> list[str]:
        return [note.text for note in self.tries]


class Told:
    """A crew with one channel."""

    def __init__(self, rig: Rig, phone: Phone, quiet: Quiet | None = None, **plan: Any) -> None:
        self.rig, self.phone = rig, phone
        self.term = rig.new_boot().term
        plan = {"name": "phone", "kind": "ntfy", "to": "", "tells": ALL, **plan}
        channel = Channel(ChannelPlan(**plan), quiet, BERLIN, phone)
        self.notifier = Notifier(rig.clock, rig.store.reads, rig, [channel], base=BASE, term=self.term)
        self.look()

    def look(self) -> None:
        async def round_() -> None:
            for _ in range(2):
                await self.notifier.run_once()
                await self.notifier.settle()

        asyncio.run(round_())

    def messages(self) -> list[HookMessage]:
        (row,) = [one for one in drive(self.rig.reads.webhooks()) if one.channel == "phone"]
        return drive(self.rig.reads.messages(row.id, 1000))[::-1]

    def begun(self, *keys: str) -> dict[str, Any]:
        self.rig.enqueue(dict.fromkeys(keys, ()))
        return {job.key: job for job in self.rig.started()}

    def ask(self, job: Any, question: str) -> None:
        self.rig.do(c.Ask(task_id=job.task_id, epoch=job.epoch, question=question))

    def rest(self, job: Any) -> None:
        """Asked, and its agent has stopped."""
        self.ask(job, "what?")
        self.rig.do(c.ProcessesExited(task_id=job.task_id, epoch=job.epoch))

    def answer(self, job: Any) -> None:
        self.rig.do(c.AnswerQuestion(task_id=job.task_id, text="this one", actor="ada"))
        self.rig.do(c.ProcessesExited(task_id=job.task_id, epoch=job.epoch))


def at(rig: Rig, when: datetime) -> None:
    rig.clock.present = replace(rig.clock.present, wall_ms=int(when.timestamp() * 1000))
