"""One attempt of a worker with real processes, and nobody around it but a crew that listens."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from around import claimed_job, worker_context

from muster.agents.command import CommandAgent
from muster.config.settings import AgentConfig
from muster.model import commands as c
from muster.model.limits import Limits
from muster.worker.orders import Order, Orders
from muster.worker.runner import Runner


@dataclass
class Deaf:
    """A crew that takes every report, and keeps all but the output."""

    reports: list[Any] = field(default_factory=list)
    output: dict[str, bytearray] = field(default_factory=dict)

    def report(self, command: c.AttemptCommand) -> Any:
        if isinstance(command, c.AppendLog):
            stream = self.output.setdefault(command.stream, bytearray())
            stream[:] = stream.ljust(command.offset, b"\0")
            stream[command.offset :] = command.data
        else:
            self.reports.append(command)
        return None


@dataclass
class Rig:
    root: Path
    crew: Deaf = field(default_factory=Deaf)
    task_id: int = 7

    def run(self, script: str, *, order_s: float | None = None, **limits: Any) -> c.Command:
        """Runs one attempt and returns its last word."""
        agent = CommandAgent(AgentConfig("sh", ("sh", "-c", script), prompt="none", limits=Limits(**limits)))
        around = worker_context(self.root, agents={"sh": agent})
        job = claimed_job("sh", task_id=self.task_id)
        with closing(Orders()) as orders:
            crew: Any = self.crew
            timer = threading.Timer(order_s or 0, orders.give, (Order.STOP,))
            if order_s is not None:
                timer.start()
            Runner(crew, around, job, orders).run()
            timer.cancel()
        return self.crew.reports[-1]

    @property
    def folder(self) -> Path:
        return self.root / "attempts" / str(self.task_id) / "1"
