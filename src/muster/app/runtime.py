"""What servers tell each other by: nothing but themselves, or a Valkey."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from muster.config.settings import RuntimeSettings
from muster.ports.runtime import Runtime
from muster.runtimes.chance import SystemChance
from muster.runtimes.local import LocalRuntime


def check(settings: RuntimeSettings) -> None:
    """Raises BadConfig for what can never be used.  Whether it is there is not asked: it may come later."""
    if settings.url:
        from muster.runtimes.valkey.address import address_of, require_client

        address_of(settings.url)
        require_client()


class Looked(NamedTuple):
    where: str
    problem: str
    """Why it does not answer; empty: it does."""
    fills_up: bool
    """Its memory is bounded, and what is there does not give way to what is new."""


def look(settings: RuntimeSettings) -> Looked:
    """At the Valkey.  Raises BadConfig."""
    check(settings)
    from muster.runtimes.valkey.address import address_of
    from muster.runtimes.valkey.link import ValkeyLink

    async def ask() -> Looked:
        address = address_of(settings.url)
        link = ValkeyLink(address, SystemChance())
        try:
            await link.send([("PING",)])
            problem = link.problem
            # Who may not ask that is not told.
            (memory,) = await link.send([("INFO", "memory")]) or [None]
            bounded = isinstance(memory, dict) and bool(memory.get("maxmemory"))
            return Looked(str(address), problem, bounded and memory["maxmemory_policy"] == "noeviction")
        finally:
            await link.aclose()

    return asyncio.run(ask())


def runtime_of(settings: RuntimeSettings) -> Runtime:
    """For the event loop that runs.  Raises BadConfig."""
    if not settings.url:
        return LocalRuntime()
    check(settings)
    from muster.runtimes.valkey.address import address_of
    from muster.runtimes.valkey.runtime import ValkeyRuntime

    chance = SystemChance()
    server = f"server-{chance.name(12)}"
    return ValkeyRuntime(address_of(settings.url), chance, server=server, namespace=settings.namespace)
