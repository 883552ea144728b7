"""The engine as services and servers see it: commands in, answers out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from muster.model.answers import Answer
from muster.model.commands import Command
from muster.model.errors import MusterError


class Execute(Protocol):
    async def execute(self, command: Command) -> Answer:
        """The answer, once it is on the disk.  Raises the MusterError that refuses the command."""

    async def execute_all(self, commands: Sequence[Command]) -> list[Answer | MusterError]:
        """As many answers, in order, from as few commits as may be; a refusal is a value among them."""
