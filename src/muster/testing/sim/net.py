"""Messages between processes and the owner: they may be late, lost or doubled, and so may their answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from muster.engine.commands import Outcome
from muster.model.commands import Command
from muster.model.errors import MusterError, Unavailable
from muster.testing.sim.knobs import Knobs
from muster.testing.sim.world import Resume, Suspend, World

Reply = Callable[[Outcome], None]
Answered = Callable[[Command, Outcome], None]


class Receiver(Protocol):
    def receive(self, command: Command, reply: Reply) -> None: ...


class Net:
    def __init__(self, world: World, knobs: Knobs, receiver: Receiver, answered: Answered) -> None:
        self._world = world
        self._knobs = knobs
        self._receiver = receiver
        self._answered = answered
        self.healed = False

    def _strikes(self, fault: str, line: str) -> bool:
        rate = self._knobs.rate(fault)
        struck = rate > 0 and self._world.stream(f"net/{fault}").random() < rate and not self.healed
        if struck:
            self._world.fault(fault, line)
        return struck

    def _delay_ms(self, line: str) -> float:
        chance = self._world.stream("net/delay")
        usual_ms, late_ms = chance.randint(0, 3), chance.uniform(0, self._knobs.late_ms)
        return late_ms if self._strikes("message_late", line) else usual_ms

    def call(self, command: Command) -> Suspend:
        """The answer.  Raises the MusterError that refuses the command, and Unavailable where none comes."""

        def begin(resume: Resume) -> None:
            name = type(command).__name__
            timeout_ms = self._knobs.call_timeout_s * 1000
            silence = Unavailable(f"no answer to {name}")
            self._world.after(timeout_ms, lambda: resume(error=silence))

            def reply(outcome: Outcome) -> None:
                if self._strikes("answer_lost", name):
                    return
                self._world.after(self._delay_ms(name), lambda: self._deliver(command, outcome, resume))

            if not self._strikes("request_lost", name):
                self._world.after(self._delay_ms(name), lambda: self._receiver.receive(command, reply))
            if self._strikes("message_twice", name):
                delay_ms = self._world.stream("net/twice").uniform(0, self._knobs.late_ms)
                self._world.after(delay_ms, lambda: self._receiver.receive(command, lambda _: None))

        return Suspend(begin)

    def _deliver(self, command: Command, outcome: Outcome, resume: Resume) -> None:
        self._answered(command, outcome)
        if isinstance(outcome, MusterError):
            resume(error=outcome)
        else:
            resume(outcome)
