"""What keeps texts that the store is not to know, and the rows that it keeps of them."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol

from muster.model.secrets import Secret
from muster.model.states import TaskStatus


class Vault(Protocol):
    @property
    def sealing(self) -> AbstractAsyncContextManager[None]:
        """Held by whoever seals something until that is written: no key is given up in between."""

    def seal(self, text: str, purpose: str, by: str = "") -> str:
        """As the store may keep it.  It is opened for the same purpose only.

        `by`: the name of the key that seals, where that is not the first one.  Raises StoreRefused where it is
        not there.
        """

    def unseal(self, sealed: str, purpose: str) -> str:
        """Raises StoreRefused where the key is another one, or the text was changed."""

    def keys_for(self, purpose: str, *, make: bool = False) -> list[bytes]:
        """Of each of its keys, the one that seals first, one that is good for nothing else: the same on all
        servers of a store.  `make`: there is one from now on."""

    def check(self) -> None:
        """Raises BadConfig where it was not given a key that it had before."""


class SealedInput(NamedTuple):
    task_id: int
    sealed: str
    status: TaskStatus


class SecretReads(Protocol):
    async def secrets(self) -> list[Secret]: ...

    async def sealed_secrets(self) -> dict[str, str]:
        """All of them by name."""

    async def webhook_secret(self, webhook_id: int) -> str | None:
        """What signs its messages, sealed."""

    async def sealed_input(self, task_id: int) -> str:
        """The secrets of a task's input context; empty: there are none."""

    async def sealed_inputs(self, after: int, limit: int) -> list[SealedInput]:
        """Those of tasks after this one, in their order."""

    async def sealed_of_agent(self, agent: str) -> list[int]:
        """Tasks with such secrets that it has now."""


class SecretTx(SecretReads, Protocol):
    async def put_secret(self, secret: Secret, sealed: str) -> None: ...

    async def drop_secret(self, name: str) -> None: ...

    async def reseal_secret(self, name: str, sealed: str, before: str = "") -> None:
        """Nothing where it is not there, or is not `before` any more (empty: whatever it is)."""

    async def reseal_input(self, task_id: int, sealed: str, before: str = "") -> None:
        """As `reseal_secret`."""

    async def reseal_webhook(self, webhook_id: int, sealed: str, before: str = "") -> None:
        """The same of the secret that signs its messages."""
