"""The owner's server in a thread of its own, over a real unix socket and a real store."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from described import misfits

from muster.client.http import ClientRequest, Connection
from muster.engine.batch import Batcher
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.model.states import CrewStatus
from muster.runtimes.chance import SystemChance
from muster.runtimes.local import LocalWakeups, SystemClock
from muster.stores.sqlite.store import SqliteStore
from muster.web.app import build
from muster.web.server import serve
from patience import PATIENCE_S
from serving import ServedOwner, backend

W1 = "worker-aaaaaaaa"
HELD_S = 60
"""The longest that may be asked for."""
WOKEN_S = 30.0
"""Whoever is answered before, was woken: time alone would have come later."""
TOKEN = "the attempt's own token"


class Site:
    def __init__(self, folder: Path) -> None:
        self.socket = folder / "muster.sock"
        self._store_path = folder / "muster.db"
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._pool = ThreadPoolExecutor(8)
        self._local = threading.local()
        self.failed: BaseException | None = None

    async def _serve(self) -> None:
        store = SqliteStore.open(self._store_path)
        clock, wakeups = SystemClock("boot-a"), LocalWakeups()
        self.owner = ServedOwner(store, self._store_path)
        engine = Engine(store, SystemChance(), Policy(), vault=self.owner.vault)
        batcher = Batcher(engine, clock.now, wakeups.publish)
        self.backend = backend(self.owner, store, batcher, clock, wakeups)
        self._loop, self._wakeups = asyncio.get_running_loop(), wakeups
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            listening.bind(str(self.socket))
            listening.listen(512)
            self._ready.set()
            try:
                await serve(build(self.backend), listening, self.backend.closing)
            except BaseException as error:
                self.failed = error
                raise
            finally:
                batcher.close()
                store.close()

    @contextmanager
    def up(self) -> Iterator[Site]:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        try:
            yield self
        finally:
            self.shut_down()
            self._pool.shutdown()
        assert self.failed is None

    def shut_down(self) -> float:
        """Seconds that it took."""
        begun_s = time.monotonic()
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self.backend.shut_down)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return time.monotonic() - begun_s

    # -- requests

    def send(
        self, method: str, target: str, data: bytes = b"", headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        """(status, JSON)."""
        connection = Connection(self.socket)
        try:
            status, answer = connection.request(
                ClientRequest(method, target, data, headers, reply_s=PATIENCE_S)
            )
        finally:
            connection.close()
        told = json.loads(answer) if answer[:1] in {b"{", b"["} else None
        found = misfits(method, target, status, told)
        assert not found, found
        return status, told

    def get(self, target: str) -> Any:
        status, answer = self.send("GET", target)
        assert status == 200, answer
        return answer

    def post(self, target: str, content: Any) -> Any:
        status, answer = self.send("POST", target, json.dumps(content).encode())
        assert status < 300, answer
        return answer

    def refused(self, method: str, target: str, data: bytes = b"", **headers: str) -> tuple[int, str]:
        """(status, error code) of a request that must be refused, with a message and no traceback."""
        status, answer = self.send(method, target, data, headers)
        assert answer.keys() - {"errors"} == {"title", "status", "code", "detail", "hint"}
        assert answer["status"] == status
        assert answer["detail"] and "Traceback" not in answer["detail"]
        return status, answer["code"]

    def soon(self, *request: Any) -> Future[tuple[int, Any]]:
        """The answer of a request that may be held."""
        return self._pool.submit(self.send, *request)

    # -- a crew at work

    def enqueue(self, *keys: str, plan: str = "api") -> dict[str, int]:
        tasks = [{"title": key, "key": key} for key in keys]
        self.post("/api/v1/plans", {"plan": plan, "source": None, "tasks": tasks, "actor": "ada"})
        return {view["key"]: view["id"] for view in self.get("/api/v1/agent-tasks")}

    def register(self, worker_id: str = W1, **more: Any) -> None:
        self.post("/worker/v1/register", self.registration(worker_id) | more)

    def registration(self, worker_id: str = W1) -> dict[str, Any]:
        return {
            "workerId": worker_id,
            "hostname": "here",
            "pid": 1,
            "pidStart": 1,
            "bootId": "boot-a",
            "slots": 10,
            "agents": ["claude"],
            "general": ["claude"],
        }

    def claim_body(self, request_id: str = "r1", worker_id: str = W1, slots: int = 10) -> dict[str, Any]:
        return {"workerId": worker_id, "requestId": request_id, "slots": slots}

    def started(self, request_id: str = "r1") -> list[dict[str, Any]]:
        """Claims all that is ready, and starts it with TOKEN."""
        jobs: list[dict[str, Any]] = self.post("/worker/v1/claim", self.claim_body(request_id))["jobs"]
        for job in jobs:
            digest = hashlib.sha256(TOKEN.encode()).hexdigest()
            self.post("/worker/v1/start", self.of(job) | {"tokenHash": digest})
        return jobs

    def of(self, job: dict[str, Any]) -> dict[str, Any]:
        return {"taskId": job["taskId"], "epoch": job["epoch"]}

    def report(self, job: dict[str, Any], verb: str, content: Any, token: str = TOKEN) -> tuple[int, Any]:
        target = f"/attempt/v1/{job['taskId']}/{job['epoch']}/{verb}"
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.send("POST", target, data, {"Authorization": f"Bearer {token}"})

    def stop(self) -> Any:
        return self.post("/api/v1/crew", {"status": CrewStatus.STOPPED, "actor": "ada"})
