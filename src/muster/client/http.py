"""HTTP over a unix socket, or to a server far away, in a few lines.

`http.client` brings ssl and email with it and costs 24 ms of CPU at import, which would break the CLI's budget
of 60 ms for a whole command.  `socket` makes enumerations of some hundred constants, 5 ms, so that this uses
the module beneath it; all of it costs 2.  It speaks to Muster's own server only: HTTP/1.1, keep-alive, bodies
with a content length.
"""

from __future__ import annotations

import _socket
import errno
import os
import sys
from contextlib import contextmanager, suppress

from muster.client.remote import ServerPlaces, ServersAsked, ServerUrl, connect, places_of
from muster.hosts.forked_child import has_ended, keep_from_children
from muster.model.errors import BadInput, OwnerUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

CONNECT_S = 5.0
REPLY_S = 30.0
SLOW_S = 5.0
"""Whoever waits at a terminal hears after so long that it is waited."""
PROBE_S = 2.0
_HEAD_BYTES_MAX = 64 << 10
_BEGIN = b"HTTP/1."
STREAM = "text/event-stream"
NOT_HERE = (502, 503, 504)
"""What a server answers that can do nothing now, or a proxy in its place: another one may."""
_CREDENTIALS_BYTES = 12
_SOCKET_PATH_MAX = 100
"""A unix socket's address holds 108 bytes on Linux, 104 on macOS."""


class Lost(Exception):
    """The connection broke before an answer began."""


class ClientRequest:
    """What is asked of an owner, and how long its answer may take."""

    def __init__(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        reply_s: float = REPLY_S,
        repeatable: bool | None = None,
    ) -> None:
        """`repeatable`: it does no harm when it arrives twice, and may wait for an owner; None: as a GET."""
        self.method = method
        self.target = target
        self.body = body
        self.headers = headers or {}
        self.reply_s = reply_s
        self.repeatable = method == "GET" if repeatable is None else repeatable

    def message(self, prefix: str = "", **usual: str) -> bytes:
        """As it goes over the wire.  `usual` are headers, where it has none of that name itself."""
        headers = {"Host": "muster", **usual, "Content-Length": len(self.body), **self.headers}
        lines = [
            f"{self.method} {prefix}{self.target} HTTP/1.1",
            *(f"{name}: {headers[name]}" for name in headers),
        ]
        return "\r\n".join([*lines, "", ""]).encode() + self.body


class Connection:
    """One keep-alive connection.  Not to be shared between threads, but for `hang_up`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        token: str = "",
        ca: str = "",
        *,
        places: ServerPlaces | None = None,
        slow: Callable[[str], None] | None = None,
    ) -> None:
        """`path` is that of a socket, or the URLs of a store's servers as for `ServerPlaces`, of which one at a
        time is asked, and told the `token`.  `places` are these, where others share them.  `slow` hears of one
        that takes long to answer.

        Raises BadInput.
        """
        self._path = os.fspath(path)
        self._places = places or places_of(self._path, ca)
        self._slow = slow
        self._round = ServersAsked(self._places, repeatable=False)
        self._token = token
        self._url: ServerUrl | None = None
        """Of the server that it is connected with."""
        self._socket: _socket.socket | None = None
        self._used = self._hung_up = False
        self.sent = False
        """The last request may have been taken, answered or not."""
        self.retry_after_s = 0.0
        """When its answer says that it is worth to ask again; 0: it does not."""
        keep_from_children(self, Connection.close)

    def hang_up(self) -> None:
        """From another thread: who waits for an answer now has OwnerUnavailable."""
        self._hung_up = True
        if (waiting := self._socket) is not None:
            with suppress(OSError):
                waiting.shutdown(_socket.SHUT_RDWR)

    def leave(self, url: ServerUrl) -> None:
        """From another thread, which has given up this server: who waits for it does so no more."""
        if self._url is url and (waiting := self._socket) is not None:
            with suppress(OSError):
                waiting.shutdown(_socket.SHUT_RDWR)

    def close(self) -> None:
        self._used = False
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def __del__(self) -> None:
        self.close()  # a thread that had one of its own has ended

    def open(self) -> bool:
        """False where nobody listens.  A socket that another user has left there is as good as none."""
        self._round = ServersAsked(self._places, repeatable=False)
        with suppress(OSError):
            self._socket = self._connect()
        return self._socket is not None

    def request(self, asked: ClientRequest) -> tuple[int, bytes]:
        """(status, body).  Raises OwnerUnavailable where nobody answers in time.

        Of several servers the next one is asked next, where one does not answer or can do nothing; what may be
        repeated is put to all of them.
        """
        several = self._places is not None and self._places.several
        self._round = ServersAsked(self._places, repeatable=asked.repeatable)
        while True:
            try:
                answer = self._request(asked)
                if not (several and answer[0] in NOT_HERE):
                    return answer
                self._lose()
                if not self._round.next():
                    return answer
            except OwnerUnavailable:
                if self._hung_up or not self._round.next():
                    raise

    def _request(self, asked: ClientRequest) -> tuple[int, bytes]:
        """A kept connection that the server has closed meanwhile is opened again once: commands are fenced or
        carry a request id, so that a repetition does no harm."""
        self.sent = False
        if self._used and not self._hung_up and (self._left or _is_over(self._socket)):
            self.close()
        kept = self._used
        try:
            return self._exchange(asked)
        except (Lost, OSError) as error:
            if not kept or self._hung_up or isinstance(error, TimeoutError):
                raise self._given_up(error) from error
            self.close()
        try:
            return self._exchange(asked)
        except (Lost, OSError) as error:
            raise self._given_up(error) from error

    def _given_up(self, error: Exception) -> OwnerUnavailable:
        self._lose(error)
        return nobody_at(self._path, error, self._round)

    @property
    def _left(self) -> bool:
        """Another thread has given up the server that this one is connected with."""
        return self._places is not None and self._url is not self._places.now

    def _lose(self, error: Exception | None = None) -> None:
        self.close()
        self._round.leave(self._url, error)

    def _connect(self) -> _socket.socket:
        if self._places is None:
            return _connect(self._path)
        last = OSError("it has no address")
        for url in self._round.untried():
            self._url = url
            try:
                return connect(url, CONNECT_S)
            except OSError as error:
                last = error
                self._round.leave(url, error)
        raise last

    def _exchange(self, asked: ClientRequest) -> tuple[int, bytes]:
        if self._socket is None:
            self._socket = self._connect()
        self._socket.settimeout(asked.reply_s)
        prefix = self._url.prefix if self._url else ""
        message = asked.message(prefix, **usual_headers(self._url, self._token))
        self.sent = True
        self._socket.sendall(message)
        answer = self._read(self._socket, self._first(self._socket, asked.reply_s))
        self._used = self._socket is not None
        return answer

    def _first(self, source: _socket.socket, reply_s: float) -> bytes:
        """What comes first.  Who asks for what may take long waits in silence."""
        if self._slow is None or not SLOW_S < reply_s <= REPLY_S:
            return source.recv(65536)
        source.settimeout(SLOW_S)
        try:
            return source.recv(65536)
        except TimeoutError:
            at = self._url.text if self._url else self._path
            self._slow(f"{at} has not answered for {SLOW_S:.0f} s; it is waited for {reply_s:.0f} s at most")
            source.settimeout(reply_s - SLOW_S)
            return source.recv(65536)
        finally:
            source.settimeout(reply_s)

    def _read(self, source: _socket.socket, part: bytes) -> tuple[int, bytes]:
        """`part` is what has come of it."""
        data = b""
        while b"\r\n\r\n" not in data:
            part = source.recv(65536) if data else part
            if not part:
                raise Lost("it closed the connection")
            data += part
            whole = b"\r\n\r\n" in data or len(data) <= _HEAD_BYTES_MAX
            if not whole or not data.startswith(_BEGIN[: len(data)]):
                raise Lost("what it answers is not HTTP")
        head, _, rest = data.partition(b"\r\n\r\n")
        status_line, *header_lines = head.decode("latin-1").split("\r\n")
        headers = {
            name.lower(): value.strip() for name, _, value in (line.partition(":") for line in header_lines)
        }
        self.retry_after_s = retry_after(headers)
        if self._url is not None:
            refuse_others(status_line, headers)
        in_chunks = "transfer-encoding" in headers
        if in_chunks and headers.get("content-type", "").startswith(STREAM):
            self.close()
            raise BadInput(
                "the answer goes on and on", f"curl -N --unix-socket {self._path} http://muster/..."
            )
        if in_chunks:
            rest, headers["content-length"] = _joined(source, rest), "0"
        unsaid = ends_with_the_connection(status_line, headers)
        missing = int(headers.get("content-length", "0")) - len(rest)
        parts = [rest]
        while missing > 0 or unsaid:
            part = source.recv(1 << 20 if unsaid else min(missing, 1 << 20))
            if not part and unsaid:
                self.close()
                break
            if not part:
                raise Lost("the answer was cut")
            parts.append(part)
            missing -= len(part)
        if headers.get("connection", "").lower() == "close":
            self.close()
        return int(status_line.split(" ", 2)[1]), b"".join(parts)


def ends_with_the_connection(status_line: str, headers: Mapping[str, str]) -> bool:
    """The body of an answer that does not say how long it is, as of a proxy that speaks HTTP/1.0."""
    told = "content-length" in headers or "transfer-encoding" in headers
    return not told and status_line.split(" ", 2)[1] not in ("204", "304")


def retry_after(headers: Mapping[str, str]) -> float:
    """0 also for a date: ours never says one."""
    said = headers.get("retry-after", "")
    return float(said) if said.isascii() and said.isdigit() and len(said) < 10 else 0.0


def _joined(source: _socket.socket, data: bytes) -> bytes:
    """A body in chunks, as proxies make them; `data` is its beginning.  Raises Lost."""

    def more() -> bytes:
        part = source.recv(1 << 16)
        if not part:
            raise Lost("the answer was cut")
        return part

    parts: list[bytes] = []
    while True:
        while b"\r\n" not in data:
            data += more()
        line, _, data = data.partition(b"\r\n")
        size = chunk_size(line)
        while len(data) < size + 2:
            data += more()
        if not size:
            return b"".join(parts)
        parts.append(data[:size])
        data = data[size + 2 :]


def chunk_size(line: bytes) -> int:
    """Raises Lost."""
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise Lost("what it answers is not HTTP") from None


def refuse_others(status_line: str, headers: Mapping[str, str]) -> None:
    """Raises Lost for what no server of Muster's answers: the address is wrong.  A proxy that does not reach it
    answers in its place, in whatever form."""
    if status_line.split(" ", 2)[1] in map(str, NOT_HERE):
        return
    if status_line[len(_BEGIN) + 2 :].lstrip().startswith("3"):
        raise Lost(f"it is elsewhere: {headers.get('location', '')[:200]}")
    if headers.get("content-type", "").startswith("text/html"):
        raise Lost(f"it answers with a page of HTML ({status_line[:80]}), so it is none")


def usual_headers(url: ServerUrl | None, token: str) -> dict[str, str]:
    named = {} if url is None else {"Host": url.at}
    return {**named, "Authorization": f"Bearer {token}"} if token else named


def nobody_at(place: str, error: Exception, asked: ServersAsked | None = None) -> OwnerUnavailable:
    """`asked`: why none of several does, where all of them were."""
    reason = _reason(error)
    if "://" in place:
        secret = "https://, or " if place.startswith("http://") and isinstance(error, (Lost, OSError)) else ""
        hint = f"look at its address ({secret}muster context list); on its machine: muster serve"
        said = f"{place.replace(',', ', ')}: {reason}"
        silent = asked.silent if asked is not None and asked.all_silent else {}
        reasons = {url: _reason(one) for url, one in silent.items()}
        if len(set(reasons.values())) > 1:
            said = ", ".join(f"{url.text} ({why})" for url, why in reasons.items())
        return OwnerUnavailable(f"no server answers at {said}", hint)
    return OwnerUnavailable(f"no owner answers at {place}: {reason}", "muster up")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _connect(path: str) -> _socket.socket:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.settimeout(CONNECT_S)
    try:
        _reach(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def _reach(connection: _socket.socket, path: str | os.PathLike[str]) -> None:
    """Raises OSError also where only a process is left to listen that was forked from the one that did: its copy
    of the socket lets callers in, and answers none of them."""
    with address(path) as reachable:
        connection.connect(reachable)
    if sys.platform == "linux":
        who = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, _CREDENTIALS_BYTES)
        pid = int.from_bytes(who[:4], sys.byteorder)
        if pid > 0 and has_ended(pid):  # 0: of another container
            raise ConnectionRefusedError(
                errno.ECONNREFUSED, f"process {pid}, which listened there, has ended"
            )


def _is_over(connection: _socket.socket | None) -> bool:
    """Whether the other end has closed it, so that it takes nothing any more."""
    if connection is None:
        return True
    connection.settimeout(0)
    try:
        return not connection.recv(1, _socket.MSG_PEEK)
    except (BlockingIOError, ValueError):  # of TLS nobody can tell
        return False
    except OSError:
        return True


@contextmanager
def address(path: str | os.PathLike[str]) -> Iterator[str]:
    """A name short enough for a socket's address, also where the folder lies deep."""
    if len(os.fsencode(path)) <= _SOCKET_PATH_MAX:
        yield os.fspath(path)
        return
    if sys.platform != "linux":
        raise OSError(f"the path of {os.fspath(path)} is too long for a socket; move the project up")
    folder, name = os.path.split(os.fspath(path))
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{fd}/{name}"
    finally:
        os.close(fd)


def answers(path: str | os.PathLike[str]) -> bool:
    """Whether a process listens on this socket.  One that another user has left there is as good as none."""
    probe = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        probe.settimeout(PROBE_S)
        _reach(probe, path)
    except (BlockingIOError, TimeoutError):
        return True  # it listens and is busy
    except OSError:
        return False
    finally:
        probe.close()
    return True
