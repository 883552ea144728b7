"""An owner within the process of a program: a thread with an event loop of its own.

It also listens on the project's socket, so that `muster status` and other processes reach it as any other one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import logging.handlers
import os
import threading
from collections.abc import Coroutine, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import msgspec

from muster.app.core import Owner
from muster.app.owner import bound_to, mind_files, until_closed
from muster.app.parts import make_state_dir
from muster.client.crew import HttpCrew
from muster.client.http import ClientRequest
from muster.config.project import Project
from muster.config.settings import Config
from muster.engine.batch import WorkspaceEngine
from muster.hosts.forked_child import keep_from_children
from muster.model import commands as c
from muster.model.answers import Claimed, Enqueued, Moved
from muster.model.errors import BadInput, MusterError, OwnerUnavailable
from muster.model.nul import holds_nul
from muster.model.patterns import in_words
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.states import CrewStatus
from muster.runtimes.local import SystemClock
from muster.web.app import build
from muster.web.backend import Backend
from muster.web.http import Peer, Request
from muster.web.routes import Application
from muster.web.server import serve

T = TypeVar("T")

log = logging.getLogger(__name__)

_ENQUEUE = msgspec.json.Decoder(c.Enqueue)
_LOG_FORMAT = "%(asctime)s embedded[%(process)d] %(levelname)s %(name)s: %(message)s"


class EmbeddedOwner:
    """May be called from any thread but its own; its context ends it."""

    def __init__(self, project: Project, config: Config, clock: SystemClock | None) -> None:
        self._project = project
        self._clock = clock
        self._config = config
        self._began: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="muster-owner", daemon=True)
        self._loop: asyncio.AbstractEventLoop
        self._owner: Owner
        self._web: Backend
        self._app: Application
        self._peer = Peer(os.getpid())
        self._peer.actor = ""
        """A person's program, also where it is a worker as well."""
        self._forked = False
        self._over = False
        self._sending = threading.Lock()
        """Held while something is given to the loop, so that this is refused, not forgotten, once that ends."""
        keep_from_children(self, EmbeddedOwner._leave_to_parent)

    @classmethod
    def begin(cls, project: Project, config: Config, *, clock: SystemClock | None = None) -> Self:
        """With a `clock` of the caller's time passes as that says.

        Raises OwnerUnavailable where another process holds the store, StoreFault where it cannot be used.
        """
        begun = cls(project, config, clock)
        begun._thread.start()
        begun._began.result()
        return begun

    def __enter__(self) -> Self:
        return self

    def _leave_to_parent(self) -> None:
        self._forked = True

    def __exit__(self, *_: object) -> None:
        if self._forked:
            return  # its event loop shares what wakes it with the parent's
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._web.shut_down)
        self._thread.join()

    @property
    def project(self) -> Project:
        return self._project

    def request(self, asked: ClientRequest) -> tuple[int, bytes]:
        """As `client.api.Transport`.  Raises OwnerUnavailable once the owner has ended, or answers too late."""
        answer = self.send(asked)
        try:
            return answer.result(asked.reply_s)
        except TimeoutError:
            answer.cancel()
            raise _late(asked) from None

    async def request_async(self, asked: ClientRequest) -> tuple[int, bytes]:
        """As `request`, of another event loop than its own."""
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self.send(asked)), asked.reply_s)
        except TimeoutError:
            raise _late(asked) from None

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def send(self, asked: ClientRequest) -> Future[tuple[int, bytes]]:
        """As `request`, without waiting for the answer."""
        if self._forked:
            raise owner_ended()
        with self._sending:
            if self._over:
                raise owner_ended()
            return asyncio.run_coroutine_threadsafe(self._answer(asked), self._loop)

    async def _answer(self, asked: ClientRequest) -> tuple[int, bytes]:
        given = [(name.encode(), value.encode()) for name, value in asked.headers.items()]
        try:
            reply = await self._app.answer(Request(asked.method, asked.target, given, asked.body, self._peer))
        except asyncio.CancelledError:
            if not (self._over or self._web.closing.is_set()):
                raise  # whoever has asked does not wait any more
            raise owner_ended() from None
        if reply.status >= 500 and self._web.closing.is_set():
            raise owner_ended()  # its store was closed meanwhile
        return reply.status, reply.data

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """In the owner's own event loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """The owner stays: it is nobody's connection."""

    def enqueue(self, command: c.Enqueue) -> Enqueued:
        """Raises what refuses it."""
        try:
            data = msgspec.json.encode(command)
            if holds_nul(data):
                raise BadInput("the task holds a NUL character; nothing was added", "remove it")
            checked = _ENQUEUE.decode(data)
        except (msgspec.ValidationError, UnicodeEncodeError) as error:
            raise BadInput(f"invalid task: {in_words(str(error))}; nothing was added") from error
        added = self._engine.call(checked)
        assert isinstance(added, Enqueued)
        return added

    def crew(self) -> LocalCrew:
        return LocalCrew(self, self._engine)

    @property
    def _engine(self) -> WorkspaceEngine:
        return self._owner.batcher.of(DEFAULT_WORKSPACE)

    def _run(self) -> None:
        try:
            make_state_dir(self._project)
            with _logged(self._project.log_file):
                asyncio.run(self._own())
        except BaseException as error:
            if self._began.done():
                log.exception("the embedded owner has ended")
            else:
                self._began.set_exception(error)

    async def _own(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await self._serve()
        finally:
            with self._sending:
                self._over = True
            for _ in range(2):  # what was sent before begins, so that it is told that the owner has ended
                await asyncio.sleep(0)

    async def _serve(self) -> None:
        async with Owner(self._project, self._config, clock=self._clock) as owner:
            if (halted := owner.halted()) is not None:
                raise halted
            await owner.take_over()
            await owner.batcher.of(DEFAULT_WORKSPACE).execute(c.SetCrew(status=CrewStatus.RUNNING))
            services = await owner.services()
            self._owner, self._web = owner, owner.backend()
            self._app = build(self._web)
            self._app.prepare()
            path = Path(self._project.socket)
            with bound_to(path) as listening:
                self._began.set_result(None)
                await until_closed(
                    self._web,
                    serve(self._app, listening, self._web.closing),
                    *(service.run() for service in services),
                    mind_files(path, owner, lambda again: serve(self._app, again, self._web.closing)),
                )
            await owner.tick_boxes()


def _late(asked: ClientRequest) -> OwnerUnavailable:
    return OwnerUnavailable(
        f"the owner in this process has not answered within {asked.reply_s:g} s", "see .muster/muster.log"
    )


def owner_ended() -> OwnerUnavailable:
    return OwnerUnavailable("the owner in this process has ended", "see .muster/muster.log")


class _ToRoot(logging.Handler):
    """What the program's own settings want to see of our log."""

    def emit(self, record: logging.LogRecord) -> None:
        root = logging.getLogger()
        if root.isEnabledFor(record.levelno):
            root.handle(record)


@contextlib.contextmanager
def _logged(path: Path) -> Iterator[None]:
    """The owner's log is a file of the project, which also witnesses the seals; the program's own stays."""
    ours = logging.getLogger("muster")
    level, propagates = ours.level, ours.propagate
    file = logging.handlers.WatchedFileHandler(path, encoding="utf-8")
    file.setFormatter(logging.Formatter(_LOG_FORMAT))
    handlers = [file, _ToRoot()] if propagates else [file]
    for handler in handlers:
        ours.addHandler(handler)
    ours.setLevel(min(level, logging.INFO) if level else logging.INFO)
    ours.propagate = False
    try:
        yield
    finally:
        for handler in handlers:
            ours.removeHandler(handler)
        ours.setLevel(level)
        ours.propagate = propagates
        file.close()


class LocalCrew(HttpCrew):
    """The worker protocol without a socket: what comes often goes to the engine at once."""

    def __init__(self, owner: EmbeddedOwner, engine: WorkspaceEngine) -> None:
        super().__init__(owner.project.socket)
        self._owner = owner
        self._engine = engine

    def _connect(self) -> EmbeddedOwner:
        return self._owner

    def claim(self, command: c.Claim, *, wait_s: float) -> Claimed:
        (found,) = self._engine.call_all([command])
        if isinstance(found, MusterError):
            raise found
        assert isinstance(found, Claimed)
        empty = not (found.jobs or found.drain or found.over)
        return super().claim(command, wait_s=wait_s) if empty and wait_s else found

    def report(self, command: c.AttemptCommand) -> Moved:
        moved = self._engine.call(command)
        assert isinstance(moved, Moved)
        return moved

    def report_all(self, commands: Sequence[c.AttemptCommand]) -> list[Moved | MusterError]:
        """In one commit, as a rule, by a thread that nothing interrupts; a refusal is a value."""
        return cast("list[Moved | MusterError]", self._engine.call_all(commands))
