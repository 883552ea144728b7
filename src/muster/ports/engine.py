"""The engine as services and servers see it: commands in, answers out."""

from __future__ import annotations

from typing import Protocol

from muster.model.answers import Answer
from muster.model.commands import Command


class Execute(Protocol):
    async def execute(self, command: Command) -> Answer:
        """The answer, once it is on the disk.  Raises the MusterError that refuses the command."""
