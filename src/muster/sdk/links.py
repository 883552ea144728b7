"""The ways from a program to an owner: one in this process, one behind the socket, one for a single request."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol, Self
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from muster.app.direct import direct
from muster.app.embedded import EmbeddedOwner
from muster.app.settings import load_config
from muster.client.api import error_of
from muster.client.async_http import AsyncConnections
from muster.client.crew import HttpCrew
from muster.client.http import ClientRequest, Connection, answers
from muster.client.remote import ServerPlaces
from muster.config.contexts import KnownServer
from muster.config.project import Project, find_project
from muster.config.settings import COMMAND
from muster.hosts.file_lock import LONGEST_S, STARTING_S, LockWait, holder
from muster.hosts.local_host import LocalHost
from muster.model import commands as c
from muster.model.answers import Enqueued
from muster.model.errors import BadInput, MusterError, OwnerUnavailable
from muster.runtimes.chance import SystemChance
from muster.sdk.asking import JSON, answered

log = logging.getLogger(__name__)

OWNED_LOOK_S = 1.0
"""Between two looks whether the owner, which is another process, still answers."""
_POLL_S = 0.05
_NOBODY_S = 1.0
"""While nobody is up the store is opened so often; whether somebody is, is cheap to see."""
_NOBODY_LOOK_S = 0.1
_AGAIN_FIRST_S = 0.2
_AGAIN_MOST_S = 2.0
_FULL = 429
_AGAIN_STATUSES = frozenset({_FULL, 502, 503, 504})
WAIT = re.compile(r"([?&]wait=)([^&]*)")
"""In the target of a request: how long its answer may be held."""
_ENQUEUED = msgspec.json.Decoder(Enqueued)
EMBEDDED: dict[str, EmbeddedOwner] = {}
"""By folder, the owners of this process."""
# A forked child has none: it asks its parent over the socket, as any other process does.
os.register_at_fork(after_in_child=EMBEDDED.clear)


class Owned:
    """A context in which somebody owns the store: whoever does already, and this process once nobody does."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._stack = contextlib.ExitStack()
        self._ending = threading.Event()
        self._minding = threading.Thread(target=self._mind, name="muster-owned", daemon=True)

    def __enter__(self) -> Self:
        """Raises as `owning`, where nobody answers either."""
        self._own_if_nobody_does()
        self._minding.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._minding.join()
        self._stack.close()

    def _own_if_nobody_does(self) -> None:
        if self._project.folder in EMBEDDED or answers(self._project.socket):
            return
        try:
            self._stack.enter_context(owning(self._project))
        except OwnerUnavailable:
            if not answers(self._project.socket):  # else somebody has begun meanwhile
                raise

    def _mind(self) -> None:
        """The other one may end, or be killed."""
        while not self._ending.wait(OWNED_LOOK_S):
            try:
                self._own_if_nobody_does()
            except MusterError as error:
                log.warning("nobody owns the store of %s: %s", self._project.folder, error)


@contextlib.contextmanager
def owning(project: Project) -> Iterator[None]:
    """This process holds the store, and coordinates.  Raises OwnerUnavailable where another one does."""
    if project.folder in EMBEDDED:
        yield
        return
    project.root.mkdir(parents=True, exist_ok=True)
    with _embedded(project) as owner:
        EMBEDDED[project.folder] = owner
        try:
            yield
        finally:
            EMBEDDED.pop(project.folder, None)


def _embedded(project: Project) -> EmbeddedOwner:
    """Begun.  A command, or a client without an owner, holds the store for a moment only."""
    waiting = LockWait(project.owner_lock)
    while True:
        try:
            return EmbeddedOwner.begin(project, load_config(project.root))
        except OwnerUnavailable:
            if answers(project.socket) or waiting.over():
                raise
            time.sleep(_POLL_S / 2)


def registration_of(
    agents: tuple[str, ...], slots: int, offers: dict[str, c.Offer], general: tuple[str, ...] = ()
) -> c.Register:
    """Of a worker in this process, with a name that was never used; what functions print is shown as it is."""
    host = LocalHost()
    process = host.identify(os.getpid())
    assert process is not None
    return c.Register(
        worker_id=f"worker-{SystemChance().name(8)}",
        hostname=host.hostname,
        pid=process.pid,
        pid_start=process.start,
        boot_id=host.boot_id,
        slots=slots,
        agents=agents,
        offers={agent: replace(offers.get(agent, c.Offer()), kind=COMMAND) for agent in agents},
        general=general,
    )


class Link(Protocol):
    """All that the SDK needs of an owner, wherever that is.  Any thread may call it."""

    actor: str
    """Whose word it is."""
    fault: Callable[[], MusterError | None] | None
    """Why this program does not go on with what it has begun; None: it works on nothing itself."""

    def send(self, asked: ClientRequest) -> tuple[int, bytes]:
        """(status, body).  Raises Unavailable where nobody answers."""

    async def send_async(self, asked: ClientRequest) -> tuple[int, bytes]: ...

    def enqueue(self, command: c.Enqueue) -> Enqueued: ...

    async def enqueue_async(self, command: c.Enqueue) -> Enqueued: ...

    def crew(self) -> HttpCrew:
        """The worker protocol."""


@functools.cache
def actor() -> str:
    import pwd

    try:
        return f"user:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"user:{os.getuid()}"


def project_at(folder: str | os.PathLike[str] | None) -> Project:
    """The project in this folder; without one that of the working directory, which begins there if need be."""
    if folder is not None:
        return Project(Path(folder).resolve())
    return find_project(Path.cwd(), os.environ) or Project(Path.cwd())


class ProjectLink:
    """To whoever owns the store of a project when something is asked."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.actor = actor()
        self.fault: Callable[[], MusterError | None] | None = None
        self._local = threading.local()

    def send(self, asked: ClientRequest) -> tuple[int, bytes]:
        """An owner in this process, else one that is up, else one for as long as this request."""
        return self._send(asked)

    def _send(self, asked: ClientRequest, *, sent: bool = False) -> tuple[int, bytes]:
        """`sent`: an owner that has not answered may have it already."""
        if (embedded := EMBEDDED.get(self.project.folder)) is not None:
            return embedded.request(asked)
        waiting, until_s = LockWait(self.project.owner_lock), time.monotonic() + asked.reply_s
        while True:
            try:
                if answers(self.project.socket):
                    connection = self._connection()
                    try:
                        return connection.request(asked)
                    finally:
                        sent = sent or connection.sent
                if holder(self.project.owner_lock) is None:
                    return self._alone(asked)
            except OwnerUnavailable as error:
                if not asked.repeatable or waiting.over():
                    raise _in_doubt(asked, error) if sent else error  # noqa: B904 it is the same one
            if waiting.over() or time.monotonic() > until_s:
                pid = holder(self.project.owner_lock)
                hangs = OwnerUnavailable(
                    f"process {pid} holds the store of {self.project.folder}, but does not answer",
                    "try again in a moment",
                )
                raise _in_doubt(asked, hangs) if sent else hangs
            time.sleep(_POLL_S)

    def _alone(self, asked: ClientRequest) -> tuple[int, bytes]:
        """While nobody is up only commands do anything, and nothing is waited for with the store held."""
        held = WAIT.search(asked.target)
        target = WAIT.sub(r"\g<1>0", asked.target)
        with direct(self.project) as owner:
            answer = owner.request(ClientRequest(asked.method, target, asked.body, asked.headers))
        if held is not None and answer[0] < 400:  # so that it is a number
            until_s = time.monotonic() + min(_NOBODY_S, float(unquote(held[2])))
            while (left_s := until_s - time.monotonic()) > 0 and not self._somebody_is_up():
                time.sleep(min(_NOBODY_LOOK_S, left_s))
        return answer

    def _somebody_is_up(self) -> bool:
        return self.project.folder in EMBEDDED or answers(self.project.socket)

    async def send_async(self, asked: ClientRequest) -> tuple[int, bytes]:
        embedded = EMBEDDED.get(self.project.folder)
        if embedded is not None:
            return await embedded.request_async(asked)
        if answers(self.project.socket):
            connections = AsyncConnections(self.project.socket)
            try:
                return await connections.request(asked)
            except OwnerUnavailable:
                if not asked.repeatable:
                    raise
                return await asyncio.to_thread(functools.partial(self._send, asked, sent=True))
            finally:
                await connections.close()
        return await asyncio.to_thread(self._send, asked)

    def enqueue(self, command: c.Enqueue) -> Enqueued:
        if (embedded := EMBEDDED.get(self.project.folder)) is not None:
            return embedded.enqueue(command)
        return _ENQUEUED.decode(answered(*self.send(_adding(command))))

    async def enqueue_async(self, command: c.Enqueue) -> Enqueued:
        return _ENQUEUED.decode(answered(*await self.send_async(_adding(command))))

    def crew(self) -> HttpCrew:
        embedded = EMBEDDED.get(self.project.folder)
        return embedded.crew() if embedded is not None else HttpCrew(self.project.socket)

    def _connection(self) -> Connection:
        found: Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = Connection(self.project.socket)
        return found


class _ServerWait:
    """For a server that is started again, or takes no more now: LONGEST_S where it has answered before, else
    STARTING_S, so that a wrong address is told soon."""

    def __init__(self, link: ServerLink, asked: ClientRequest) -> None:
        longest_s = LONGEST_S if link.known else STARTING_S
        longest_s = longest_s if link.timeout_s is None else link.timeout_s
        self._until_s = time.monotonic() + (longest_s if asked.repeatable else 0.0)
        self._rest_s = _AGAIN_FIRST_S
        self._url = link.server.url
        self._told = False

    def rest_s(self, told_s: float = 0.0) -> float | None:
        """Before it is asked again, no sooner than it says itself; None where there is no time for that."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0 or told_s > left_s:
            return None
        rest_s = max(told_s, min(self._rest_s, left_s))
        self._rest_s = min(self._rest_s * 2, _AGAIN_MOST_S)
        return rest_s

    def refused(self, status: int, data: bytes, told_s: float) -> float | None:
        """As `rest_s`, after an answer; None also for one that is final.  Who has to wait is told why, once."""
        if status not in _AGAIN_STATUSES or (rest_s := self.rest_s(told_s)) is None:
            return None
        if status == _FULL and not self._told:
            self._told = True
            left_s = self._until_s - time.monotonic()
            words = "%s takes no more now, and is asked again for %.0f s (timeout= of the client): %s"
            log.warning(words, self._url, left_s, error_of(status, data))
        return rest_s


class ServerLink:
    """To a server elsewhere.  Its tasks are not run by functions of this program."""

    def __init__(self, server: KnownServer, timeout_s: float | None = None) -> None:
        """`timeout_s` as `timeout` of `sdk.client`.  Raises BadInput for what is no address, or no time."""
        self._places = ServerPlaces(server.url, server.ca)
        if timeout_s is not None and not 0 <= timeout_s < math.inf:
            raise BadInput(f"timeout is {timeout_s}; nothing was asked", "a number of seconds, or None")
        self.server = server
        self.timeout_s = timeout_s
        self.actor = actor()
        self.fault: Callable[[], MusterError | None] | None = None
        self._local = threading.local()
        self.known = False
        """It has answered before."""

    def send(self, asked: ClientRequest) -> tuple[int, bytes]:
        """What may arrive twice is sent again while the server is away."""
        waiting = _ServerWait(self, asked)
        while True:
            try:
                status, data, told_s = self._once(self._named(asked))
                if (rest_s := waiting.refused(status, data, told_s)) is None:
                    self.known = True
                    return status, data
            except OwnerUnavailable:
                if (rest_s := waiting.rest_s()) is None:
                    raise
            time.sleep(rest_s)

    async def send_async(self, asked: ClientRequest) -> tuple[int, bytes]:
        waiting = _ServerWait(self, asked)
        while True:
            try:
                status, data, told_s = await self._once_async(self._named(asked))
                if (rest_s := waiting.refused(status, data, told_s)) is None:
                    self.known = True
                    return status, data
            except OwnerUnavailable:
                if (rest_s := waiting.rest_s()) is None:
                    raise
            await asyncio.sleep(rest_s)

    def _once(self, asked: ClientRequest) -> tuple[int, bytes, float]:
        found: Connection | None = getattr(self._local, "connection", None)
        if found is None:
            server = self.server
            found = self._local.connection = Connection(server.url, server.token, places=self._places)
        status, data = found.request(asked)
        return status, data, found.retry_after_s

    async def _once_async(self, asked: ClientRequest) -> tuple[int, bytes, float]:
        connections = AsyncConnections(self.server.url, self.server.token, places=self._places)
        try:
            status, data = await connections.request(asked)
            return status, data, connections.retry_after_s
        finally:
            await connections.close()

    def _named(self, asked: ClientRequest) -> ClientRequest:
        """Inside of a task it is the attempt's word."""
        if not self.server.attempt:
            return asked
        headers = {**asked.headers, "Muster-Attempt": self.server.attempt}
        return ClientRequest(
            asked.method,
            asked.target,
            asked.body,
            headers,
            reply_s=asked.reply_s,
            repeatable=asked.repeatable,
        )

    def enqueue(self, command: c.Enqueue) -> Enqueued:
        return _ENQUEUED.decode(answered(*self.send(_adding(command))))

    async def enqueue_async(self, command: c.Enqueue) -> Enqueued:
        return _ENQUEUED.decode(answered(*await self.send_async(_adding(command))))

    def crew(self) -> HttpCrew:
        return HttpCrew(self.server.url, self.server.token, self.server.ca)


def _in_doubt(asked: ClientRequest, error: OwnerUnavailable) -> OwnerUnavailable:
    """What has left and was not answered may be done all the same, once that owner goes on."""
    if asked.method == "GET":
        return error
    told = f"{error.message}; nobody knows whether it does what it was asked"
    hint = "look what is there before you ask again; with an idempotency_key no task is added twice"
    return OwnerUnavailable(told, hint)


def _adding(command: c.Enqueue) -> ClientRequest:
    """May arrive twice: what has no name of its own gets an idempotency key.  Raises BadInput."""
    tasks = tuple(
        one
        if one.key or one.idempotency_key
        else replace(one, idempotency_key=f"sdk-{secrets.token_hex(16)}")
        for one in command.tasks
    )
    try:
        body = msgspec.json.encode(replace(command, tasks=tasks))
    except UnicodeEncodeError as error:
        raise BadInput(f"invalid task: {error}; nothing was added") from error
    return ClientRequest("POST", "/api/v1/plans", body, JSON, repeatable=True)
