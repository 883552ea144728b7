"""Files in the database, part by part, so that every server has them: what attempts have made, git bundles."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

from muster.model.errors import BadInput, NotFound, TooLarge
from muster.model.numbers import ARTIFACT_PART_BYTES
from muster.ports.locks import locks
from muster.stores.postgres.session import Session
from muster.stores.postgres.store import PostgresStore
from muster.stores.postgres.transaction import PostgresTransaction

ARTIFACT, BUNDLE = "artifact", "bundle"
PAGE_PARTS = 16
"""Read at once."""
_NO_FILE = 0
"""A number that none has."""


class FileKey(NamedTuple):
    task_id: int
    epoch: int
    kind: str
    name: str


class Part(NamedTuple):
    sha256: str
    """Of all of it."""
    size: int
    """Of all of it."""
    offset: int
    data: bytes


class Received(NamedTuple):
    received: int
    """Go on from here."""
    whole: bool


class PostgresFiles:
    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    async def take(
        self,
        key: FileKey,
        part: Part,
        *,
        bytes_max: int | None = None,
        keep: Callable[[bytes], bytes] | None = None,
        first: bool = False,
    ) -> Received:
        """Part by part, whichever server hears them, in the place of an older one once it is whole.

        `bytes_max` holds for all of the attempt's files of this kind.  With `keep` the sum is checked, and that
        of it is kept, as long as it was.  `first`: one that is whole already stays.  Raises BadInput, TooLarge,
        and what the store's `transact` does.
        """

        async def work(transaction: PostgresTransaction) -> Received | None:
            session = transaction.session
            await transaction.lock(locks(f"files {key.task_id}"))
            if first and await session.first("whole_file_to_take", *key) is not None:
                return Received(part.size, whole=True)
            number, received, whole = await self._begun(session, key, part, bytes_max, session.at_ms)
            if whole:  # an earlier answer was lost
                return Received(part.size, whole=True)
            data = part.data[: part.size - received] if part.offset == received else b""
            if data:
                await session.all("add_file_part", number, received, data)
                received += len(data)
            whole = received == part.size
            if whole and keep is not None and not await self._settled(session, number, part, keep):
                await session.all("drop_files", *key, _NO_FILE)
                return None
            await session.all("receive_file", number, received, int(whole))
            if whole:
                await session.all("drop_files", *key, number)
            return Received(received, whole)

        taken = await self._store.transact(work)
        if taken is None:
            raise BadInput("the file is not the one that was announced; nothing was kept", "send it again")
        return taken

    async def _begun(
        self, session: Session, key: FileKey, part: Part, bytes_max: int | None, wall_ms: int
    ) -> tuple[int, int, int]:
        found = await session.first("file", *key, part.sha256)
        if found is None and bytes_max is not None:
            kept = await session.value("bytes_of_files", *key)
            if kept + part.size > bytes_max:
                raise TooLarge(
                    f"{kept >> 20} MB of what its attempt has made are kept already, of at most "
                    f"{bytes_max >> 20}; this was not",
                    "name what matters, or put many files into one that is smaller",
                )
        if found is None:
            found = await session.first("add_file", *key, part.sha256, part.size, wall_ms)
        if found is None:
            raise NotFound(f"there is no task {key.task_id}; nothing was kept")
        number, received, whole = found
        return number, received, whole

    async def _settled(
        self, session: Session, number: int, part: Part, keep: Callable[[bytes], bytes]
    ) -> bool:
        """False where it is not what was announced."""
        rows = await session.all("file_parts", number, 0, part.size + 1)
        data = b"".join(row[1] for row in rows)
        if hashlib.sha256(data).hexdigest() != part.sha256:
            return False
        clean = await asyncio.to_thread(keep, data)
        if clean != data:
            await session.all("drop_file_parts", number)
            for at in range(0, len(clean), ARTIFACT_PART_BYTES):
                await session.all("add_file_part", number, at, clean[at : at + ARTIFACT_PART_BYTES])
        return True

    async def put(self, key: FileKey, sha256: str, size: int, read: Callable[[int], bytes]) -> None:
        """One that is whole here, where none is; `read` gives what is at an offset."""
        offset = 0
        while True:
            data = await asyncio.to_thread(read, offset)
            offset, whole = await self.take(key, Part(sha256, size, offset, data), first=True)
            if whole:
                return

    async def size(self, key: FileKey) -> int | None:
        found = await self._store.reads.whole_file(*key)
        return found and found[1]

    async def read(self, key: FileKey) -> bytes | None:
        """All of it at once; None where there is none."""
        found = await self._store.reads.whole_file(*key)
        if found is None:
            return None
        number, size, _ = found
        data = b"".join(data for _, data in await self._store.reads.file_parts(number, 0, size + 1))
        return data if len(data) == size else await self.read(key)

    async def pages(self, key: FileKey) -> AsyncIterator[bytes]:
        """All of it, in order; nothing where there is none."""
        found = await self._store.reads.whole_file(*key)
        number, at = found[0] if found else _NO_FILE, 0
        while rows := await self._store.reads.file_parts(number, at, PAGE_PARTS):
            for offset, data in rows:
                at = offset + len(data)
                yield data

    async def found(self, key: FileKey) -> tuple[int, str] | None:
        """The length and the sum of the one that is whole."""
        found = await self._store.reads.whole_file(*key)
        return found and (found[1], found[2])

    async def read_at(self, key: FileKey, sha256: str, offset: int) -> bytes | None:
        """What follows there of the one with this sum: some of it; None where there is none."""
        found = await self._store.reads.file_part_at(key, sha256, offset)
        return found and found[1][offset - found[0] :]

    async def drop(self, key: FileKey) -> None:
        async def work(transaction: PostgresTransaction) -> None:
            await transaction.session.all("drop_files", *key, _NO_FILE)

        await self._store.transact(work)
