"""Servers that share one PostgreSQL store, each a process in a folder of its own, and a balancer before them."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from muster.client.api import Api
from muster.client.http import Connection
from muster.model.errors import MusterError
from muster_command import MUSTER
from patience import PATIENCE_S, until

T = TypeVar("T")

QUICK = """\
[health]
heartbeat = "300ms"
lease = "3s"
remote_lease = "3s"
sweep = "100ms"
[task]
backoff = { first = "50ms", max = "100ms" }
[serve]
rate = 0
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


class SharedServer:
    def __init__(
        self,
        folder: Path,
        store: str,
        settings: str,
        *,
        options: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`options` besides the usual ones; `env`: instead of this process's."""
        self.folder, self._store = folder, store
        self._options, self.env = options, env
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        (folder / ".muster").mkdir(mode=0o700, parents=True)
        (folder / "muster.toml").write_text(settings)

    def begin(self) -> None:
        """It is not waited for."""
        argv = [
            *MUSTER,
            "serve",
            "--store",
            self._store,
            "--listen",
            f"127.0.0.1:{self.port}",
            *self._options,
        ]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(argv, cwd=self.folder, stdout=log, stderr=log, env=self.env)

    def start(self) -> None:
        self.begin()
        until(self.ready, f"{self.folder.name} serves: {self.log()}")

    def ready(self) -> bool:
        assert self.process is None or self.process.poll() is None, self.log()
        return self.answers()

    def answers(self) -> bool:
        try:
            return bool(self.local("GET", "/health/ready")["status"] == "ok")
        except MusterError:
            return False

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def local(self, method: str, path: str, content: Any = None) -> Any:
        """By the folder's socket."""
        with contextlib.closing(Api(Connection(str(self.folder / ".muster" / "muster.sock")))) as api:
            return api.get(path) if method == "GET" else api.post(path, content)

    @property
    def named(self) -> str:
        """As other servers know it."""
        assert self.process is not None
        return f"{socket.gethostname()}[{self.process.pid}]"

    @property
    def leads(self) -> bool:
        return self.term > 0

    @property
    def term(self) -> int:
        term: int = self.local("GET", "/api/v1/coordinator/status")["term"]
        return term

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.send(number)
        return self.process.wait(PATIENCE_S)


class Servers:
    def __init__(
        self, folder: Path, store: str | Sequence[str], count: int, settings: str = QUICK, **more: Any
    ) -> None:
        """`store`: the address of it, or those that each of them has for it.  `more` as for SharedServer."""
        self.folder = folder
        stores = [store] * count if isinstance(store, str) else store
        named = zip("abc"[:count], stores, strict=True)
        self.every = [SharedServer(folder / name, one, settings, **more) for name, one in named]
        for name in ("key", "vault.key"):
            key = secrets.token_hex(32) + "\n"
            for server in self.every:
                (server.folder / ".muster" / name).write_text(key)

    def start(self) -> None:
        """All at once."""
        for server in self.every:
            server.begin()
        for server in self.every:
            until(server.ready, f"{server.folder.name} serves")
        until(lambda: self.leader, "one of them leads")

    @property
    def token(self) -> str:
        """The first one, an OWNER's."""
        kept = [one.folder / ".muster" / "first-token" for one in self.every]
        (found,) = [path for path in kept if path.exists()]
        return found.read_text().strip()

    @property
    def leader(self) -> SharedServer | None:
        """Of those that answer."""
        for server in self.every:
            with contextlib.suppress(MusterError):
                if server.process and server.process.poll() is None and server.leads:
                    return server
        return None

    def api(self, server: SharedServer) -> Api:
        return Api(Connection(server.url, self.token))

    def close(self) -> None:
        for server in self.every:
            if server.process is not None and server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
                server.process.kill()
                server.process.wait()


class FarWorkers:
    """Workers that came over the network, as the protocol has them: no processes."""

    def __init__(self, api: Callable[[], Api], **crew: Any) -> None:
        self._api = api
        self.id = f"worker-{secrets.token_hex(4)}"
        host = {"hostname": "far", "pid": 1, "pidStart": 1, "bootId": "boot"}
        crew = {"slots": 100, "agents": ["far"], "general": ["far"]} | crew
        self._own: dict[str, str] = {}
        self.told = self.post("register", workerId=self.id, **host, **crew)
        self._own = {"Authorization": f"Bearer {self.told['own']['token']}"}

    def post(self, verb: str, **content: Any) -> Any:
        with contextlib.closing(self._api()) as api:
            return Api(api._transport, self._own).post(f"/worker/v1/{verb}", content)

    def ask_at(self, api: Callable[[], Api]) -> None:
        """Another server, from now on."""
        self._api = api

    def claim(self, slots: int = 1, wait_s: int = 0, request: str = "") -> list[Any]:
        verb = f"claim?wait={wait_s}" if wait_s else "claim"
        told = self.post(verb, workerId=self.id, requestId=request or secrets.token_hex(8), slots=slots)
        found: list[Any] = told["jobs"]
        return found


def at_once(calls: Iterable[Callable[[], T]]) -> list[T]:
    """What they return, each in a thread."""
    every = list(calls)
    with ThreadPoolExecutor(len(every)) as pool:
        return [future.result() for future in [pool.submit(call) for call in every]]


class Balancer:
    """Takes each connection to the next server that lets it in."""

    def __init__(self, ports: list[int], port: int = 0) -> None:
        """`port`: where to listen; 0: anywhere."""
        self._ports, self._turn = ports, 0
        self._listening = socket.create_server(("127.0.0.1", port), backlog=64)
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._closing = threading.Event()
        self._callers: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while not self._closing.is_set():
                caller, _ = self._listening.accept()
                self._callers.add(caller)
                threading.Thread(target=self._carry, args=(caller,), daemon=True).start()

    def _carry(self, caller: socket.socket) -> None:
        with caller:
            for _ in self._ports:
                self._turn += 1
                port = self._ports[self._turn % len(self._ports)]
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as server:
                    both_ways(caller, server)
                    return

    def cut(self) -> None:
        """Lets nobody in any more, and cuts off all that it had let in."""
        self.close()
        for caller in self._callers:
            with contextlib.suppress(OSError):
                caller.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closing.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


def both_ways(one: socket.socket, other: socket.socket) -> None:
    """Until either has nothing more to say."""
    across = {one: other, other: one}
    with contextlib.suppress(OSError):
        while True:
            for heard in select.select(list(across), [], [])[0]:
                data = heard.recv(1 << 16)
                if not data:
                    return
                across[heard].sendall(data)


@contextlib.contextmanager
def several(folder: Path, store: str, count: int, settings: str = QUICK) -> Iterator[Servers]:
    """Up, one of them as leader."""
    servers = Servers(folder, store, count, settings)
    try:
        servers.start()
        yield servers
    finally:
        servers.close()


@contextlib.contextmanager
def worker_of(servers: Servers, folder: Path, url: str, settings: str, *words: str) -> Iterator[None]:
    """`muster worker start` in that folder, by the servers' first token; its last words are in `log` there."""
    folder.mkdir(exist_ok=True)
    (folder / "muster.toml").write_text(settings)
    env = {**os.environ, "MUSTER_TOKEN": servers.token}
    with (folder / "log").open("ab") as log:
        argv = [*MUSTER, "worker", "start", "--server", url, *words]
        process = subprocess.Popen(argv, cwd=folder, env=env, stdout=log, stderr=log)
    try:
        yield
    finally:

        def ended() -> bool:
            process.send_signal(signal.SIGINT)  # the second one does not wait for what runs
            return process.poll() is not None

        until(ended, f"the worker in {folder} ends")
