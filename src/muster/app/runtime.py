"""What servers tell each other by: nothing but themselves, or a Valkey."""

from __future__ import annotations

import asyncio

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


def look(settings: RuntimeSettings) -> tuple[str, str]:
    """Where the Valkey is, and why it does not answer; empty: it does.  Raises BadConfig."""
    check(settings)
    from muster.runtimes.valkey.address import address_of
    from muster.runtimes.valkey.link import ValkeyLink

    async def ask() -> tuple[str, str]:
        address = address_of(settings.url)
        link = ValkeyLink(address, SystemChance())
        try:
            await link.send([("PING",)])
            return str(address), link.problem
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
