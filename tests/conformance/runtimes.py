"""Two servers that share a runtime, and waiting for what hints bring."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from muster.ports.runtime import Runtime
from muster.runtimes.chance import SystemChance
from muster.runtimes.local import LocalRuntime
from muster.runtimes.valkey.address import address_of
from muster.runtimes.valkey.runtime import ValkeyRuntime
from patience import PATIENCE_S


class Servers(NamedTuple):
    one: Runtime
    other: Runtime
    """The same where there is only one."""


@contextlib.asynccontextmanager
async def local() -> AsyncIterator[Servers]:
    runtime = LocalRuntime()
    runtime.start()
    yield Servers(runtime, runtime)
    await runtime.aclose()


@contextlib.asynccontextmanager
async def over_valkey(url: str, namespace: str) -> AsyncIterator[Servers]:
    """Both hear each other; where Valkey is away, use `servers_on`."""
    async with servers_on(url, namespace) as servers:
        await eventually(
            lambda: all(one.state == "connected" for one in servers), "both servers are connected"
        )
        yield servers


@contextlib.asynccontextmanager
async def servers_on(url: str, namespace: str) -> AsyncIterator[Servers]:
    made = [valkey_runtime(url, namespace) for _ in range(2)]
    for one in made:
        one.start()
    try:
        yield Servers(*made)
    finally:
        for one in made:
            await one.aclose()


def valkey_runtime(url: str, namespace: str) -> ValkeyRuntime:
    name = f"server-{secrets.token_hex(4)}"
    return ValkeyRuntime(address_of(url), SystemChance(), server=name, namespace=namespace)


def own_namespace() -> str:
    return f"test-{secrets.token_hex(6)}"


async def eventually(
    condition: Callable[[], bool | Awaitable[bool]], what: str, within_s: float = PATIENCE_S
) -> None:
    """Looks until it is so."""
    async with asyncio.timeout(within_s):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)
    raise AssertionError(what)
