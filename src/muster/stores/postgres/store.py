"""The PostgreSQL store: any number of equal servers, which the database alone coordinates."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeVar

import asyncpg

from muster.model.answers import BackedUp
from muster.model.errors import (
    CommitUnknown,
    Contended,
    MusterError,
    StoreAway,
    StoreFault,
    StoreFull,
    StoreRewound,
)
from muster.ports.locks import Ahead
from muster.stores.postgres.backup import dump
from muster.stores.postgres.copy_mark import copy_mark
from muster.stores.postgres.database_clock import DatabaseClock, HostTime
from muster.stores.postgres.faults import classify, given_up
from muster.stores.postgres.flow import Flow
from muster.stores.postgres.known import StoreKnown
from muster.stores.postgres.marks import LIFE_MISSING, SLOTS, DatabaseState, Marks, missing_commits
from muster.stores.postgres.pooling import CLOSING_S, Addresses, Connections, TryLater, undone
from muster.stores.postgres.reads import PostgresReads
from muster.stores.postgres.schema import ENGINE, QUERY, SCHEMA, migrate, newest_schema
from muster.stores.postgres.session import Session
from muster.stores.postgres.statements import for_all, load
from muster.stores.postgres.transaction import PostgresTransaction
from muster.stores.postgres.upkeep import keep_up, who_holds_up

T = TypeVar("T")

log = logging.getLogger(__name__)

WRITERS, READERS = SLOTS - 1, 4
"""Connections of each server: its batches are few, and large."""
STILL_S = 15
"""A server that says nothing for so long in the middle of a transaction is frozen: what it holds is freed."""
LOCKED_S = 10
"""Whoever waits longer for what another transaction holds begins anew."""
STATEMENTS_MAX = 1000
RESTORING = "muster db restored was begun"
"""So the reason begins for which nobody writes until that has ended."""
BY_KEYS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "enable_sort": "off",
}
"""For transactions that write: each statement seeks what it is about by a key, and is planned once.  Otherwise it
is planned anew for each call, as a plan that knows its month's partition looks cheaper, which takes longer than
to run it; and a partition that is too young to have statistics is read as a whole."""
FULL_S = 10.0
"""So long after its last refusal a disk counts as full: somebody asks again by then."""
UPKEEP_S, UPKEEP_AGAIN_S = 3600.0, 60.0


class PostgresStore:
    """Open with `await PostgresStore.open(url)`."""

    shared = True

    def __init__(self, url: str, marks: Marks, *, restoring: bool) -> None:
        self._url, self._marks, self._restoring = url, marks, restoring
        self.clock = DatabaseClock()
        self._known = StoreKnown()
        self._addresses = Addresses(url)
        self._flow = Flow()
        self._full: StoreFull | None = None
        self._full_s = 0.0
        self._fault: StoreFault | None = None
        self._upkeep_due_s = 0.0
        self.lost = ""
        """What was committed once and is not in the database, in words."""
        self._writers: Connections
        self._seers: Connections
        self.reads: PostgresReads

    @classmethod
    async def open(cls, url: str, witness: Path | None = None, *, restoring: bool = False) -> Self:
        """Brings the schema up to date, as `migrate`.  Raises StoreAway where there is no server.

        `witness`: where this server notes what it has committed; behind that, a database opens for reading.
        `restoring`: a person takes what is there for the present, and `resume` begins another life with it.
        """
        marks = Marks(witness, notes=not restoring)
        try:
            await _migrated(url, known=marks.known)
            store = cls(url, marks, restoring=restoring)
            try:
                await store._connect()
                await store.look()  # it may have been closed for longer than partitions were made ahead
            except BaseException:
                await store.aclose()
                raise
        except StoreAway as away:
            raise given_up(away, away.__cause__) from away
        return store

    async def _connect(self) -> None:
        addresses, retry = self._addresses, TryLater()
        own = TryLater()  # a database that takes no writes may be read all the same
        self._seers = await _pool(addresses, retry, ENGINE, READERS)
        self._writers = await _pool(addresses, own, ENGINE, WRITERS, greet=self._greet, plans=BY_KEYS)
        self._readers = await _pool(addresses, retry, QUERY, READERS)
        self.reads = PostgresReads(self._seers, self._readers)

    async def aclose(self) -> None:
        for pool in (self._writers, self._seers, self._readers):
            try:
                await asyncio.wait_for(pool.close(), CLOSING_S)
            except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
                pool.terminate()
        self._marks.close()

    @property
    def fault(self) -> StoreFault | None:
        return self._fault

    @property
    def full(self) -> StoreFull | None:
        """Why something was refused lately for want of room.  What is small may be written all the same."""
        if self._full is not None and asyncio.get_running_loop().time() - self._full_s > FULL_S:
            self._full = None
        return self._full

    @property
    def unwritable(self) -> MusterError | None:
        """Why nothing can be written now, as far as that was seen."""
        return self._fault or self.full or self._flow.held_up

    @property
    def granted(self) -> int:
        """The highest epoch that the database, or this folder's server, knows to have been granted."""
        return self._marks.epoch

    @property
    def last_commit(self) -> str:
        """As `Marks.last`."""
        return self._marks.last

    async def compare(self, commit: str) -> None:
        """Halts where the database lacks a commit that some server has acknowledged."""
        if self._fault is None and not self._restoring and self._marks.recall(commit):
            await self.look()
            if self._fault is None and self._marks.later_life(commit):
                await self.halt(LIFE_MISSING)

    async def migrate(self) -> None:
        await _migrated(self._url, known=self._marks.known)

    async def transact(
        self, work: Callable[[PostgresTransaction], Awaitable[T]], ahead: Ahead | None = None
    ) -> T:
        """As in ports.store; at most WRITERS of one server at a time."""
        if self._fault is not None and not self._restoring:
            raise self._fault
        with self._flow.one():
            return await self._transact_on_one(work, ahead)

    async def _transact_on_one(
        self, work: Callable[[PostgresTransaction], Awaitable[T]], ahead: Ahead | None
    ) -> T:
        """Of the connections."""
        ending = Ending()
        try:
            async with self._writers.acquire() as connection, undone(connection):
                slot = self._marks.take_slot()
                try:
                    return await self._transact(connection, slot, ending, work, ahead)
                finally:
                    self._marks.give_back(slot)
        except _Behind as behind:
            self._known = StoreKnown()
            await self.look()
            raise self._fault or Contended(str(behind), "try again") from None
        except Exception as error:
            fault = classify(error, committing=ending.begun, host=self._addresses.host)
            if fault is not None:
                if isinstance(fault, StoreFull):
                    self._full, self._full_s = fault, asyncio.get_running_loop().time()
                raise fault from error
            raise

    async def _transact(
        self,
        connection: asyncpg.Connection,
        slot: int,
        ending: Ending,
        work: Callable[[PostgresTransaction], Awaitable[T]],
        ahead: Ahead | None,
    ) -> T:
        marks = self._marks
        known = self._known
        session = Session(connection, known)
        begun = await session.begin(marks.server, slot, None if self._restoring else ahead)
        if not self._restoring:
            if begun.halted is not None:
                raise self._halted(begun.halted)
            if not marks.fits(slot, begun.life, begun.commits):
                raise _Behind("the database is not the one that it was; nothing was written")
        try:
            result = await work(PostgresTransaction(session, known))
            await session.finish()
        except BaseException:
            await session.give_up()
            raise
        if session.wrote and not self._restoring:
            number = marks.next_number(slot, begun.commits)
            try:
                await _commit(ending, session, marks, CommitPlace(slot, number, begun.life))
            except BaseException:
                known.forget_ids()  # whoever tries again asks for all of it
                raise
            marks.noted(slot, number, session.granted, session.at_ms)
        elif not session.alone:
            await ending.commit(connection, "COMMIT")
        known.remember(session.tasks, session.attempts, session.added)
        return result

    async def _greet(self, connection: asyncpg.Connection) -> None:
        """A connection may lead to another server than the one before: nothing is asked of it until that has come
        as far."""
        self._known = StoreKnown()
        standing = await self._compare(connection)
        if standing.halted is None and self._fault is None and not self._restoring:
            await self._marks.mark(connection, standing)

    async def _compare(self, connection: asyncpg.Connection) -> DatabaseState:
        """Halts where the database is behind, and goes on where it no longer is: it may be another server's."""
        asked = HostTime.now()
        standing, missing = await self._marks.look(connection)
        self.clock.heard(standing.wall_ms, asked)
        told = _told(standing.halted)
        more = missing_commits(missing) > missing_commits(told)
        reason = missing if more else told or missing
        self.lost = _with_own(told, missing) if more else reason
        if missing and not self._restoring:
            await connection.execute(_STORE.by_name["halt"], missing, standing.life)
            if more and told:
                await connection.execute(_STORE.by_name["halt_for_more"], missing, told, standing.life)
        if halted := reason or standing.halted:
            self._halted(halted)
        elif self._fault is not None:
            self._fault = None
            log.warning("the store is not halted any more: work goes on")
        return standing

    async def _compare_unless_filled(self, connection: asyncpg.Connection) -> DatabaseState:
        """Raises StoreRefused where a copy that is under way holds the tables."""
        try:
            return await self._compare(connection)
        except asyncpg.LockNotAvailableError:
            mark = copy_mark(await connection.fetchval(_STORE.by_name["halted"]))
            if mark is None:
                raise
            raise mark.error() from None

    async def halt(self, reason: str) -> StoreFault:
        """For every server: each transaction looks first whether it was halted."""
        if self._fault is not None:
            return self._fault
        fault, life = self._halted(reason), self._marks.life
        try:
            async with self._seers.acquire() as connection:
                await connection.execute(_STORE.by_name["halt"], reason, life)
        except Exception as error:
            log.critical("other servers could not be told that the store is halted: %s", error)
        return fault

    def _halted(self, reason: str) -> StoreFault:
        if (mark := copy_mark(reason)) is not None:
            return mark.error()
        if self._fault is None:
            self._known = StoreKnown()
            self._fault = StoreRewound(
                f"the database is older than the work it is about: {reason}; nothing more is written",
                "put back what is missing; if that is lost, muster db restored goes on with what is there",
            )
            log.critical("%s", self._fault)
        return self._fault

    async def look(self) -> None:
        """Sees whether the database is halted, behind or held up, and keeps its tables up."""
        try:
            async with self._seers.acquire() as connection:
                standing = await self._compare_unless_filled(connection)
                self._flow.see(await who_holds_up(connection, STILL_S))
                now_s = asyncio.get_running_loop().time()
                if now_s >= self._upkeep_due_s and standing.halted is None and self._fault is None:
                    self._upkeep_due_s = now_s + (UPKEEP_S if await keep_up(connection) else UPKEEP_AGAIN_S)
        except Exception as error:
            raise _meant(error) from error

    async def hold(self, reason: str) -> None:
        """Nobody writes any more until `resume`: whoever takes an older state for the present begins with it.

        Raises StoreRefused where a copy was begun and is not whole: half a store is no state to go on from.
        """
        try:
            async with self._seers.acquire() as connection:
                mark = copy_mark((await self._compare(connection)).halted)
                if mark is None:
                    await connection.execute(_STORE.by_name["halt"], reason, self._marks.life)
        except Exception as error:
            raise _meant(error) from error
        if mark is not None:
            raise mark.error()

    async def resume(self) -> None:
        """Another life of the store begins: every server goes on with what is there."""
        try:
            async with self._seers.acquire() as connection, connection.transaction():
                await connection.execute(_STORE.by_name["begin_life"])
                await connection.execute(_STORE.by_name["lift_halt"])
        except Exception as error:
            raise _meant(error) from error

    async def check(self) -> list[str]:
        try:
            async with self._seers.acquire() as connection, connection.transaction(readonly=True):
                pruned = await connection.fetchval(
                    "SELECT EXISTS (SELECT 1 FROM seals WHERE pruned_at_ms IS NOT NULL)"
                )
                found: list[str] = []
                for name, sql in CHECKS.items():
                    rows = await connection.fetch(sql, *([pruned] if name == "hole" else []))
                    found += [row[0] for row in rows]
                return found
        except Exception as error:
            raise _meant(error) from error

    async def back_up(self, target: Path, *, force: bool) -> BackedUp:
        size = await dump(self._url, target, force=force)
        try:
            async with self._seers.acquire() as connection:
                tasks = await connection.fetchval(_STORE.by_name["count_tasks"])
        except Exception as error:
            raise _meant(error) from error
        return BackedUp(path=str(target), bytes=size, tasks=tasks, schema=newest_schema())


def _told(halted: str | None) -> str:
    """What somebody else has found to be missing, as a worker that has seen it."""
    if halted is None or halted.startswith(RESTORING) or copy_mark(halted) is not None:
        return ""
    return halted


def _with_own(told: str, missing: str) -> str:
    """Where this folder's server has lost more than others had seen of it: nobody has counted all."""
    of_one = "of the server of this folder alone, as it has noted"
    return f"{told} ({of_one}: {missing_commits(missing)})" if told else f"{missing} ({of_one})"


class CommitPlace(NamedTuple):
    """Of a commit, among those of its server."""

    slot: int
    number: int
    life: int


async def _commit(ending: Ending, session: Session, marks: Marks, at: CommitPlace) -> None:
    if session.alone:
        said = marks.said(at.slot, at.number, 0, at.life)
        await ending.commit_whole(session.connection, *session.whole(said))
    else:
        words = marks.last_words(at.slot, at.number, session.granted, at.life)
        await ending.commit(session.connection, words)


_STORE = for_all(load("engine.sql"))
CHECKS = for_all(load("check.sql")).by_name


class _Behind(Exception):
    """Within a transaction, which is rolled back before it is judged."""


class Ending:
    """The commit of one transaction."""

    def __init__(self) -> None:
        self.begun = False
        """From here on nobody can say whether it was written, unless the answer comes."""
        self._warned = ""

    async def commit(self, connection: asyncpg.Connection, words: str) -> None:
        """Raises CommitUnknown where a person has ended the wait for a synchronous standby: PostgreSQL says that
        only by a warning."""
        ended = await self._heard(connection, connection.execute(words))
        assert ended == "COMMIT", "a failed statement was passed over"

    async def commit_whole(self, connection: asyncpg.Connection, sql: str, bound: Sequence[Any]) -> None:
        """A statement that is a transaction by itself.  Raises as `commit`."""
        await self._heard(connection, connection.fetchrow(sql, *bound))

    async def _heard(self, connection: asyncpg.Connection, words: Awaitable[T]) -> T:
        self.begun = True
        connection.add_log_listener(self._hear)
        try:
            ended = await words
        finally:
            with contextlib.suppress(asyncpg.InterfaceError):  # it broke
                connection.remove_log_listener(self._hear)
        if self._warned:
            raise CommitUnknown(
                f"what was written may be on one server only ({self._warned})",
                "ask again: what was written is not written twice",
            )
        return ended

    def _hear(self, _: object, message: asyncpg.PostgresLogMessage) -> None:
        self._warned = str(message)


async def _migrated(url: str, *, known: bool) -> None:
    try:
        connection = await Addresses(url).connect()
        try:
            await migrate(connection, known=known)
        finally:
            await connection.close(timeout=CLOSING_S)
    except Exception as error:
        raise _meant(error) from error


async def _pool(
    addresses: Addresses,
    retry: TryLater,
    role: str,
    size: int,
    *,
    greet: Callable[[asyncpg.Connection], Awaitable[None]] | None = None,
    plans: Mapping[str, str] = MappingProxyType({}),
) -> Connections:
    async def connect(*_: object, **settings: Any) -> asyncpg.Connection:
        return await addresses.connect(**settings)

    pool = await asyncpg.create_pool(
        connect=connect,
        init=greet,
        min_size=0,
        max_size=size,
        statement_cache_size=STATEMENTS_MAX,
        reset=_nothing_to_reset,
        server_settings={"role": role, "search_path": SCHEMA, **session_settings(), **plans},
    )
    return Connections(pool, retry)


def session_settings() -> dict[str, str]:
    """What a server's connections ask for, whatever is usual in the database."""
    return {
        "application_name": "muster",
        "synchronous_commit": "on",
        "jit": "off",
        "idle_in_transaction_session_timeout": f"{STILL_S}s",
        "lock_timeout": f"{LOCKED_S}s",
    }


async def _nothing_to_reset(connection: Any) -> None:
    """Whatever is set here is set for one transaction."""


def _meant(error: BaseException) -> BaseException:
    return error if isinstance(error, MusterError) else classify(error) or error
