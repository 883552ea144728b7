"""For crash tests: an owner, or a server that shares its store, that kills itself at a named point.

CRASH_POINT_FILE names a file.  Once the file is there, it says where and when: `POINT:HITS` or `POINT:HITS:NAME`.
At the HITSth passing of POINT the owner removes the file and sends itself SIGKILL; the file may be put there at
any time.  The product knows nothing of this: `sitecustomize` beside this file puts the points into an owner
whose PYTHONPATH names this folder.

    before_commit   everything is written but not committed; NAME: a command of the batch, such as `Claim`
    after_commit    it is on the disk, nobody was told; NAME: as before
    after_answer    the caller has its answer; NAME: the last part of the request's path, such as `claim`
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from owner_hook import is_shared_server

from muster.engine.commands import Applied, Engine
from muster.engine.policy import Policy
from muster.model.task import Now
from muster.ports.engine import Asked
from muster.ports.locks import Ahead
from muster.ports.runtime import Chance
from muster.ports.store import Reads, Store, Transaction

T = TypeVar("T")

HERE = Path(__file__).parent
VARIABLE = "CRASH_POINT_FILE"


class Failpoint:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._order = ""
        self._hits = 0

    def at(self, point: str, names: Collection[str]) -> None:
        """Does not return where this is the place and the time to die."""
        with self._lock:
            try:
                order = self._path.read_text("utf-8")
            except OSError:
                self._order = ""
                return
            if order != self._order:
                self._order, self._hits = order, 0
            wanted, hits, name = (*order.split(":"), "")[:3]
            if wanted != point or (name and name not in names):
                return
            self._hits += 1
            if self._hits >= int(hits):
                self._path.unlink(missing_ok=True)
                os.kill(os.getpid(), signal.SIGKILL)


def crashing(path: Path) -> dict[str, str]:
    """The environment of a crew whose owner has the points."""
    return {VARIABLE: str(path), "PYTHONPATH": str(HERE)}


def install(path: Path) -> None:
    """Puts the points into this process, before its owner is made."""
    from muster.web.http import Reply, Request
    from muster.web.routes import Application

    failpoint = Failpoint(path)
    answer = Application.answer

    def engine(store: Store, chance: Chance, policy: Policy, *keys: Any) -> CrashingEngine:
        return CrashingEngine(store, chance, policy, failpoint, *keys)

    async def then(app: Application, request: Request) -> Reply:
        reply = await answer(app, request)
        # The server sends it before anything else has its turn.
        name = request.path.rpartition("/")[2]
        asyncio.get_running_loop().call_soon(failpoint.at, "after_answer", [name])
        return reply

    if is_shared_server():
        from muster.app import server

        server.Engine = engine  # type: ignore[assignment,misc]
    else:
        from muster.app import core

        core.Engine = engine  # type: ignore[assignment,misc]
    Application.answer = then  # type: ignore[method-assign]


_NAMES: ContextVar[Collection[str]] = ContextVar("names", default=())
"""Of the commands that a transaction is about: there may be several at once."""


class CrashingEngine(Engine):
    """An engine with the points around its commits."""

    def __init__(
        self, store: Store, chance: Chance, policy: Policy, failpoint: Failpoint, *keys: Any
    ) -> None:
        self._failpoint = failpoint
        super().__init__(_Brink(store, failpoint), chance, policy, *keys)

    async def apply(self, asked: Sequence[Asked], now: Now) -> Applied:
        names = {type(one.command).__name__ for one in asked}
        _NAMES.set(names)
        applied = await super().apply(asked, now)
        self._failpoint.at("after_commit", names)
        return applied


class _Brink:
    """A store with the point at the end of each transaction's work."""

    def __init__(self, store: Store, failpoint: Failpoint) -> None:
        self._store = store
        self._failpoint = failpoint

    @property
    def reads(self) -> Reads:
        return self._store.reads

    async def transact(self, work: Callable[[Transaction], Awaitable[T]], ahead: Ahead | None = None) -> T:
        async def to_the_brink(tx: Transaction) -> T:
            done = await work(tx)
            self._failpoint.at("before_commit", _NAMES.get())
            return done

        return await self._store.transact(to_the_brink, ahead)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
