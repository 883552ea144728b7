"""Everything that `muster` can do, from a program: work for agents, plans, and whatever the API has."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, Self, TypeVar, Unpack

import msgspec
from msgspec.structs import replace

from muster.config.contexts import server_in
from muster.model import commands as c
from muster.model.errors import BadInput
from muster.model.states import TaskStatus
from muster.model.views import EventView, Inbox, PlanView, StatusView, TaskView
from muster.sdk import asking
from muster.sdk.asking import HOLD_S, Asking
from muster.sdk.handles import AsyncHandle, Handle
from muster.sdk.links import Link, ProjectLink, ServerLink, project_at
from muster.sdk.options import AgentOptions, earlier_of, fields_of

T = TypeVar("T")

LOOSE_PLAN = "tasks"
"""Where tasks stand that name no plan."""


class _Told(msgspec.Struct):
    """What the owner tells of all, without what it tells of itself."""

    status: StatusView


_EVENTS = msgspec.json.Decoder(list[EventView])
_PLANS = msgspec.json.Decoder(list[PlanView])
_STATUS = msgspec.json.Decoder(_Told)
_INBOX = msgspec.json.Decoder(Inbox)


def _link(
    project: str | os.PathLike[str] | None, url: str, token: str, ca: str, timeout_s: float | None
) -> Link:
    """Raises BadInput for two at once, or what is no address; and what `server_in` raises."""
    if url and project is not None:
        raise BadInput("a project and a server both say who is asked", "name one of them")
    server = server_in(os.environ, url=url, here=project is not None)
    if server is None:
        return ProjectLink(project_at(project))
    server.token, server.ca = token or server.token, ca or server.ca
    return ServerLink(server, timeout_s)


class _Wishes:
    """What clients ask, without I/O."""

    def __init__(
        self,
        project: str | os.PathLike[str] | None = None,
        *,
        server: str = "",
        token: str = "",
        ca_file: str = "",
        timeout: float | None = None,
        link: Link | None = None,
    ) -> None:
        """`project` is the folder that holds `.muster/`; without it the server at the URL `server` (where several
        share a store, the URLs of all with commas between), or the one that MUSTER_SERVER or MUSTER_CONTEXT
        names, else the project of the working directory.

        Without a `token` the one that the command line would use.  `timeout`: for so many seconds a server that
        is away, full, or asked too often is asked again for what may arrive twice (what is read or added), no
        sooner than its `Retry-After` says; then the call raises Unavailable.  0: never; None: a minute, or 5 s
        where it has never answered.
        """
        self._link = link or _link(project, server, token, ca_file, timeout)

    def _spec(self, title: str, prompt: str, options: AgentOptions) -> Asking[tuple[str, c.Spec]]:
        spec = c.Spec(**{"title": title, "description": prompt, **fields_of(options, AgentOptions)})
        earlier: list[str] = []
        for one in earlier_of(options):
            number = yield from asking.task_id_of(one)
            earlier.append(str(number))
        return options.get("plan", LOOSE_PLAN), replace(spec, depends_on=tuple(earlier))

    def _adding(self, plan: str, spec: c.Spec) -> c.Enqueue:
        return c.Enqueue(plan=plan, source=None, tasks=(spec,), actor=self._link.actor)

    def _tasks(
        self, plan: str | None, status: Sequence[str], tags: Sequence[str], text: str
    ) -> Asking[list[TaskView]]:
        return (
            yield from asking.all_tasks(plan=plan, status=list(status), tags=list(tags), text=text or None)
        )

    def _events(self, after: int) -> Asking[list[EventView]]:
        return _EVENTS.decode((yield from asking.get("/api/v1/events", after=after, wait=f"{HOLD_S:g}")))

    def _plans(self) -> Asking[list[PlanView]]:
        return _PLANS.decode((yield from asking.get("/api/v1/plans")))

    def _status(self) -> Asking[StatusView]:
        return _STATUS.decode((yield from asking.get("/api/v1/status"))).status

    def _inbox(self) -> Asking[Inbox]:
        return _INBOX.decode((yield from asking.get("/api/v1/inbox")))


class Client(_Wishes):
    """Reaches the owner that is up, or is one itself for as long as a request takes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held open."""

    def add(self, title: str, prompt: str = "", **options: Unpack[AgentOptions]) -> Handle[Any]:
        """Work for an agent."""
        plan, spec = self._run(self._spec(title, prompt, options))
        added = self._link.enqueue(self._adding(plan, spec))
        return Handle(self._link, added.task_ids[0], Any)

    def handle(self, reference: str | int) -> Handle[Any]:
        """A task by its number, `plan/key`, the beginning of its key, `@last` or `@failed`.

        Raises NotFound, Ambiguous.
        """
        return Handle(self._link, self._run(asking.task_id_of(reference)), Any)

    def tasks(
        self,
        plan: str | None = None,
        status: Sequence[TaskStatus | str] = (),
        tags: Sequence[str] = (),
        text: str = "",
    ) -> list[TaskView]:
        """Those of a plan, in one of these statuses, that carry all of these tags, with this in title or name."""
        return self._run(self._tasks(plan, status, tags, text))

    def plans(self) -> list[PlanView]:
        """All plans, with how many of their tasks are where."""
        return self._run(self._plans())

    def status(self) -> StatusView:
        """The crew, its plans and agents."""
        return self._run(self._status())

    def inbox(self) -> Inbox:
        """What waits for a person."""
        return self._run(self._inbox())

    def events(self, after: int = 0) -> Iterator[EventView]:
        """Everything that happens, without end; `after` is the id of the last one known."""
        while True:
            found = self._run(self._events(after))
            yield from found
            after = found[-1].id if found else after

    def request(self, method: str, path: str, content: object = None) -> Any:
        """Any request of the API, like `muster api`; JSON in and out.  Raises what it is refused with."""
        return self._run(asking.call(method, path, content))

    def _run(self, wanted: Asking[T]) -> T:
        return asking.run(wanted, self._link.send)


class AsyncClient(_Wishes):
    """As Client, for asynchronous programs."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is held open."""

    async def add(self, title: str, prompt: str = "", **options: Unpack[AgentOptions]) -> AsyncHandle[Any]:
        plan, spec = await self._run(self._spec(title, prompt, options))
        added = await self._link.enqueue_async(self._adding(plan, spec))
        return AsyncHandle(self._link, added.task_ids[0], Any)

    async def handle(self, reference: str | int) -> AsyncHandle[Any]:
        return AsyncHandle(self._link, await self._run(asking.task_id_of(reference)), Any)

    async def tasks(
        self,
        plan: str | None = None,
        status: Sequence[TaskStatus | str] = (),
        tags: Sequence[str] = (),
        text: str = "",
    ) -> list[TaskView]:
        return await self._run(self._tasks(plan, status, tags, text))

    async def plans(self) -> list[PlanView]:
        return await self._run(self._plans())

    async def status(self) -> StatusView:
        return await self._run(self._status())

    async def inbox(self) -> Inbox:
        return await self._run(self._inbox())

    async def events(self, after: int = 0) -> AsyncIterator[EventView]:
        while True:
            found = await self._run(self._events(after))
            for event in found:
                yield event
            after = found[-1].id if found else after

    async def request(self, method: str, path: str, content: object = None) -> Any:
        return await self._run(asking.call(method, path, content))

    async def _run(self, wanted: Asking[T]) -> T:
        return await asking.run_async(wanted, self._link.send_async)
