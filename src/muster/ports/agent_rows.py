"""What agents as rows need of a store."""

from __future__ import annotations

from typing import Protocol

from muster.model.agents import AgentBeat, AgentRow


class AgentTx(Protocol):
    async def agents(self) -> list[AgentRow]: ...

    async def put_agent(self, agent: AgentRow) -> None: ...

    async def set_agent_token(self, name: str, token_hash: str) -> None:
        """The one that it had counts for nothing more."""

    async def drop_agent(self, name: str) -> None:
        """With what was heard of it."""

    async def add_beat(self, agent: str, beat: AgentBeat) -> None: ...


class AgentReads(Protocol):
    async def agents(self) -> list[AgentRow]: ...

    async def agent_of_token(self, token_hash: str) -> tuple[int, str] | None:
        """Workspace and name of the agent whose token it is."""

    async def tasks_of_agent(self, agent: str, limit: int) -> list[int]:
        """Tasks whose newest attempt is its own, the newest first; not those that are very old."""

    async def beats(self, agent: str, limit: int) -> list[AgentBeat]:
        """The newest first."""
