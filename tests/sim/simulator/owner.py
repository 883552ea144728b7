"""The owner: engine, batcher and coordinator loops as they are, in a process that can be struck anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from muster.engine.batch import Batcher, Reply
from muster.engine.commands import Applied, Engine
from muster.engine.service import Service
from muster.engine.services.coordinator import coordinator
from muster.engine.services.reaper import Reaper, own_stall_ms
from muster.engine.services.ticker import Ticker
from muster.model.answers import Answer, TookOver
from muster.model.commands import Command, NewBoot
from muster.model.errors import MusterError, StoreFull, TermOver
from muster.model.retention import Retention
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.seals import Grants, Signer
from muster.model.task import Now
from muster.ports.engine import Asked
from muster.ports.locks import Ahead
from muster.ports.store import Reads, Store, Transaction
from muster.runtimes.local import LocalWakeups
from muster.stores.sqlite.store import SqliteStore
from simulator.hosts import Process, SimHost
from simulator.world import Broken, SeededChance, World

if TYPE_CHECKING:
    from simulator.oracle import Oracle

T = TypeVar("T")

SWEEP_S = 0.5
_SIGNER = Signer(b"0" * 32)
_GRANTS = Grants(b"0" * 32)


class OwnerCrash(BaseException):
    """The process ends here: no handler of the product may go on after it."""


class HostClock:
    """`ports.clock.Clock` as one process on a machine sees it."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now(self) -> Now:
        return self._process.host.now()

    def utc_offset_s(self, at_ms: int) -> int:
        return 0

    async def sleep(self, seconds: float) -> None:
        await self._process.sleep(seconds)


class StruckStore:
    """A store that is full for a while, or whose process dies with a transaction open."""

    def __init__(self, store: SqliteStore, refused: Callable[[], None]) -> None:
        self.store = store
        self._refused = refused
        self.full = False
        self.undecided: Any = None
        """What the transaction that was struck would have answered."""
        self.dies_before_commit = False

    @property
    def reads(self) -> Reads:
        return self.store.reads

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], ahead: Ahead | None = None) -> T:
        async def struck(tx: Transaction) -> T:
            done = await work(tx)
            if self.full:
                self._refused()
                raise StoreFull("the disk is full; the write was refused and nothing was changed")
            if self.dies_before_commit:
                self.undecided = done
                raise OwnerCrash
            return done

        return await self.store.transact(struck, ahead)

    async def halt(self, reason: str) -> NoReturn:
        """No store was put back in here, so nobody can prove an epoch that this one does not know."""
        raise Broken("S2", f"the store halts: {reason}")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class WatchedEngine(Engine):
    """The oracle looks after each commit, before anybody is answered."""

    def __init__(self, store: Store, world: World, oracle: Oracle, number: int) -> None:
        chance = SeededChance(world.scenario.seed, f"engine-{number}")
        super().__init__(store, chance, world.scenario.policy, _GRANTS)
        self._world = world
        self._oracle = oracle
        self.dies_after_commit = False

    async def apply(self, asked: Sequence[Asked], now: Now) -> Applied:
        applied = await super().apply(asked, now)
        self._oracle.committed([one.command for one in asked], applied, now)
        if self.dies_after_commit:
            raise OwnerCrash
        return applied


class PumpedBatcher(Batcher):
    """The batcher without its thread: whatever came in while the disk was busy is the next transaction."""

    def __init__(self, owner: Owner, engine: Engine, publish: Callable[[frozenset[str]], None]) -> None:
        slow_ms = own_stall_ms(owner.world.scenario.policy.lease_s)
        super().__init__(engine, owner.clock.now, publish, slow_ms=slow_ms, threaded=False)
        self.owner = owner
        self._pumping = False

    def _put(self, asked: Asked, reply: Reply) -> bool:
        taken = super()._put(asked, reply)
        if not self._pumping:
            self._pumping = True
            self.owner.process.spawn(self._pump())
        return taken

    async def _pump(self) -> None:
        await self.owner.process.sleep(self.owner.sync_s())
        self._pumping = False
        try:
            self.commit_waiting()
        except OwnerCrash:
            self.owner.die()


class NoFolders:
    """`ports.folders.Folders`: simulated agents print nothing."""

    def older_than(self, wall_ms: int, limit: int) -> list[tuple[int, int]]:
        return []

    def remove(self, task_id: int, epoch: int) -> None:
        """There is nothing to remove."""

    def unfinished(self, limit: int) -> list[tuple[int, int]]:
        return []

    def drop_unfinished(self, task_id: int, epoch: int) -> None:
        """There is nothing to drop."""

    def turn_log(self) -> None:
        """There is no log."""


class TickedFile:
    """`ports.files.PlanBoxes`: a plan file in memory."""

    def __init__(self) -> None:
        self.ticked: set[str] = set()

    def tick(self, path: str, keys: Collection[str], clear: Collection[str] = ()) -> frozenset[str]:
        self.ticked.update(keys)
        self.ticked.difference_update(clear)
        return frozenset({*keys, *clear})


class Owner:
    """One process of it; a dead one is replaced by a new object over the same store."""

    def __init__(self, world: World, store: SqliteStore, oracle: Oracle, number: int) -> None:
        self.world = world
        self.host: SimHost = world.hosts[0]
        self.process = Process(self.host, f"owner-{number}")
        self.clock = HostClock(self.process)
        self.struck = StruckStore(store, lambda: oracle.leases.store_refused(self.clock.now()))
        self.engine = WatchedEngine(self.struck, world, oracle, number)
        self.wakeups = LocalWakeups()
        self.batcher = PumpedBatcher(self, self.engine, self.wakeups.publish)
        self.waiting: dict[asyncio.Future[Answer], None] = {}
        """Requests that are not answered yet; they break with the process."""
        self.leads = False
        self._dice = SeededChance(world.scenario.seed, f"owner-{number}")
        self._oracle = oracle
        self._files = TickedFile()
        self.process.spawn(self.lead())

    def sync_s(self) -> float:
        return 0.0002 + self.world.scenario.disk_s * self._dice.fraction()

    async def lead(self) -> None:
        """Takes a term and starts the loops of it.  Those of an earlier term notice by themselves."""
        since_ms = self.clock.now().mono_ms
        try:
            took = await self.batcher.execute(NewBoot())
        except MusterError:
            await self.process.sleep(1.0)
            self.process.spawn(self.lead())
            return
        assert isinstance(took, TookOver)
        self.leads = True
        self._oracle.leases.owner_leads(self.process, self.clock.now())
        for service in self._services(took.term, since_ms):
            self.process.spawn(self._serve(service))

    async def _serve(self, service: Service) -> None:
        try:
            await service.run()
        except TermOver:
            self.world.seen["a deposed coordinator was refused"] += 1

    def _services(self, term: int, since_ms: int) -> list[Service]:
        reads, clock, batcher = self.struck.store.reads, self.clock, self.batcher
        led = coordinator(
            clock,
            reads,
            batcher,
            term=term,
            reaper=Reaper(
                clock,
                reads,
                batcher,
                self.host,
                sweep=lambda: 0,
                term=term,
                lease_s=self.world.scenario.policy.lease_s,
                interval_s=SWEEP_S,
                led_since_ms=since_ms,
                absences=batcher.absences,
            ),
            signer=_SIGNER,
            elapsed_ms=self.host.elapsed_ms,
            folders=NoFolders(),
            retention=Retention(),
        )
        own = reads.of(DEFAULT_WORKSPACE), batcher.of(DEFAULT_WORKSPACE)
        return [*led, Ticker(clock, *own, self._files)]

    def ask(self, command: Command) -> asyncio.Future[Answer]:
        """What a request that has arrived is answered; MusterError or ConnectionError are raised from it."""
        reply: asyncio.Future[Answer] = self.world.loop.create_future()
        if not self.process.alive:
            reply.set_exception(ConnectionResetError())
            return reply
        self.waiting[reply] = None
        self.batcher.of(DEFAULT_WORKSPACE).submit(command).add_done_callback(
            lambda done: self._answer(reply, done)
        )
        return reply

    def _answer(self, reply: asyncio.Future[Answer], done: Future[Answer]) -> None:
        self.waiting.pop(reply, None)
        if reply.done():
            return
        error = done.exception()
        if error is not None:
            reply.set_exception(error)
        else:
            reply.set_result(done.result())

    def die(self) -> None:
        self.process.kill()
        for reply in self.waiting:
            if not reply.done():
                reply.set_exception(ConnectionResetError())
        self.waiting.clear()
