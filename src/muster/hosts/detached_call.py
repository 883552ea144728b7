"""A call in a thread that its process does not wait for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def detached_call(call: Callable[..., T], *given: object) -> T:
    """As `asyncio.to_thread`, but a call that hangs keeps nobody from ending: a disk may be away for long."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if future.done():  # nobody waits any more
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result, failed = None, None
        try:
            result = call(*given)
        except Exception as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=work, name="aside", daemon=True).start()
    return await future
