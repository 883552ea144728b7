"""What answers which path.

A resource is one file: its bodies and queries as structs, and one function for each endpoint.

    routes = Routes()

    @routes.post("/api/v1/workers/{name}/stop")
    async def stop(web: Backend, name: str, body: StopBody) -> Answer: ...

The function's parameters say what it takes of a request: the parts of the path by their names (`{task_id:id}` is
a number), `query` and `body` as their structs, the whole `request`, and `who`: what the guard of these routes has
found out.  What it returns is sent as JSON; a Reply is sent unchanged.  What it says that it returns is what the
API's description says (web/openapi.py); where that is only an Answer or a Reply, `answer` says more.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import FunctionType
from typing import Any, TypeVar, get_type_hints

import msgspec
from msgspec.structs import replace

from muster.hosts.full_disk import NO_SPACE
from muster.hosts.trace import tracer
from muster.model import commands as c
from muster.model.access import Caller
from muster.model.answers import Moved
from muster.model.errors import CallerError, Forbidden, MusterError, NotFound, StoreFull
from muster.web.backend import Backend
from muster.web.http import (
    Reply,
    Request,
    body_of,
    decode_query,
    error_reply,
    if_seen,
    json_reply,
    refuse_doubles,
)
from muster.web.identity import FOR_ATTEMPTS, STEERING, as_said_by, decoded, refuse_attempts
from muster.web.refusals import as_page, wants_page
from muster.web.rights import refuse
from muster.web.worker_identity import WORKERS, refuse_other_workers

log = logging.getLogger(__name__)

Handler = Callable[..., Awaitable[object]]
H = TypeVar("H", bound=Handler)
Lazy = Callable[[], Any]

WORKSPACE = b"muster-workspace"
"""Header: which workspace who runs the store means, by its name."""
SHOWN_CHARS = 40
NUMBER_DIGITS_MAX = 16
"""A longer number is a 404, not an overflow: no store counts that far."""


IF_MATCH = {"If-Match": "The `ETag` of the task as it was looked at: 412 where it has changed since."}


class RouteWords(msgspec.Struct, frozen=True, kw_only=True):
    """What a description says of a route, where its function does not."""

    by: object
    """What has the words: the function, the method of Queries, or the command."""
    answer: Any = None
    """What is sent, or that by status; None: what the function returns."""
    body: Lazy | None = None
    """The shape of a body that the function reads itself."""
    headers: Mapping[str, str] = {}
    """Those that it reads, with what they are for."""


class Route:
    def __init__(
        self,
        path: str,
        handler: Handler,
        status: int,
        guard: Handler | None,
        body: Lazy | None,
        *,
        said: RouteWords,
        page: bool = False,
    ) -> None:
        """`page`: it is for a browser, and no part of the API."""
        self.said = said
        self.page = page
        self.guarded = guard is not None
        self.status = status
        self.parts = path.split("/")
        self._for_people = path.startswith(STEERING) and path not in FOR_ATTEMPTS
        self._for_workers = path.startswith(WORKERS)
        self._handler = handler
        self._guard = guard
        self._body = body
        self._names = [part[1:-1].partition(":") for part in self.parts if part.startswith("{")]

    # Built on first use: a command that is its own owner uses one or two routes.

    @functools.cached_property
    def _takes(self) -> dict[str, Any]:
        return get_type_hints(self._handler)

    @functools.cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any] | None:
        shape = self._body() if self._body is not None else self._takes.get("body")
        return None if shape is None else msgspec.json.Decoder(shape)

    @property
    def query(self) -> type[msgspec.Struct] | None:
        shape: type[msgspec.Struct] | None = self._takes.get("query")
        return shape

    @property
    def body(self) -> Any:
        """Its shape; None where the route takes none."""
        if self.said.body is not None:
            return self.said.body()
        return self._body() if self._body is not None else self._takes.get("body")

    @property
    def answers(self) -> dict[int, Any]:
        """By status, what is sent: a shape, None for nothing, bytes for what is no JSON."""
        said = self.said.answer
        if said is None:
            asked = self.said.by if isinstance(self.said.by, FunctionType) else self._handler
            said = get_type_hints(asked)["return"]
        return said if isinstance(said, dict) else {self.status: said}

    def prepare(self) -> None:
        decode_query("", self._takes.get("query"))
        _ = self._decoder

    async def answer(self, web: Backend, request: Request, values: list[str]) -> Reply:
        if self._for_people and request.method != "GET":
            await refuse_attempts(web, request)
        given: dict[str, Any] = {}
        for (name, _, kind), text in zip(self._names, values, strict=True):
            given[name] = _number(name, text) if kind == "id" else text
        if self._guard is not None:
            given = {"who": await self._guard(web, request, **given)}
        takes = self._takes
        if "query" in takes or (request.query and not self.page):
            looked_at = self.page and request.method == "GET"
            given["query"] = decode_query(
                request.query, takes.get("query"), of_page=self.page, looked_at=looked_at
            )
        if "request" in takes:
            given["request"] = request
        if self._decoder is not None:
            if not self._for_workers:  # our own programs say nothing twice
                refuse_doubles(request.body)
            body, request.body = decoded(request, self._decoder), b""  # no need to hold it twice
            given["body"] = await as_said_by(web, request, body)
            if self._for_workers:
                await refuse_other_workers(web, request, body)
        return json_reply(await self._handler(web, **given), self.status)


_EVERY = "GET /api/v1/openapi.json has every path"
_NEWER = (
    f"{_EVERY}; a muster that is newer than its server asks for what it lacks: muster api GET /api/v1/owner"
)
_LISTS = {
    "token_id": "muster token list",
    "webhook_id": "muster webhook list",
    "number": "muster agent allowed",
}
"""Which command lists what there is, by the names of numbers; of all others, tasks."""


def _number(name: str, text: str) -> int:
    """Raises NotFound."""
    if text.isascii() and text.isdigit() and len(text) <= NUMBER_DIGITS_MAX:
        return int(text)
    shown = text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
    raise NotFound(f"{shown} is the number of nothing", _LISTS.get(name, "muster task list"))


class Routes:
    """The routes of one resource."""

    def __init__(self, *, guard: Handler | None = None, pages: bool = False) -> None:
        """The guard sees each request before its body is decoded; what it returns is passed as `who`."""
        self._guard = guard
        self._pages = pages
        self.made: list[tuple[str, Route]] = []

    def get(
        self, path: str, *, answer: Any = None, headers: Mapping[str, str] | None = None
    ) -> Callable[[H], H]:
        return self._on("GET", path, answer=answer, headers=headers)

    def post(
        self,
        path: str,
        *,
        status: int = 200,
        body: Lazy | None = None,
        answer: Any = None,
        reads: Lazy | None = None,
        by: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Callable[[H], H]:
        """`body` gives its shape where the handler is one of several that are alike, and `by` the words for it;
        `reads` is the shape of a body that is decoded by the handler."""
        return self._on("POST", path, status, body, answer=answer, reads=reads, by=by, headers=headers)

    def patch(
        self,
        path: str,
        *,
        answer: Any = None,
        reads: Lazy | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Callable[[H], H]:
        return self._on("PATCH", path, answer=answer, reads=reads, headers=headers)

    def put(self, path: str, *, answer: Any = None, reads: Lazy | None = None) -> Callable[[H], H]:
        return self._on("PUT", path, answer=answer, reads=reads)

    def delete(self, path: str, *, answer: Any = None) -> Callable[[H], H]:
        return self._on("DELETE", path, answer=answer)

    def command(
        self, path: str, shape: type[c.Command], *names: str, status: int = 200, answer: Any = Moved
    ) -> None:
        """The command itself is the body; or these fields of it are, and the path gives the rest."""

        async def execute(web: Backend, body: Any, **of: Any) -> object:
            given = shape(**of, **{name: getattr(body, name) for name in names}) if names else body
            return await web.engine.execute(given)

        async def execute_if(web: Backend, request: Request, body: Any, task_id: int) -> object:
            fields = {name: getattr(body, name) for name in names}
            return await web.engine.execute(shape(task_id=task_id, if_seen=if_seen(request), **fields))

        body = lambda: body_of(shape, names) if names else shape  # noqa: E731
        steers = issubclass(shape, c.PersonCommand)
        headers = IF_MATCH if steers else None
        made = self.post(path, status=status, body=body, answer=answer, by=shape, headers=headers)
        made(execute_if if steers else execute)

    def query(self, path: str, query: Callable[..., Awaitable[object]]) -> None:
        """A method of Queries, which takes the parts of the path."""

        async def ask(web: Backend, **of: Any) -> object:
            return await query(web.queries, *of.values())

        self._on("GET", path, by=query)(ask)

    def _on(
        self,
        method: str,
        path: str,
        status: int = 200,
        body: Lazy | None = None,
        *,
        answer: Any = None,
        reads: Lazy | None = None,
        by: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Callable[[H], H]:
        def add(handler: H) -> H:
            said = RouteWords(by=by or handler, answer=answer, body=reads, headers=headers or {})
            route = Route(path, handler, status, self._guard, body, said=said, page=self._pages)
            self.made.append((method, route))
            return handler

        return add


class _Node:
    """A part of a path, and what may follow it."""

    def __init__(self) -> None:
        self.literal: dict[str, _Node] = {}
        self.any: _Node | None = None
        self.routes: dict[str, Route] = {}
        """By method, of the path that ends here."""


class Application:
    """All routes, before one backend."""

    def __init__(self, backend: Backend, resources: Iterable[Routes]) -> None:
        self._backend = backend
        self._root = _Node()
        self._routes: list[Route] = []
        self._literal: dict[str, _Node] = {}
        """By their whole paths, those without a variable part: most of what comes often."""
        for resource in resources:
            for method, route in resource.made:
                node = self._root
                for part in route.parts:
                    if part.startswith("{"):
                        node.any = node = node.any or _Node()
                    else:
                        node = node.literal.setdefault(part, _Node())
                assert method not in node.routes, f"two routes for {method} {'/'.join(route.parts)}"
                node.routes[method] = route
                self._routes.append(route)
                if not any(part.startswith("{") for part in route.parts):
                    self._literal["/".join(route.parts)] = node

    async def _backend_for(self, request: Request) -> Backend:
        """That of the workspace which is asked.  Raises Forbidden, and NotFound for one that is not there."""
        who = request.identity
        name = request.header(WORKSPACE) if request.headers else ""
        if who is not None:
            refuse(who, request.method, request.parts)
            if name:
                await self._refuse_other(who, name)
            return self._backend.of(who.workspace_id)
        if not name:
            return self._backend
        for workspace in await self._backend.reads.workspaces():
            if workspace.name == name:
                return self._backend.of(workspace.id)
        raise NotFound(f"there is no workspace {name[:100]!r}", "muster workspace list")

    async def _refuse_other(self, who: Caller, name: str) -> None:
        """Raises Forbidden where that is not the token's own workspace."""
        own = next(one.name for one in await self._backend.reads.workspaces() if one.id == who.workspace_id)
        if own != name:
            raise Forbidden(
                f"your token is of workspace {own}, not of {name[:100]!r}; nothing was changed",
                "use a token of that one: muster login URL, muster --context NAME",
            )

    def prepare(self) -> None:
        """For an owner with threads: msgspec 0.22 crashes where two of them are the first to use one type."""
        for route in self._routes:
            route.prepare()

    async def answer(self, request: Request) -> Reply:
        request.app = self.answer
        reply = await self._traced(request)
        if reply.status >= 400 and wants_page(request):
            return as_page(request, reply)
        return reply

    async def _traced(self, request: Request) -> Reply:
        tracing = tracer()
        if tracing is None:
            return await self._answer(request)
        found = self._found(request)
        route = found and found[0].routes.get(request.method)
        path = "/".join(route.parts) if route else ""
        parent = request.header(b"traceparent")
        name = f"{request.method} {path}".rstrip()
        with tracing.span(name, parent=parent, http__request__method=request.method) as span:
            reply = await self._answer(request)
            span.say(
                http__route=path,
                http__response__status_code=reply.status,
                muster__request__id=request.id,
            )
            return reply

    def _found(self, request: Request) -> tuple[_Node, list[str]] | None:
        """As `_walk`, which comes to the same node for a path without a variable part."""
        literal = self._literal.get(request.path)
        return (literal, []) if literal is not None else _walk(self._root, request.parts, 0)

    async def _answer(self, request: Request) -> Reply:
        try:
            found = self._found(request)
            if found is None:
                hint = "" if wants_page(request) else _NEWER  # its page leads to the overview
                raise NotFound(f"there is nothing at {request.path[:200]}", hint)
            node, values = found
            route = node.routes.get(request.method)
            if route is None:
                methods = ", ".join(sorted(node.routes))
                refused = CallerError(f"{request.path} takes {methods}, not {request.method}", _EVERY)
                allowed = methods.replace("GET", "GET, HEAD")
                return replace(error_reply(refused, 405), headers=(("allow", allowed),))
            return await route.answer(await self._backend_for(request), request, values)
        except MusterError as error:
            return error_reply(error)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in NO_SPACE:
                return error_reply(_no_room(error))
            log.exception("%s %s failed", request.method, request.path)
            what = f"internal error: {type(error).__name__}: {error}"
            return error_reply(MusterError(what, "see .muster/muster.log"))


def _no_room(error: OSError) -> StoreFull:
    """For whatever a request has made us write: who asks waits and asks again, as where the store has no room."""
    host, at = os.uname().nodename, f": {error.filename}" if error.filename else ""
    told = f"the disk of the server ({host}) is full{at}; nothing was kept"
    return StoreFull(told, f"free some room on {host}")


def _walk(node: _Node, parts: list[str], at: int) -> tuple[_Node, list[str]] | None:
    """The node of a path and the values of its variable parts; a literal part comes before a variable one."""
    if at == len(parts):
        return (node, []) if node.routes else None
    literal = node.literal.get(parts[at])
    if literal is not None and (found := _walk(literal, parts, at + 1)) is not None:
        return found
    if node.any is not None and parts[at] and (found := _walk(node.any, parts, at + 1)) is not None:
        return found[0], [parts[at], *found[1]]
    return None
