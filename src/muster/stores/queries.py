"""What transactions and readers ask alike, whatever the store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from operator import itemgetter
from typing import Any, TypeVar

from msgspec.json import decode

from muster.model.access import Member, Token
from muster.model.agents import AgentRow
from muster.model.as_stored import json_reader
from muster.model.edits import BoxName, KeptTask, Namesake
from muster.model.plan_sync import SyncState
from muster.model.profiles import required
from muster.model.rows import WorkerRow
from muster.model.seals import Seal
from muster.model.secrets import Secret
from muster.model.states import TaskStatus
from muster.model.touches import Touching
from muster.model.webhooks import WebhookRow
from muster.ports.vault import SealedInput
from muster.stores.rows import (
    agent_of,
    encode_json,
    kept_of,
    member_of,
    reader,
    secret_of,
    token_of,
    webhook_of,
    worker_of,
)

T = TypeVar("T")
namesake_of = reader(Namesake)
sync_state_of: Callable[[str], SyncState] = json_reader(SyncState)


class StoredQueries(ABC):
    @abstractmethod
    async def _all(self, name: str, *bindings: Any) -> list[Any]:
        """The rows of the statement of this name."""

    async def _first(self, name: str, *bindings: Any) -> Any:
        """None where there is none."""
        rows = await self._all(name, *bindings)
        return rows[0] if rows else None

    async def _value(self, name: str, *bindings: Any) -> Any:
        """The first column of a statement that has one row."""
        return (await self._first(name, *bindings))[0]

    async def _one(self, made_of: Callable[[Any], T], name: str, *bindings: Any) -> T | None:
        row = await self._first(name, *bindings)
        return made_of(row) if row else None

    async def living_workers(self) -> list[WorkerRow]:
        return [worker_of(row) for row in await self._all("living_workers")]

    async def open_by_agent(self) -> dict[str, int]:
        return dict(await self._all("open_by_agent"))

    async def touching(self) -> list[Touching]:
        return [Touching(*row) for row in await self._all("touching")]

    async def open_by_limit(self) -> dict[str, int]:
        return dict(await self._all("open_by_limit"))

    async def kept_tasks(self, plan_id: int) -> list[KeptTask]:
        return [kept_of(row) for row in await self._all("kept_tasks", plan_id)]

    async def box_names(self, plan_id: int) -> list[BoxName]:
        return [BoxName(*row) for row in await self._all("box_names", plan_id)]

    async def other_files(self, plan_id: int) -> bool:
        return bool(await self._value("other_files", plan_id))

    async def namesakes(
        self, plan_id: int, names: Collection[str], titles: Collection[str], since_ms: int
    ) -> list[Namesake]:
        rows = await self._all("namesakes", plan_id, encode_json([*names]), encode_json([*titles]), since_ms)
        return [namesake_of(row) for row in rows]

    async def sync_state(self, plan_id: int) -> SyncState:
        state = await self._one(itemgetter(0), "sync_state", plan_id)
        return sync_state_of(state) if state else SyncState()

    async def members(self) -> list[Member]:
        return [member_of(row) for row in await self._all("members")]

    async def tokens(self) -> list[Token]:
        return [token_of(row) for row in await self._all("tokens")]

    async def agents(self) -> list[AgentRow]:
        return [agent_of(row) for row in await self._all("agents")]

    async def webhooks(self) -> list[WebhookRow]:
        return [webhook_of(row) for row in await self._all("webhooks")]

    async def secrets(self) -> list[Secret]:
        return [secret_of(row) for row in await self._all("secrets")]

    async def sealed_secrets(self) -> dict[str, str]:
        return dict(await self._all("sealed_secrets"))

    async def webhook_secret(self, webhook_id: int) -> str | None:
        return await self._one(itemgetter(0), "webhook_secret", webhook_id)

    async def sealed_input(self, task_id: int) -> str:
        return await self._one(itemgetter(0), "sealed_input", task_id) or ""

    async def sealed_of_agent(self, agent: str) -> list[int]:
        return [row[0] for row in await self._all("sealed_of_agent", agent)]

    async def sealed_inputs(self, after: int, limit: int) -> list[SealedInput]:
        return [
            SealedInput(row[0], row[1], TaskStatus(row[2]))
            for row in await self._all("sealed_inputs", after, limit)
        ]

    async def movable(self, plan_id: int) -> tuple[int, set[tuple[str | None, tuple[str, ...]]]]:
        moving, wanted = await self._first("movable", plan_id)
        pairs = (decode(pair) for pair in decode(wanted))
        return moving or 0, {(agent, required(capabilities, target)) for agent, capabilities, target in pairs}

    async def plan_counts(self, plan_id: int) -> dict[str, int]:
        return dict(await self._all("plan_counts", plan_id))

    async def token_of_id(self, token_id: int) -> Token | None:
        return await self._one(token_of, "token_of_id", token_id)

    async def last_seal(self) -> Seal | None:
        return await self._one(seal_of, "last_seal")


def seal_of(row: Any) -> Seal:
    return Seal(*row)
