"""A real owner on a unix socket, and for others over TCP, in a thread of this process."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from muster.client.http import address
from muster.config.identity import settle
from muster.config.project import Project
from muster.engine.batch import Batcher, drive
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.states import ErrorKind
from muster.model.views import TaskFilter
from muster.runtimes.chance import SystemChance
from muster.runtimes.local import LocalWakeups, SystemClock
from muster.stores.sqlite.store import SqliteStore
from muster.web.app import build
from muster.web.backend import Backend
from muster.web.gate import Exposure, NetworkGate
from muster.web.network import NetworkListener
from muster.web.routes import Application
from muster.web.server import serve
from patience import PATIENCE_S
from serving import SIGNER, ServedOwner, backend

WORKER = "worker-abcdefgh"
TOKEN = "token-of-api"


class Owner:
    """Starts and stops the server; the store stays open in between."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.signer = SIGNER
        self.socket = root / ".muster" / "muster.sock"
        self.socket.parent.mkdir(mode=0o700, exist_ok=True)
        settle(Project(root))
        self.clock = SystemClock("boot")
        self.store = SqliteStore.open(root / ".muster" / "state.db")
        self.served = ServedOwner(self.store, root / ".muster" / "state.db")
        self._batcher: Batcher | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._backend: Backend | None = None
        self._thread: threading.Thread | None = None
        self.network: socket.socket | None = None
        """Where it listens for others, from the next start on."""
        self.tls: ssl.SSLContext | None = None

    def start(self) -> None:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True)
        self._thread.start()
        assert ready.wait(PATIENCE_S)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        wakeups = LocalWakeups()
        engine = Engine(self.store, SystemChance(), Policy(), vault=self.served.vault)
        self._batcher = Batcher(engine, self.clock.now, wakeups.publish)
        self._backend = backend(self.served, self.store, self._batcher, self.clock, wakeups)
        self.socket.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            with address(self.socket) as reachable:
                listening.bind(reachable)
            listening.listen(64)
            ready.set()
            app = build(self._backend)
            await asyncio.gather(serve(app, listening, self._backend.closing), self._serve_others(app))
        self.socket.unlink(missing_ok=True)

    async def _serve_others(self, app: Application) -> None:
        if self.network is not None:
            assert self._backend
            others = NetworkListener(NetworkGate(app, self._backend, Exposure(rate=0)))
            await others.serve(self.network.dup(), self._backend.closing, self.tls)

    def stop(self) -> None:
        if self._thread is None:
            return
        assert self._loop and self._backend and self._batcher
        self._loop.call_soon_threadsafe(self._backend.shut_down)
        self._thread.join(PATIENCE_S)
        self._batcher.close()
        self._thread = None

    def close(self) -> None:
        self.stop()
        self.store.close()

    def do(self, command: c.Command) -> Any:
        assert self._batcher
        return self._batcher.of(DEFAULT_WORKSPACE).submit(command).result(PATIENCE_S)

    def tasks(self) -> dict[str, Any]:
        """By key."""
        return {task.key: task for task in drive(self.store.reads.task_views(TaskFilter()))}

    def fingerprint(self) -> Any:
        """Equal before and after a command that has changed nothing."""
        return drive(self.store.reads.last_event_id()), self.tasks()

    def claim(self, name: str, slots: int = 10) -> dict[str, Any]:
        claim = c.Claim(worker_id=WORKER, request_id=name, slots=slots)
        return {job.key: job for job in self.do(claim).jobs}

    def register(self, worker_id: str = WORKER, **changes: Any) -> None:
        host = {"hostname": "h", "pid": 1, "pid_start": 1, "boot_id": "boot"}
        crew = {"slots": 9, "agents": ("shell",), "general": ("shell",)}
        self.do(c.Register(worker_id=worker_id, **(host | crew | changes)))

    def begin(self, job: Any, token: str = TOKEN) -> None:
        digest = hashlib.sha256(token.encode()).hexdigest()
        self.do(c.Start(task_id=job.task_id, epoch=job.epoch, token_hash=digest))

    def log(self, task_id: int, epoch: int, data: bytes, *, stream: str = "stdout", offset: int = 0) -> None:
        self.do(c.AppendLog(task_id=task_id, epoch=epoch, stream=stream, offset=offset, data=data))

    def seed(self) -> None:
        """`billing`: model completed, api running, tests failed, docs blocked by it, other wants a ghost."""
        tasks = (
            c.Spec(title="Invoice model", key="model"),
            c.Spec(title="REST endpoints", key="api", depends_on=("model",)),
            c.Spec(title="Property tests", key="tests", depends_on=("model",), max_retries=0),
            c.Spec(title="Docs page", key="docs", depends_on=("api", "tests")),
            c.Spec(title="Something else", key="other", agent="ghost"),
        )
        self.do(c.Enqueue(plan="billing", source=None, tasks=tasks, actor="user:ann"))
        self.register()
        model = self.claim("r1")["model"]
        self.begin(model)
        self.do(c.Complete(task_id=model.task_id, epoch=1, result='{"rows":3}', exit_code=0))
        jobs = self.claim("r2")
        self.begin(jobs["api"])
        self.begin(jobs["tests"])
        self.log(jobs["tests"].task_id, 1, b"collected 44 items\n3 failed\n")
        self.do(
            c.Fail(
                task_id=jobs["tests"].task_id, epoch=1, kind=ErrorKind.CRASH, message="exit code 1: 3 failed"
            )
        )

    def inside(self, key: str = "api", epoch: int = 1, token: str = TOKEN) -> dict[str, str]:
        """The environment of a task's process."""
        return {
            "MUSTER_SOCKET": str(self.socket),
            "MUSTER_TOKEN": token,
            "MUSTER_TASK_ID": str(self.tasks()[key].id),
            "MUSTER_EPOCH": str(epoch),
        }


class Ran(NamedTuple):
    code: int
    raw: bytes
    err: str

    @property
    def out(self) -> str:
        return self.raw.decode()


Cli = Callable[..., Ran]
