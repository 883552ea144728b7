"""The engine as services and servers see it: commands in, answers out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from muster.model.answers import Answer
from muster.model.commands import Command
from muster.model.errors import MusterError


class Asked(NamedTuple):
    command: Command
    workspace_id: int | None
    """Whose it is to be; None: the coordinator's, which is told by what it is about."""


class Execute(Protocol):
    async def execute(self, command: Command) -> Answer:
        """The answer, once it is on the disk.  Raises the MusterError that refuses the command."""

    async def execute_all(self, commands: Sequence[Command]) -> list[Answer | MusterError]:
        """As many answers, in order, from as few commits as may be; a refusal is a value among them."""


class ExecuteForAll(Execute, Protocol):
    """For who looks after all workspaces: the subject of its command says whose it is."""

    def of(self, workspace_id: int) -> Execute:
        """An engine for that workspace: it finds nothing of any other."""
