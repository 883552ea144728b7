"""The owner: engine, store, coordinator and API.  `python -m muster.app.owner ROOT`"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, Self

from muster.agents.folders import LocalFolders
from muster.agents.host import LocalHost
from muster.agents.tree import kill_recorded
from muster.app.failpoint import CrashingEngine, Failpoint
from muster.app.key import logged_head, open_store, signer_of
from muster.app.parts import log_to_stderr, make_state_dir, repository_of
from muster.client.http import address
from muster.config.load import load_config
from muster.config.project import Project
from muster.config.settings import Config
from muster.engine.audit import Auditor
from muster.engine.batch import Batcher
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.engine.queries import Queries
from muster.engine.service import Service
from muster.engine.services.pruner import Pruner
from muster.engine.services.reaper import Reaper, own_stall_ms
from muster.engine.services.reconciler import Reconciler
from muster.engine.services.scheduler import Scheduler
from muster.engine.services.sealer import Sealer
from muster.engine.services.ticker import Ticker
from muster.model.answers import BackedUp, Reconciled, TookOver
from muster.model.commands import NewBoot, SetCrew
from muster.model.errors import MusterError, StoreFault
from muster.model.retention import Retention
from muster.model.retry import RetryPolicy
from muster.model.states import CrewStatus
from muster.plans.files import LocalPlanFiles
from muster.runtimes.chance import SystemChance
from muster.runtimes.clock import SystemClock
from muster.runtimes.local import LocalWakeups
from muster.stores.sqlite.copies import back_up
from muster.stores.sqlite.lock import Lock, holder
from muster.web.backend import Backend
from muster.web.server import Server, serve, server

log = logging.getLogger(__name__)

ORPHAN_LOOK_S = 2.0
ORPHAN_IDLE_S = 60.0
"""An owner that nobody supervises ends once it has had nothing to do for this long."""


def policy_of(config: Config, hostname: str = "", *, writers: frozenset[str] = frozenset()) -> Policy:
    """`writers` are the agents that share one folder for what they write."""
    task = config.task
    return Policy(
        retry=RetryPolicy(first_s=task.backoff_first_s, cap_s=task.backoff_cap_s, losses_max=task.losses_max),
        lease_s=config.health.lease_s,
        heartbeat_s=config.health.heartbeat_s,
        claim_lease_s=config.health.claim_lease_s,
        agent_slots={agent.name: agent.slots for agent in config.agents.values() if agent.slots is not None},
        writers=writers,
        limits=config.limits,
        pools={agent.name: agent.pool for agent in config.agents.values()},
        failures_max=task.failures_max,
        waiting_max=task.waiting_max,
        profiles=config.profiles,
        usual_agent=config.default_agent,
        hostname=hostname,
    )


class Owner:
    """Everything that stands around one open store; use `async with`."""

    def __init__(self, project: Project, config: Config) -> None:
        self._project = project
        self._config = config
        self._host = LocalHost()
        apart = repository_of(config, project) is not None
        writers = frozenset() if apart else config.writers
        self._policy = policy_of(config, self._host.hostname, writers=writers)
        self.clock = SystemClock(self._host.boot_id)
        self.failpoint = Failpoint.of(os.environ)
        self._stack = contextlib.ExitStack()
        self._reaper: Reaper | None = None
        self._reconciler: Reconciler | None = None
        self._led_since_ms: int | None = None

    async def __aenter__(self) -> Self:
        """Raises OwnerUnavailable where another owner holds the store, StoreFault where it cannot be used."""
        make_state_dir(self._project)
        with contextlib.ExitStack() as stack:
            stack.callback(Lock.take(self._project.owner_lock).release)
            self.store = open_store(self._project)
            stack.callback(self.store.close)
            self.signer = signer_of(self._project)
            self.wakeups = LocalWakeups()
            self.batcher = Batcher(
                self._engine(),
                self.clock.now,
                self.wakeups.publish,
                slow_ms=own_stall_ms(self._config.health.lease_s),
            )
            stack.callback(self.batcher.close)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._stack.close)

    def _engine(self) -> Engine:
        policy, grants = self._policy, self.signer.grants()
        if self.failpoint is not None:
            return CrashingEngine(self.store, SystemChance(), policy, self.failpoint, grants)
        return Engine(self.store, SystemChance(), policy, grants)

    def backend(self, term: int, *, stays: bool = True) -> Backend:
        """`stays`: this is no owner of one command only."""
        return Backend(
            engine=self.batcher,
            reads=self.store.reads,
            queries=Queries(self.store.reads, self.clock, self._policy),
            wakeups=self.wakeups,
            shut_down=lambda: None,
            started_at_ms=self.clock.now().wall_ms,
            term=term,
            reconcile=self.reconcile,
            back_up=self.back_up,
            halted=self.halted,
            looked_at_ms=lambda: self._reaper.looked_at_ms if self._reaper else None,
            stays=stays,
            auditor=Auditor(self.store.reads, self.signer, lambda: logged_head(self._project)),
        )

    def halted(self) -> StoreFault | None:
        """Why nothing is written any more."""
        halt = self.store.halted
        return halt.error(self._project.store) if halt is not None else None

    async def back_up(self, target: Path, force: bool) -> BackedUp:
        """In a thread: everybody else is answered meanwhile."""
        report = await asyncio.to_thread(back_up, self._project.store, target, force=force)
        return BackedUp(path=str(report.path), bytes=report.bytes, tasks=report.tasks, schema=report.schema)

    async def take_over(self) -> int:
        """Adopts the running workers and returns the new term."""
        self._led_since_ms = self.clock.now().mono_ms
        took = await self.batcher.execute(NewBoot())
        assert isinstance(took, TookOver)
        await self.batcher.execute(SetCrew(status=CrewStatus.RUNNING))
        killed = kill_recorded(self._project.attempts_dir, self._host)
        log.info("term %d: adopted %d attempts, killed %d leftovers", took.term, took.adopted, killed)
        return took.term

    def _make_reaper(self, term: int) -> Reaper:
        health = self._config.health
        reaper = Reaper(
            self.clock,
            self.store.reads,
            self.batcher,
            self._host,
            sweep=lambda: kill_recorded(self._project.attempts_dir, self._host),
            term=term,
            lease_s=health.lease_s,
            interval_s=health.sweep_s,
            led_since_ms=self._led_since_ms,
            aside=asyncio.to_thread,
            absences=self.batcher.absences,
        )
        self._reaper = reaper
        self._reconciler = Reconciler(reaper, self.store.reads, self.batcher, term=term)
        return reaper

    async def reconcile(self) -> Reconciled:
        """Also for an owner of one command: it leads then, so it takes a term for that."""
        if self._reconciler is None:
            took = await self.batcher.execute(NewBoot(stays=False))
            assert isinstance(took, TookOver)
            self._make_reaper(took.term)
        assert self._reconciler is not None
        return await self._reconciler.reconcile()

    def _retention(self) -> Retention:
        kept = self._config.retention
        return Retention(events_s=kept.events_s, logs_s=kept.logs_s, idempotency_s=kept.idempotency_s)

    def services(self, term: int) -> list[Service]:
        reads, health = self.store.reads, self._config.health
        return [
            self._make_reaper(term),
            Scheduler(
                self.clock,
                reads,
                self.batcher,
                term=term,
                interval_s=health.sweep_s,
                elapsed_ms=self.clock.elapsed_ms,
            ),
            Sealer(self.clock, reads, self.batcher, self.signer, term=term),
            Pruner(
                self.clock,
                reads,
                self.batcher,
                self.signer,
                folders=LocalFolders(self._project.attempts_dir, self._project.log_file),
                retention=self._retention(),
                term=term,
            ),
            Ticker(self.clock, reads, self.batcher, LocalPlanFiles()),
        ]


async def _own(project: Project, config: Config) -> None:
    async with Owner(project, config) as owner:
        halted = owner.halted()
        if halted is not None:
            log.critical("%s; reads go on", halted.message)
        term = 0 if halted is not None else await owner.take_over()
        backend = owner.backend(term)
        made = server(backend)
        if owner.failpoint is not None:
            made.config.app = owner.failpoint.after_answers(made.config.app)

        def shut_down() -> None:
            backend.closing.set()
            made.should_exit = True
            owner.wakeups.wake_all()

        object.__setattr__(backend, "shut_down", shut_down)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, shut_down)
        with _listening(project.socket) as listening:
            await _until_closed(
                backend,
                made,
                serve(made, listening),
                *(service.run() for service in (owner.services(term) if halted is None else ())),
                _mind_supervisor(project, owner, backend),
            )


async def _until_closed(
    backend: Backend, made: Server, serving: Coroutine[Any, Any, None], *loops: Coroutine[Any, Any, None]
) -> None:
    """Runs the server and the loops; a loop that fails ends the owner, and its supervisor starts another."""
    main = asyncio.create_task(serving)
    tasks = [asyncio.create_task(loop) for loop in loops]
    done, _ = await asyncio.wait([main, *tasks], return_when=asyncio.FIRST_COMPLETED)
    backend.closing.set()
    made.should_exit = True
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await main
    for task in done - {main}:
        task.result()


async def _mind_supervisor(project: Project, owner: Owner, backend: Backend) -> None:
    """An owner that was left alone finishes what there is to do, then tells the workers to end and ends."""
    idle_since_s = asyncio.get_running_loop().time()
    while True:
        await asyncio.sleep(ORPHAN_LOOK_S)
        now_s = asyncio.get_running_loop().time()
        reads = owner.store.reads
        at_work = owner.halted() is None
        busy = at_work and (await reads.any_ready() or await reads.open_attempts((0, 0), 1))
        if busy or holder(project.supervisor_lock) is not None:
            idle_since_s = now_s
        elif now_s - idle_since_s > ORPHAN_IDLE_S:
            log.info("nobody supervises this owner and there is nothing to do: ending")
            if owner.halted() is None:
                await owner.batcher.execute(SetCrew(status=CrewStatus.STOPPED))
            await asyncio.sleep(ORPHAN_LOOK_S)
            backend.shut_down()
            return


@contextlib.contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    # We hold the owner's lock, so a socket that is there is a dead owner's.
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address(path) as reachable:
            listening.bind(reachable)
        path.chmod(0o600)
        listening.listen(128)
        yield listening
    finally:
        listening.close()
        path.unlink(missing_ok=True)


SWITCH_S = 0.0005
"""The committing thread and the loop take turns this often: with 8 callers a fifth more commands a second than
with Python's 5 ms (measured with `./run bench --only drain`)."""


def run_owner(root: Path) -> int:
    sys.setswitchinterval(SWITCH_S)
    project = Project(root)
    try:
        asyncio.run(_own(project, load_config(root)))
    except MusterError as error:
        print(f"error: {error.message}\n  hint  {error.hint}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    log_to_stderr("owner")
    sys.exit(run_owner(Path(sys.argv[1])))
