"""A store and workers that are, as far as they can see, on different machines; and lines between them to cut.

The owner is in a pid and host name namespace of its own, so it sees no process of a worker's.  Each worker has a
project folder of its own, where a line to the owner takes the place of the owner's socket.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from muster.client.api import Api
from muster.client.http import Connection, address
from muster.config.project import Project
from muster.hosts.local_host import LocalHost
from muster.hosts.process_table import Proc, scan, with_marks
from patience import until
from real_processes import answers, stand_still

CONFIG = """\
[health]
heartbeat = "200ms"
lease = "6s"
remote_lease = "6s"
sweep = "100ms"
[task]
backoff = { first = "50ms", max = "100ms" }
"""
_ELSEWHERE = """
import os, socket, sys
socket.sethostname("store.example")
os.execv(sys.executable, [sys.executable, "-m", "muster.app.owner", sys.argv[1]])
"""
_NAMESPACE = ["unshare", "-Urpfu", "--mount-proc", "--kill-child"]


class Line:
    """Carries bytes from one socket to another until it is cut: then it breaks, and nobody answers."""

    def __init__(self, here: Path, there: Path) -> None:
        self._there = there
        self._cut = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with address(here) as reachable:
            self._listening.bind(reachable)
        self._listening.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        with self._lock:
            self._cut = True
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._cut = False

    def close(self) -> None:
        self.cut()
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                threading.Thread(target=self._carry, args=(caller,), daemon=True).start()

    def _carry(self, caller: socket.socket) -> None:
        with contextlib.suppress(OSError), caller, socket.socket(socket.AF_UNIX) as owner:
            with self._lock:
                if self._cut:
                    return
                self._open |= {caller, owner}
            try:
                with address(self._there) as reachable:
                    owner.connect(reachable)
                self._shuttle(caller, owner)
            finally:
                with self._lock:
                    self._open -= {caller, owner}

    @staticmethod
    def _shuttle(caller: socket.socket, owner: socket.socket) -> None:
        other = {caller: owner, owner: caller}
        while True:
            for one in select.select([caller, owner], [], [])[0]:
                data = one.recv(1 << 16)
                if not data:
                    return
                other[one].sendall(data)


class RemoteWorker:
    def __init__(self, root: Path, store: Path) -> None:
        self.root = root
        (root / ".muster").mkdir(parents=True, mode=0o700)
        (root / "muster.toml").write_text(CONFIG)
        self.line = Line(Project(root).socket, Project(store).socket)
        with (root / "log").open("wb") as log:
            argv = [sys.executable, "-m", "muster.app.worker", str(root)]
            self.process = subprocess.Popen(argv, stderr=log, start_new_session=True)

    def tree(self) -> list[Proc]:
        """Living processes of its attempts, the worker itself aside."""
        table = scan()
        mark = os.fsencode(f"MUSTER_ROOT={self.root}")
        ids = set(with_marks(table, [mark])[mark])
        return [proc for proc in table if proc.id in ids]

    def signal_tree(self, number: int) -> bool:
        """True where there was anybody to be signalled."""
        tree = self.tree()
        for proc in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(proc.pid, number)
        return bool(tree)

    def stands_still(self) -> bool:
        return stand_still(self.tree())

    def end(self) -> None:
        self.line.close()
        self.process.kill()
        self.process.wait()
        LocalHost().kill_marked([f"MUSTER_ROOT={self.root}"])


class Site:
    """The store's machine, and the workers of others."""

    def __init__(self, folder: Path) -> None:
        tried = subprocess.run([*_NAMESPACE, "true"], check=False, capture_output=True)
        if shutil.which("unshare") is None or tried.returncode:
            pytest.skip("no namespaces can be made here")
        self.folder = folder
        self.root = folder / "store"
        (self.root / ".muster").mkdir(parents=True, mode=0o700)
        (self.root / "muster.toml").write_text(CONFIG)
        self.ledger = folder / "ledger"
        self.ledger.touch()
        self.finish = folder / "finish"
        self.workers: list[RemoteWorker] = []
        self.api = Api(Connection(Project(self.root).socket))
        self.owner: subprocess.Popen[bytes] | None = None
        self.start_owner()

    def start_owner(self) -> None:
        argv = [*_NAMESPACE, sys.executable, "-c", _ELSEWHERE, str(self.root)]
        with (self.folder / "owner.log").open("ab") as log:
            self.owner = subprocess.Popen(argv, stderr=log, start_new_session=True)
        until(lambda: answers(self.api), "the owner answers")

    def kill_owner(self) -> None:
        assert self.owner is not None
        self.owner.kill()
        self.owner.wait()
        until(lambda: not answers(self.api), "nobody answers")

    def worker(self, name: str) -> RemoteWorker:
        self.workers.append(RemoteWorker(self.folder / name, self.root))
        return self.workers[-1]

    def add(self) -> int:
        """A task whose agent notes each of its deeds, in two sessions, until it is told to finish."""
        deed = f'echo "$MUSTER_EPOCH" >> {self.ledger}; sleep 0.01'
        script = f"""\
            trap 'echo asked >> {self.ledger}' INT TERM
            setsid sh -c 'while :; do {deed}; done' &
            until [ -e {self.finish} ] || [ -e {self.finish}-$MUSTER_EPOCH ]; do {deed}; done
            kill $!
            echo "{{\\"by\\": $MUSTER_EPOCH}}" > "$MUSTER_RESULT"
        """
        task = {"title": "t", "key": "t", "agent": "shell", "description": script}
        self.api.post("/api/v1/plans", {"plan": "p", "source": None, "actor": "test", "tasks": [task]})
        (found,) = self.api.get("/api/v1/agent-tasks")
        return int(found["id"])

    def deeds(self, epoch: int) -> int:
        return self.ledger.read_text().split().count(str(epoch))

    def task(self, task_id: int) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get(f"/api/v1/agent-tasks/{task_id}")
        return found

    def status(self, task_id: int) -> str:
        return str(self.task(task_id)["task"]["status"])

    def say(self, word: str, task_id: int, *, epoch: int) -> None:
        """What a late worker may still want to say."""
        more = {
            "fail": {"kind": "crash", "message": "late"},
            "release": {"reason": "late"},
            "checkpoint": {"data": ""},
        }
        body = {"taskId": task_id, "epoch": epoch, **more.get(word, {})}
        self.api.post(f"/worker/v1/{word}", body)

    def happened(self, task_id: int) -> list[str]:
        return [event["event"] for event in self.api.get("/api/v1/events", {"limit": 1000})]

    def end(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker.process.pid, signal.SIGCONT)
            worker.end()
        if self.owner is not None:
            self.owner.kill()
            self.owner.wait()
        self.api.close()
