"""What the API says of itself: `/api/v1/openapi.json`, and as a page `/api/v1/docs`."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from muster.web.app import declared
from muster.web.backend import Backend
from muster.web.http import JSON, Reply
from muster.web.routes import Routes

routes = Routes()

HTML = "text/html; charset=utf-8"


@routes.get("/api/v1/openapi.json", answer=dict[str, Any])
async def openapi(web: Backend) -> Reply:  # noqa: ARG001 - it is the same for everybody
    """This description."""
    return Reply(200, await _once(_description), JSON)


@routes.get("/api/v1/docs", answer=HTML)
async def docs(web: Backend) -> Reply:  # noqa: ARG001
    """This description as a page, which needs nothing from elsewhere."""
    return Reply(200, await _once(_page), HTML)


async def _once(make: Callable[[], bytes]) -> bytes:
    """In a thread: it takes a fifth of a second, for which nobody else is to wait."""

    def one_at_a_time() -> bytes:
        with _MAKING:
            return make()

    return await asyncio.to_thread(one_at_a_time)


_MAKING = threading.Lock()


@functools.cache
def _description() -> bytes:
    from muster.web.openapi import document

    return msgspec.json.encode(document(declared()))


@functools.cache
def _page() -> bytes:
    from muster.web.reference_page import page

    return page(msgspec.json.decode(_description())).encode()
