"""Commands as the engine takes them."""

from __future__ import annotations

from muster.model.commands import Command
from muster.model.rows import DEFAULT_WORKSPACE
from muster.ports.engine import Asked


def asked(*commands: Command, workspace_id: int | None = DEFAULT_WORKSPACE) -> list[Asked]:
    return [Asked(command, workspace_id) for command in commands]
