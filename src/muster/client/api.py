"""The API as the command line uses it: JSON in, JSON out, errors as the classes that they were raised with."""

from __future__ import annotations

import json
import time

from muster.client.http import NOT_HERE, REPLY_S, ClientRequest
from muster.model.errors import BadInput, MusterError, OwnerUnavailable, Unavailable, from_wire
from muster.model.numbers import PAGE_BYTES

PAGE_ROWS = 500
_BACKOFF_FIRST_S = 0.1
_BACKOFF_CAP_S = 2.0

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any, Protocol, TypeVar

    T = TypeVar("T")

    class Transport(Protocol):
        """`client.http.Connection`, or an owner within this very process."""

        def request(self, asked: ClientRequest) -> tuple[int, bytes]: ...

        def close(self) -> None: ...


class Api:
    """Raises what the server raised, and OwnerUnavailable where none answers."""

    def __init__(
        self,
        transport: Transport,
        headers: Mapping[str, str] | None = None,
        *,
        reply_s: float = REPLY_S,
    ) -> None:
        self._transport = transport
        self._reply_s = reply_s
        self._headers = dict(headers or {})

    def close(self) -> None:
        self._transport.close()

    def of_workspace(self, name: str) -> Api:
        """The same connection, for another workspace than the usual one."""
        headers = {**self._headers, "Muster-Workspace": name}
        return Api(self._transport, headers, reply_s=self._reply_s)

    def get(self, path: str, query: Mapping[str, Any] | None = None, *, wait_s: float = 0.0) -> Any:
        """`query` values of None are left out; a list is repeated; `wait` (seconds) holds the answer.

        `wait_s` is for what takes long.
        """
        given = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"{path}?{_query(given)}" if given else path
        return self._call("GET", target, None, self._reply_s + wait_s + float(given.get("wait", 0)))

    def rows(self, path: str, query: Mapping[str, Any]) -> Iterator[Any]:
        """A list of any length, asked for page by page: one large answer is memory that its owner keeps."""
        after = 0
        while True:
            page, data = self._page(path, {**query, "after": after, "limit": PAGE_ROWS})
            yield from page
            if len(page) < PAGE_ROWS and len(data) < PAGE_BYTES:
                return
            after = page[-1]["id"]

    def _page(self, path: str, query: Mapping[str, Any]) -> tuple[list[Any], bytes]:
        """With its JSON: a page of long rows has fewer of them."""
        given = {name: value for name, value in query.items() if value is not None}
        data = self.fetch(f"{path}?{_query(given)}")
        return _decoded(data), data

    def post(self, path: str, content: Any, *, wait_s: float = 0.0) -> Any:
        return self._call("POST", path, content, self._reply_s + wait_s)

    def fetch(self, path: str) -> bytes:
        """What is no JSON."""
        status, data = self._transport.request(
            ClientRequest("GET", path, b"", self._headers, reply_s=self._reply_s)
        )
        if status >= 400:
            raise error_of(status, data)
        return data

    def call(self, method: str, path: str, content: Any) -> Any:
        """Any request; None where the answer is empty."""
        return self._call(method, path, content, self._reply_s)

    def _call(self, method: str, target: str, content: Any, reply_s: float) -> Any:
        body = b"" if content is None else json.dumps(content).encode()
        headers = {"Content-Type": "application/json", **self._headers}
        asked = ClientRequest(method, target, body, headers, reply_s=reply_s)
        status, data = self._transport.request(asked)
        if status >= 400:
            raise error_of(status, data)
        return _decoded(data) if data else None


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        raise OwnerUnavailable(
            "what answers is no Muster server: it sends no JSON",
            "look at its address: muster context list",
        ) from None


def error_of(status: int, data: bytes) -> MusterError:
    try:
        problem = json.loads(data)
        return from_wire(problem["code"], problem["detail"], problem["hint"])
    except (ValueError, KeyError, TypeError):
        if status in NOT_HERE:
            return OwnerUnavailable(
                f"the server is down: the proxy before it answers {status}, and does not reach it",
                "on the server's machine: muster serve",
            )
        return MusterError(f"the owner answered {status}: {data[:200]!r}", "see .muster/muster.log")


def patiently(call: Callable[[], T], away_s: float, say: Callable[[str], None] | None = None) -> T:
    """Repeats `call` while its owner is away, with backoff.  Raises the last Unavailable after `away_s`."""
    deadline_s = time.monotonic() + away_s
    delay_s = _BACKOFF_FIRST_S
    while True:
        try:
            return call()
        except Unavailable as error:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise
            if say is not None:
                say(f"{error.message}; trying for {left_s:.0f} s")
                say = None
        time.sleep(min(delay_s, left_s))
        delay_s = min(delay_s * 2, _BACKOFF_CAP_S)


def path_of(resource: str, name: str, action: str = "") -> str:
    return f"/api/v1/{resource}/{quoted(name)}" + (f"/{action}" if action else "")


def plan_path(name: str, action: str = "") -> str:
    return path_of("plans", name, action)


def task_path(task_id: int, action: str = "") -> str:
    return path_of("agent-tasks", str(task_id), action)


def worker_path(worker_id: str, action: str = "") -> str:
    return path_of("workers", worker_id, action)


def quoted(text: str) -> str:
    """`text` as one part of an address.  Most are plain, and `urllib` costs a command 4 ms.

    Raises BadInput where it holds bytes that are not UTF-8, as an argument may.
    """
    if text.isascii() and text.replace("-", "0").replace("_", "0").isalnum():
        return text
    from urllib.parse import quote

    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise BadInput(f"{text!a} is not UTF-8, so nothing is called that", "muster task list") from None


def _query(given: Mapping[str, Any]) -> str:
    lists = ((name, value if isinstance(value, (list, tuple)) else [value]) for name, value in given.items())
    return "&".join(f"{quoted(name)}={quoted(str(value))}" for name, values in lists for value in values)
