"""A task that was added: its result, its events, and what may be done with it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, TypeVar, cast

from muster.model.states import FINAL
from muster.model.views import EventView, TaskDetail, TaskView
from muster.sdk import asking
from muster.sdk.asking import HOLD_S, Asking
from muster.sdk.links import Link

R = TypeVar("R")
T = TypeVar("T")


class _Steering:
    def __init__(self, link: Link, task_id: int, kind: Any) -> None:
        self._link = link
        self.id = task_id
        self._kind = kind

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id})"

    def _post(self, action: str, **content: Any) -> Asking[None]:
        yield from asking.post(asking.path_of(self.id, action), actor=self._link.actor, **content)


class Handle(_Steering, Generic[R]):
    """A task; `R` is what it returns."""

    def result(self, timeout: float | str | None = None) -> R:
        """Once it is done; `timeout` in seconds or as `20m`.

        Raises TaskFailed, TaskCancelled, and WaitTimeout where it is not done in time: it goes on then.
        WorkerBroken where the app's worker in this program has ended by a fault.
        """
        return cast("R", self._run(asking.result(self.id, self._kind, timeout, self._link.fault)))

    def task(self) -> TaskView:
        """How it stands; `why` is that in a sentence."""
        return self._run(asking.view(self.id))

    def detail(self) -> TaskDetail:
        """With its attempts and events."""
        return self._run(asking.detail(self.id))

    def events(self, after: int = 0) -> Iterator[EventView]:
        """Everything that happens to it, until it has ended; `after` is the id of the last one known."""
        while True:
            found = self._run(asking.news(self.id, after, HOLD_S))
            yield from found
            if found:
                after = found[-1].id
                if found[-1].new_status in FINAL:
                    return

    def cancel(self, reason: str = "") -> None:
        """No completion counts any more once this returns."""
        self._run(self._post("cancel", reason=reason))

    def retry(self, note: str = "", *, fresh: bool = False) -> None:
        """Again, after its end; from its last checkpoint, unless it is to be `fresh`."""
        self._run(self._post("retry", note=note, fresh=fresh))

    def pause(self) -> None:
        """Until `resume`; a running attempt saves a checkpoint and stops."""
        self._run(self._post("pause"))

    def resume(self, note: str = "") -> None:
        """After a pause; `note` is for its next attempt."""
        self._run(self._post("resume", note=note))

    def tell(self, text: str) -> None:
        """Something that whoever works on it should know."""
        self._run(self._post("tell", text=text))

    def answer(self, text: str) -> None:
        """To what its agent has asked."""
        self._run(self._post("answer", text=text))

    def _run(self, wanted: Asking[T]) -> T:
        return asking.run(wanted, self._link.send)


class AsyncHandle(_Steering, Generic[R]):
    """As Handle, for asynchronous programs."""

    async def result(self, timeout: float | str | None = None) -> R:  # noqa: ASYNC109 - the owner is told it
        return cast("R", await self._run(asking.result(self.id, self._kind, timeout, self._link.fault)))

    async def task(self) -> TaskView:
        return await self._run(asking.view(self.id))

    async def detail(self) -> TaskDetail:
        return await self._run(asking.detail(self.id))

    async def events(self, after: int = 0) -> AsyncIterator[EventView]:
        while True:
            found = await self._run(asking.news(self.id, after, HOLD_S))
            for event in found:
                yield event
            if found:
                after = found[-1].id
                if found[-1].new_status in FINAL:
                    return

    async def cancel(self, reason: str = "") -> None:
        await self._run(self._post("cancel", reason=reason))

    async def retry(self, note: str = "", *, fresh: bool = False) -> None:
        await self._run(self._post("retry", note=note, fresh=fresh))

    async def pause(self) -> None:
        await self._run(self._post("pause"))

    async def resume(self, note: str = "") -> None:
        await self._run(self._post("resume", note=note))

    async def tell(self, text: str) -> None:
        await self._run(self._post("tell", text=text))

    async def answer(self, text: str) -> None:
        await self._run(self._post("answer", text=text))

    async def _run(self, wanted: Asking[T]) -> T:
        return await asking.run_async(wanted, self._link.send_async)
