"""The owner's HTTP server."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from muster.web.app import build
from muster.web.backend import Backend

CLOSE_S = 2
"""How long open requests may take to end once the owner is asked to."""


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
