"""What a client asks of an owner, without I/O: generators that yield what they need and are told it.

The same ones serve a client that blocks and one that is asynchronous.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from muster.client.api import error_of
from muster.client.http import REPLY_S, ClientRequest
from muster.model.durations import parse_duration
from muster.model.errors import BadInput, MusterError, NotFound, Unavailable, WaitTimeout
from muster.model.numbers import PAGE_BYTES
from muster.model.states import FINAL, TaskStatus
from muster.model.task import was_cancelled
from muster.model.views import EventView, TaskDetail, TaskView
from muster.sdk.errors import TaskCancelled, TaskEnded, TaskFailed
from muster.sdk.values import convert, encode

T = TypeVar("T")

HOLD_S = 25.0
"""How long a request is held by the owner while there is no news."""
FAULT_LOOK_S = 1.0
"""The same where what works may be this program: a fault of it is to be told soon."""
LATE_S = 5.0
"""An owner that is up answers within this, on a busy machine too."""
AWAY_S = 0.2
"""Between two tries while no owner answers."""
JSON = {"Content-Type": "application/json"}
_EVENTS = msgspec.json.Decoder(list[EventView])
_DETAIL = msgspec.json.Decoder(TaskDetail)
_VIEWS = msgspec.json.Decoder(list[TaskView])


class Rest(NamedTuple):
    """Wait for so long."""

    seconds: float


class _Found(NamedTuple, Generic[T]):
    value: T


Asking = Generator[ClientRequest | Rest, Any, T]
Send = Callable[[ClientRequest], tuple[int, bytes]]
SendAsync = Callable[[ClientRequest], Awaitable[tuple[int, bytes]]]


def run(asking: Asking[T], send: Send) -> T:
    """Raises what the owner has raised."""
    answer: bytes | MusterError | None = None
    while not isinstance(wanted := _resumed(asking, answer), _Found):
        answer = None
        if isinstance(wanted, Rest):
            time.sleep(wanted.seconds)
            continue
        try:
            answer = answered(*send(wanted))
        except MusterError as refused:
            answer = refused
    found: T = wanted.value
    return found


async def run_async(asking: Asking[T], send: SendAsync) -> T:
    """As `run`."""
    answer: bytes | MusterError | None = None
    while not isinstance(wanted := _resumed(asking, answer), _Found):
        answer = None
        if isinstance(wanted, Rest):
            await asyncio.sleep(wanted.seconds)
            continue
        try:
            answer = answered(*await send(wanted))
        except MusterError as refused:
            answer = refused
    found: T = wanted.value
    return found


def _resumed(asking: Asking[T], answer: bytes | MusterError | None) -> ClientRequest | Rest | _Found[T]:
    """What it needs next, or what it has found."""
    try:
        wanted = asking.throw(answer) if isinstance(answer, MusterError) else asking.send(answer)
        if isinstance(wanted, ClientRequest):
            f"{wanted.method} {wanted.target}".encode()
        return wanted
    except StopIteration as stop:
        return _Found(stop.value)
    except UnicodeEncodeError as error:  # half of a surrogate pair, which no text in UTF-8 holds
        raise BadInput(f"what is asked for cannot be sent: {error}; nothing was changed") from error


def answered(status: int, data: bytes) -> bytes:
    if status >= 400:
        raise error_of(status, data)
    return data


def post(path: str, **content: Any) -> Asking[Any]:
    return call("POST", path, content)


def call(method: str, path: str, content: object = None) -> Asking[Any]:
    """Any request of the API; None where the answer is empty."""
    body = b"" if content is None else encode(content, f"the body for {path}").encode()
    data = yield ClientRequest(method, path, body, JSON)
    return json.loads(data) if data else None


def get(path: str, *, repeatable: bool = True, late_s: float = REPLY_S, **query: Any) -> Asking[bytes]:
    """An answer may come `late_s` after it is due."""
    given = {name: value for name, value in query.items() if value is not None}
    target = f"{path}?{urlencode(given, doseq=True)}" if given else path
    data: bytes = yield ClientRequest(
        "GET", target, reply_s=late_s + float(given.get("wait", 0)), repeatable=repeatable
    )
    return data


def detail(task_id: int) -> Asking[TaskDetail]:
    return _DETAIL.decode((yield from get(f"/api/v1/agent-tasks/{task_id}")))


_PAGE = 500


def all_tasks(**query: Any) -> Asking[list[TaskView]]:
    """Page by page; one of long texts has fewer tasks."""
    found: list[TaskView] = []
    while True:
        after = found[-1].id if found else 0
        data = yield from get("/api/v1/agent-tasks", **query, after=after, limit=_PAGE)
        page = _VIEWS.decode(data)
        found += page
        if len(page) < _PAGE and len(data) < PAGE_BYTES:
            return found


def task_id_of(reference: str | int) -> Asking[int]:
    """Raises NotFound, Ambiguous."""
    if isinstance(reference, int):
        return reference
    found = json.loads((yield from get("/api/v1/resolve", ref=reference)))
    number: int = found["taskId"]
    return number


def view(task_id: int, *, repeatable: bool = True, late_s: float = REPLY_S) -> Asking[TaskView]:
    """Raises NotFound."""
    data = yield from get("/api/v1/agent-tasks", id=task_id, repeatable=repeatable, late_s=late_s)
    found = _VIEWS.decode(data)
    if not found:
        raise NotFound(f"there is no task {task_id}", "muster task list")
    return found[0]


def news(task_id: int, after: int, wait_s: float, late_s: float = REPLY_S) -> Asking[list[EventView]]:
    """Its events after the event of this number, held while there are none; none where no owner answers."""
    try:
        data = yield from get(
            "/api/v1/events",
            repeatable=False,
            late_s=late_s,
            task=task_id,
            after=after,
            wait=f"{wait_s:g}",
        )
    except Unavailable:
        yield Rest(min(AWAY_S, wait_s))
        return []
    return _EVENTS.decode(data)


def result(
    task_id: int,
    kind: Any,
    timeout: float | str | None,
    fault: Callable[[], MusterError | None] | None = None,
) -> Asking[Any]:
    """Raises TaskFailed, TaskCancelled, WaitTimeout, and the `fault` of this program while it is not done.

    OwnerUnavailable where nobody answers at the end of the time, LATE_S after it or a little more.
    """
    deadline_s = math.inf if timeout is None else time.monotonic() + parse_duration(timeout)
    hold_s = HOLD_S if fault is None else FAULT_LOOK_S
    after = 0
    while True:
        left_s = deadline_s - time.monotonic()
        wait_s = min(hold_s, max(0.0, left_s))
        found = yield from news(task_id, after, wait_s, late_s=min(REPLY_S, max(LATE_S, left_s - wait_s)))
        if found:
            after = found[-1].id
            if found[-1].new_status in FINAL:
                return outcome((yield from detail(task_id)), kind)
        elif fault is not None and (broken := fault()) is not None:
            raise broken
        elif left_s <= 0:
            now = yield from view(task_id, repeatable=False, late_s=LATE_S)
            why = f"{now.why or now.status}"
            raise WaitTimeout(
                f"task {name_of(now)} is not done: {why}{'' if 'goes on' in why else '; it goes on'}",
                f"wait longer, or look: muster why {task_id}",
            )


def outcome(found: TaskDetail, kind: Any) -> Any:
    """Its result as `kind`.  Raises TaskFailed, TaskCancelled."""
    task = found.task
    if task.status is TaskStatus.COMPLETED or (task.status is TaskStatus.ARCHIVED and not task.error):
        return None if found.result is None else _result(found, kind)
    cancelled = task.status is TaskStatus.CANCELLED or was_cancelled(task.error)
    ended: type[TaskEnded] = TaskCancelled if cancelled else TaskFailed
    kept = f"muster task show {task.id}; muster task retry {task.id}"
    word = "was cancelled" if cancelled else "failed"
    raise ended(f"task {name_of(task)} {word}: {task.error}", kept, task=task, attempts=found.attempts)


def _result(found: TaskDetail, kind: Any) -> Any:
    """Raises BadInput where it is of another type, as one of an older program may be."""
    assert found.result is not None
    try:
        return convert(json.loads(found.result), kind)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"the result of task {name_of(found.task)} is not what its function says that it returns: {error}; "
            "it is kept",
            f"muster task show {found.task.id}",
        ) from error


def name_of(task: TaskView) -> str:
    return f"{task.plan}/{task.key}"


def path_of(task_id: int, action: str) -> str:
    return f"/api/v1/agent-tasks/{task_id}/{quote(action)}"
