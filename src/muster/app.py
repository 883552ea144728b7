"""The composition root: the only file that names both the engine and the drivers.

`python -m muster.app owner ROOT` and `... worker ROOT` are the processes that a supervisor starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from muster.agents.command import EXIT_CODES, CommandAgent, Prompt
from muster.agents.host import LocalHost, become_subreaper, oom_kills
from muster.agents.process import LocalLauncher
from muster.agents.tree import kill_recorded
from muster.client.crew import HttpCrew
from muster.client.http import address
from muster.config import Config, Project, load_config
from muster.engine.batch import Batcher
from muster.engine.commands import Engine, Policy
from muster.engine.queries import Queries
from muster.engine.service import Service
from muster.engine.services.reaper import Reaper
from muster.engine.services.scheduler import Scheduler
from muster.engine.services.ticker import Ticker
from muster.model.answers import TookOver
from muster.model.commands import NewBoot, SetCrew
from muster.model.errors import MusterError
from muster.model.retry import RetryPolicy
from muster.model.states import CrewStatus
from muster.plans.files import LocalPlanFiles
from muster.ports.agent import Agent
from muster.runtimes.clock import SystemChance, SystemClock
from muster.runtimes.local import LocalWakeups
from muster.stores.sqlite.lock import Lock, holder, refuse_shared
from muster.stores.sqlite.store import SqliteStore
from muster.web.backend import Backend
from muster.web.server import Server, serve, server
from muster.worker.pool import Worker
from muster.worker.runner import Surroundings
from muster.worker.supervisor import DECLARED_DEAD, DRAINED, Supervisor

log = logging.getLogger(__name__)

ORPHAN_LOOK_S = 2.0
ORPHAN_IDLE_S = 60.0
"""An owner that nobody supervises ends once it has had nothing to do for this long."""


def agents_of(config: Config) -> Mapping[str, Agent]:
    return {
        name: CommandAgent(
            name=name,
            command=agent.command,
            prompt=cast(Prompt, agent.prompt),
            env_names=agent.env_names,
            env=agent.env,
            exit_codes={**EXIT_CODES, **agent.exit_codes},
        )
        for name, agent in config.agents.items()
    }


def policy_of(config: Config) -> Policy:
    task = config.task
    return Policy(
        retry=RetryPolicy(first_s=task.backoff_first_s, cap_s=task.backoff_cap_s, losses_max=task.losses_max),
        lease_s=config.health.lease_s,
        heartbeat_s=config.health.heartbeat_s,
    )


def make_state_dir(project: Project) -> None:
    """`.muster/`, for its owner's eyes only, and ignored by git.  Raises StoreRefused on a shared disk."""
    refuse_shared(project.root)
    project.state_dir.mkdir(mode=0o700, exist_ok=True)
    project.attempts_dir.mkdir(mode=0o700, exist_ok=True)
    ignore = project.state_dir / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", "utf-8")


class Owner:
    """Everything that stands around one open store; use `async with`."""

    def __init__(self, project: Project, config: Config) -> None:
        self._project = project
        self._config = config
        self._host = LocalHost()
        self.clock = SystemClock(self._host.boot_id)
        self._stack = contextlib.ExitStack()

    async def __aenter__(self) -> Owner:
        """Raises OwnerUnavailable where another owner holds the store, StoreFault where it cannot be used."""
        make_state_dir(self._project)
        with contextlib.ExitStack() as stack:
            stack.callback(Lock.take(self._project.owner_lock).release)
            self.store = SqliteStore.open(self._project.store)
            stack.callback(self.store.close)
            self.wakeups = LocalWakeups()
            engine = Engine(self.store, SystemChance(), policy_of(self._config))
            self.batcher = Batcher(engine, self.clock.now, self.wakeups.publish)
            stack.callback(self.batcher.close)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._stack.close)

    def backend(self, term: int) -> Backend:
        made = Backend(
            engine=self.batcher,
            reads=self.store.reads,
            queries=Queries(self.store.reads, self.clock),
            wakeups=self.wakeups,
            shut_down=lambda: None,
            started_at_ms=self.clock.now().wall_ms,
            term=term,
        )
        return made

    async def take_over(self) -> int:
        """Adopts the running workers and returns the new term."""
        took = await self.batcher.execute(NewBoot())
        assert isinstance(took, TookOver)
        await self.batcher.execute(SetCrew(status=CrewStatus.RUNNING))
        killed = kill_recorded(self._project.attempts_dir, self._host)
        log.info("term %d: adopted %d attempts, killed %d leftovers", took.term, took.adopted, killed)
        return took.term

    def services(self, term: int) -> list[Service]:
        reads, health = self.store.reads, self._config.health
        return [
            Reaper(
                self.clock,
                reads,
                self.batcher,
                self._host,
                sweep=lambda: kill_recorded(self._project.attempts_dir, self._host),
                term=term,
                lease_s=health.lease_s,
                interval_s=health.sweep_s,
            ),
            Scheduler(self.clock, reads, self.batcher, term=term, interval_s=health.sweep_s),
            Ticker(self.clock, reads, self.batcher, LocalPlanFiles()),
        ]


async def _own(project: Project, config: Config) -> None:
    async with Owner(project, config) as owner:
        term = await owner.take_over()
        backend = owner.backend(term)
        made = server(backend)

        def shut_down() -> None:
            backend.closing.set()
            made.should_exit = True

        object.__setattr__(backend, "shut_down", shut_down)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, shut_down)
        with _listening(project.socket) as listening:
            await _until_closed(
                backend,
                made,
                serve(made, listening),
                *(service.run() for service in owner.services(term)),
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
        busy = await reads.any_ready() or await reads.open_attempts((0, 0), 1)
        if busy or holder(project.supervisor_lock) is not None:
            idle_since_s = now_s
        elif now_s - idle_since_s > ORPHAN_IDLE_S:
            log.info("nobody supervises this owner and there is nothing to do: ending")
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


def run_owner(root: Path) -> int:
    project = Project(root)
    try:
        asyncio.run(_own(project, load_config(root)))
    except MusterError as error:
        print(f"error: {error.message}\n  hint  {error.hint}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


def run_worker(root: Path) -> int:
    project, config = Project(root), load_config(root)
    host, chance = LocalHost(), SystemChance()
    become_subreaper()
    kill_recorded(project.attempts_dir, host)
    process = host.identify(os.getpid())
    assert process is not None
    around = Surroundings(
        worker_id=f"worker-{chance.name(8)}",
        root=root,
        attempts_dir=project.attempts_dir,
        socket=project.socket,
        agents=agents_of(config),
        launcher=LocalLauncher(host),
        oom_kills=oom_kills,
    )
    worker = Worker(
        HttpCrew(project.socket),
        around,
        chance,
        hostname=host.hostname,
        boot_id=host.boot_id,
        process=process,
        slots=config.workers.slots,
        preferred_agent=config.default_agent,
        orphan_grace_s=config.health.orphan_grace_s,
    )
    signal.signal(signal.SIGTERM, lambda *_: worker.drain())
    return DRAINED if worker.run() else DECLARED_DEAD


def supervisor(project: Project, config: Config, workers: int, *, say: Any) -> Supervisor:
    """The caller becomes the parent of orphans, so that a dead worker's processes can be found here."""
    become_subreaper()
    start = [sys.executable, "-m", "muster.app"]
    return Supervisor(
        LocalHost(),
        project.log_file,
        [*start, "owner", str(project.root)],
        [*start, "worker", str(project.root)],
        workers,
        say=say,
    )


class DirectTransport:
    """An owner for the length of one command, in this process: no socket, no workers."""

    def __init__(self, project: Project, config: Config) -> None:
        self._loop = asyncio.new_event_loop()
        self._owner = Owner(project, config)
        self._loop.run_until_complete(self._owner.__aenter__())
        self._app = self._loop.run_until_complete(self._build())

    async def _build(self) -> Any:
        from muster.web.server import build

        return build(self._owner.backend(0))

    def request(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        reply_s: float = 0.0,  # noqa: ARG002 - nobody else can be slow here
    ) -> tuple[int, bytes]:
        return self._loop.run_until_complete(self._ask(method, target, body, headers or {}))

    async def _ask(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }
        status, parts = 500, list[bytes]()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return status, b"".join(parts)

    def close(self) -> None:
        self._loop.run_until_complete(self._owner.__aexit__())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


@contextlib.contextmanager
def direct(project: Project) -> Iterator[DirectTransport]:
    """For a command while no owner is up.  Raises OwnerUnavailable where one has come up meanwhile."""
    transport = DirectTransport(project, load_config(project.root))
    try:
        yield transport
    finally:
        transport.close()


def main(argv: list[str]) -> int:
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s {argv[0]}[{os.getpid()}] %(levelname)s %(name)s: %(message)s",
    )
    threading.current_thread().name = argv[0]
    run = {"owner": run_owner, "worker": run_worker}[argv[0]]
    return run(Path(argv[1]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
