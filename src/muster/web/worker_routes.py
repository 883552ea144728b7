"""The worker protocol: one POST for each command, its body the command itself."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.model import commands as c
from muster.model.answers import Claimed, HeartbeatAnswer
from muster.ports.runtime import READY, orders_for
from muster.web.backend import Backend
from muster.web.http import Handler, JsonResponse, body, wait_s

PLAIN: dict[str, type[c.Command]] = {
    "register": c.Register,
    "deregister": c.Deregister,
    "start": c.Start,
    "progress": c.Progress,
    "checkpoint": c.SaveCheckpoint,
    "artifact": c.AddArtifact,
    "complete": c.Complete,
    "fail": c.Fail,
    "release": c.Release,
    "gone": c.ProcessesExited,
    "log": c.AppendLog,
    "suspect": c.Suspect,
    "account": c.Account,
    "declare": c.Declare,
}


def routes(backend: Backend) -> list[Route]:
    plain = [
        Route(f"/worker/v1/{name}", _plain(backend, shape), methods=["POST"]) for name, shape in PLAIN.items()
    ]
    return [
        *plain,
        Route("/worker/v1/claim", _claim(backend), methods=["POST"]),
        Route("/worker/v1/heartbeat", _heartbeat(backend), methods=["POST"]),
    ]


def _plain(backend: Backend, shape: type[c.Command]) -> Handler:
    async def handle(request: Request) -> Response:
        return JsonResponse(await backend.engine.execute(await body(request, shape)))

    return handle


def _claim(backend: Backend) -> Handler:
    """Holds the request until a task fits, `?wait=` seconds at most."""

    async def handle(request: Request) -> Response:
        command = await body(request, c.Claim)
        answers: list[Any] = []

        async def look() -> bool:
            # The first look may find an earlier claim with this request id; later ones need something ready.
            if answers and not await backend.reads.any_ready() and await _crew_runs(backend):
                return False
            answer = await backend.engine.execute(command)
            answers[:] = [answer]
            return isinstance(answer, Claimed) and bool(answer.jobs or answer.drain or answer.over)

        await backend.hold(READY, wait_s(request), look)
        return JsonResponse(answers[0] if answers else Claimed(jobs=()))

    return handle


async def _crew_runs(backend: Backend) -> bool:
    return (await backend.reads.meta("crew") or "RUNNING") == "RUNNING"


def _heartbeat(backend: Backend) -> Handler:
    """Renews at once; holds the answer while there are no orders, `?wait=` seconds at most, so that a cancel
    or a stop reaches the worker without delay."""

    async def handle(request: Request) -> Response:
        command = await body(request, c.Heartbeat)
        topic = orders_for(command.worker_id)
        with backend.wakeups.listen(topic) as listener:
            answer = await backend.engine.execute(command)
            hold_s = wait_s(request)
            if hold_s and _quiet(answer) and not backend.closing.is_set() and await listener.wait(hold_s):
                answer = await backend.engine.execute(command)
        return JsonResponse(answer)

    return handle


def _quiet(answer: object) -> bool:
    return (
        isinstance(answer, HeartbeatAnswer)
        and answer.known
        and not answer.drain
        and all(order.current and order.stop is None for order in answer.attempts)
    )
