"""An owner for the length of one command."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from muster.app.core import Owner
from muster.config.load import load_config
from muster.config.project import Project
from muster.config.settings import Config
from muster.ports.runtime import EVENTS
from muster.web.app import build


class DirectTransport:
    """An owner for the length of one command, in this process: no socket, no workers."""

    def __init__(self, project: Project, config: Config) -> None:
        self._loop = asyncio.new_event_loop()
        self._owner = Owner(project, config)
        try:
            self._loop.run_until_complete(self._owner.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        self._app = self._loop.run_until_complete(self._build())
        self._stack = contextlib.ExitStack()
        self._written = self._stack.enter_context(self._owner.wakeups.listen(EVENTS))

    async def _build(self) -> Any:
        return build(self._owner.backend(0, long_lived=False))

    def request(
        self,
        method: str,
        target: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        reply_s: float = 0.0,  # noqa: ARG002 - nobody else can be slow here
    ) -> tuple[int, bytes]:
        return self._loop.run_until_complete(self._ask(method, target, body, headers or {}))

    async def _ask(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }
        status, parts = 500, list[bytes]()

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Mapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return status, b"".join(parts)

    def close(self) -> None:
        self._loop.run_until_complete(self._end())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _end(self) -> None:
        try:
            if await self._written.wait(0):  # only then: to look is not to touch somebody's plan
                await self._owner.tick_boxes()
        finally:
            self._stack.close()
            await self._owner.__aexit__()


@contextlib.contextmanager
def direct(project: Project) -> Iterator[DirectTransport]:
    """For a command while no owner is up.  Raises OwnerUnavailable where one has come up meanwhile."""
    transport = DirectTransport(project, load_config(project.root))
    try:
        yield transport
    finally:
        transport.close()
