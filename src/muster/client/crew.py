"""The worker protocol over HTTP: implements ports.crew."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakSet

import msgspec

from muster.client.api import error_of
from muster.client.http import REPLY_S, ClientRequest, Connection
from muster.client.remote import places_of
from muster.model import commands as c
from muster.model.answers import (
    Answer,
    Claimed,
    Done,
    HeartbeatAnswer,
    Moved,
    Registered,
    SecretsGiven,
    WorkerToken,
)
from muster.model.errors import Conflict, Forbidden, MusterError, NotAllowed, NotFound, Unavailable
from muster.model.far_git import GitFetch, GitMoved, GitPart, GitPublish, GitReceived, GitSend
from muster.model.file_names import readable
from muster.model.place import PlanPlace
from muster.ports.crew import COMMANDS

if TYPE_CHECKING:
    from muster.client.api import Transport
    from muster.client.remote import ServerUrl

log = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)

KEY_HEADER, SEEN_HEADER = "Muster-Worker", "Muster-Seen"
REPLY_S_MIN = 1.0
SERVER_FAILED = 500
GIT_S = 120.0
"""What git may take at the server, besides."""
_NAMES = {shape: name for name, shape in COMMANDS.items()}
_DECODERS: dict[type[Answer], msgspec.json.Decoder[Any]] = {
    answer: msgspec.json.Decoder(answer)
    for answer in (
        Registered,
        Claimed,
        HeartbeatAnswer,
        Moved,
        Done,
        PlanPlace,
        SecretsGiven,
        GitPart,
        GitReceived,
        GitMoved,
        WorkerToken,
    )
}
"""Made before there are threads: msgspec 0.22 crashes where two of them are the first to use one type."""


class _OwnToken(NamedTuple):
    """The worker's, over the network."""

    text: str
    renew_at_s: float
    """On this process's clock: it lasts as long again."""


class HttpCrew:
    """One connection for each thread that calls.

    A server elsewhere is told what the worker was started with only to register, and to renew the token of its
    own that it then has.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str],
        token: str = "",
        ca: str = "",
        *,
        key: str = "",
        reply_s: float = REPLY_S,
    ) -> None:
        """As for `client.http.Connection`: all threads are at the same one of several servers.

        `key` proves to a server elsewhere which host's workers these are.
        """
        self._key = {KEY_HEADER: key} if key else {}
        self._worker_id = ""
        self._own: _OwnToken | None = None
        self._seen = ""
        """The newest commit of the servers' that this worker was told of."""
        self._renewing = threading.Lock()
        self._not_taken_told = False
        self._failed_told: set[str] = set()
        """What a server has failed with: each is logged once."""
        self._places = places_of(os.fspath(socket), ca)
        self._socket = socket
        self._token = token
        self._reply_s = reply_s
        self._local = threading.local()
        self._lock = threading.Lock()
        self._connections: WeakSet[Connection] = WeakSet()

    @property
    def servers(self) -> str:
        """Their addresses, the present one first; empty for a socket."""
        return "" if self._places is None else self._places.text

    def close(self) -> None:
        """The calling thread's connection."""
        connection: Transport | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()

    def register(self, command: c.Register) -> Registered:
        target, body = _said(command)
        registered = self._ask("POST", target, body, Registered, headers=self._key)
        self._keep(command.worker_id, registered.own)
        if self._places is not None and self._places.several:
            # Whoever waits for longer for one that hangs comes to the next one when the lease is over.
            self._reply_s = min(self._reply_s, max(REPLY_S_MIN, registered.lease_s / 4))
        return registered

    def claim(self, command: c.Claim, *, wait_s: float) -> Claimed:
        return self._call(command, Claimed, wait_s)

    def heartbeat(self, command: c.Heartbeat, *, wait_s: float) -> HeartbeatAnswer:
        headers = {SEEN_HEADER: self._seen} if self._seen else None
        try:
            answer = self._call(command, HeartbeatAnswer, wait_s, headers=headers)
            self._seen = max(answer.seen, self._seen, key=_told_at_ms)
            return answer
        except Conflict:  # it has no token any more
            return HeartbeatAnswer(known=False, drain=True, attempts=())

    def report(self, command: c.AttemptCommand) -> Moved:
        return self._call(command, Moved)

    def report_all(self, commands: Sequence[c.AttemptCommand]) -> list[Moved | MusterError]:
        """As many answers, in order; a refusal is a value among them."""
        found: list[Moved | MusterError] = []
        for command in commands:
            try:
                found.append(self.report(command))
            except MusterError as error:
                found.append(error)
        return found

    def place(self, task_id: int) -> PlanPlace:
        return self._say("GET", f"/worker/v1/tasks/{task_id}/place", b"", PlanPlace)

    def secrets(self, command: c.AskSecrets) -> SecretsGiven:
        return self._call(command, SecretsGiven)

    def git_fetch(self, asked: GitFetch) -> GitPart:
        return self._git("fetch", asked, GitPart)

    def git_send(self, part: GitSend) -> GitReceived:
        return self._git("send", part, GitReceived)

    def git_publish(self, asked: GitPublish) -> GitMoved:
        return self._git("publish", asked, GitMoved)

    def _git(self, verb: str, asked: msgspec.Struct, answer: type[A]) -> A:
        return self._say("POST", f"/worker/v1/git/{verb}", msgspec.json.encode(asked), answer, GIT_S)

    def deregister(self, command: c.Deregister) -> None:
        self._call(command, Done)

    def _connect(self) -> Transport:
        made = Connection(self._socket, self._token, places=self._places)
        with self._lock:
            self._connections.add(made)
        return made

    def _call(
        self,
        command: c.Command,
        answer: type[A],
        wait_s: float = 0.0,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> A:
        target, body = _said(command)
        target += f"?wait={wait_s:g}" if wait_s else ""
        return self._say("POST", target, body, answer, wait_s, headers=headers)

    def _say(
        self,
        method: str,
        target: str,
        body: bytes,
        answer: type[A],
        wait_s: float = 0.0,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> A:
        """With the worker's own token, where it has one."""
        more = dict(headers or {})
        if self._places is not None and not self._worker_id:
            raise Unavailable("this worker is not registered yet; nothing was said", "try again in a moment")
        own = self._own
        if own is not None and time.monotonic() > own.renew_at_s:
            with suppress(NotAllowed, Unavailable):  # it counts for a while yet
                own = self._renew(own)
        if own is None:
            return self._ask(method, target, body, answer, wait_s, headers=more)
        try:
            return self._ask(method, target, body, answer, wait_s, headers=_bearer(own) | more)
        except Forbidden:
            raise
        except NotAllowed:  # this host has slept, or the server's keys are others by now
            own = self._renew(own)
        at = self._places.now if self._places is not None else None
        try:
            return self._ask(method, target, body, answer, wait_s, headers=_bearer(own) | more)
        except Forbidden:
            raise
        except NotAllowed as error:
            if at is not None and self._places is not None and self._places.several:
                self._places.leave(at)
                self._leave(at)
            raise self._not_taken(error) from error

    def _not_taken(self, error: NotAllowed) -> Unavailable:
        """One server has just given the token, for what the worker was started with, and another one does not
        take it, as where its clock is wrong: that ends no attempt."""
        if not self._not_taken_told:
            self._not_taken_told = True
            log.warning("a server does not take the token that was just given, and is asked again: %s", error)
        return Unavailable(f"the token that was just given is not taken: {error.message}", error.hint)

    def _renew(self, own: _OwnToken) -> _OwnToken:
        """Unless another thread has done so.  Raises Conflict for a worker that has ended, or that a store which
        was put back does not know; else as the server refuses it."""
        with self._renewing:
            if self._own is None or self._own is own:
                body = msgspec.json.encode({"workerId": self._worker_id})
                try:
                    given = self._ask("POST", "/worker/v1/token", body, WorkerToken, headers=self._key)
                except NotFound as error:
                    raise Conflict(error.message, error.hint) from error
                self._keep(self._worker_id, given)
            assert self._own is not None
            return self._own

    def _keep(self, worker_id: str, given: WorkerToken | None) -> None:
        self._worker_id = worker_id
        if given is not None:
            self._own = _OwnToken(given.token, time.monotonic() + given.token_s / 2)

    def _ask(
        self,
        method: str,
        target: str,
        body: bytes,
        answer: type[A],
        wait_s: float = 0.0,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> A:
        connection: Transport | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
        asked = ClientRequest(method, target, body, headers, reply_s=self._reply_s + wait_s)
        at = self._places.now if self._places is not None else None
        try:
            status, data = connection.request(asked)
        finally:
            if at is not None and self._places is not None and self._places.now is not at:
                self._leave(at)
        if status >= 400:
            raise self._refused(error_of(status, data), status)
        try:
            decoded: A = _DECODERS[answer].decode(data)
        except msgspec.DecodeError as error:  # a page of a proxy's, perhaps
            raise self._refused(error_of(status, data), status) from error
        return decoded

    def _refused(self, error: MusterError, status: int) -> MusterError:
        """Who has registered may hold finished work: a server that fails at a request, or a proxy that answers in
        its place, is asked again, for neither says anything of that work."""
        if type(error) is not MusterError or not (status >= SERVER_FAILED or self._worker_id):
            return error
        if error.message not in self._failed_told:
            self._failed_told.add(error.message)
            log.warning("the server is asked again: %s", error.message)
        return Unavailable(error.message, error.hint)

    def _leave(self, url: ServerUrl) -> None:
        """What other threads have asked that server is not waited for: the next one is asked."""
        with self._lock:
            for one in self._connections:
                one.leave(url)


def _said(command: c.Command) -> tuple[str, bytes]:
    """Where to, and what."""
    path = f"/worker/v1/{_NAMES[type(command)]}"
    try:
        return path, msgspec.json.encode(command)
    except UnicodeEncodeError:
        # Of some file's name, which an agent or the system has told.  It must not keep the rest from the server.
        return path, msgspec.json.encode(_readable(msgspec.to_builtins(command)))


def _readable(told: Any) -> Any:
    if isinstance(told, str):
        return readable(told)
    if isinstance(told, dict):
        return {_readable(name): _readable(value) for name, value in told.items()}
    return [_readable(value) for value in told] if isinstance(told, (list, tuple)) else told


def _told_at_ms(seen: str) -> int:
    """By the database's clock; nothing is older than all."""
    at_ms = seen.partition(".")[0]
    return int(at_ms) if at_ms.isascii() and at_ms.isdigit() else 0


def _bearer(own: _OwnToken) -> dict[str, str]:
    return {"Authorization": f"Bearer {own.text}"}
