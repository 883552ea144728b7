"""The owner's HTTP server."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from muster.model.errors import MusterError
from muster.web import (
    attempt_routes,
    audit_routes,
    claim_routes,
    crew_routes,
    plan_routes,
    pool_routes,
    store_routes,
    task_routes,
    worker_routes,
)
from muster.web.api_routes import Api
from muster.web.backend import Backend
from muster.web.http import on_bug, on_http_error, on_muster_error

CLOSE_S = 2
"""How long open requests may take to end once the owner is asked to."""


def build(backend: Backend) -> Starlette:
    return Starlette(
        routes=[
            *worker_routes.routes(backend),
            *attempt_routes.routes(backend),
            *audit_routes.routes(backend),
            *plan_routes.routes(backend),
            *store_routes.routes(backend),
            *claim_routes.routes(backend),
            *crew_routes.routes(backend),
            *pool_routes.routes(backend),
            *task_routes.routes(backend),
            *Api(backend).routes(),
        ],
        exception_handlers={
            MusterError: on_muster_error,
            HTTPException: on_http_error,
            Exception: on_bug,
        },
    )


class Server(uvicorn.Server):
    """uvicorn without signal handlers of its own: the owner decides when to end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def server(backend: Backend) -> Server:
    config = uvicorn.Config(
        build(backend),
        http="httptools",
        loop="asyncio",
        lifespan="off",
        proxy_headers=False,
        access_log=False,
        log_config=None,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=CLOSE_S,
    )
    return Server(config)


async def serve(made: Server, listening: socket.socket) -> None:
    """Answers on an already bound socket until `made.should_exit` is set."""
    await made.serve(sockets=[listening])
