"""What docs/choosing-a-store.md has a superuser say is enough for a server's user."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from muster.stores.postgres.store import PostgresStore
from pages import blocks
from postgres_databases import at, run_sql
from real_servers import own_folder, start_postgres

PAGE = Path(__file__).parents[2] / "docs" / "choosing-a-store.md"


def test_the_roles_shown_are_enough() -> None:
    (shown,) = blocks(PAGE, "sql")
    with own_folder() as folder:
        running = start_postgres(folder)
        try:
            for statement in filter(str.strip, shown.split(";")):
                run_sql(running.url, statement)
            asyncio.run(_open(at(running.url, "muster", "muster")))
            (rights,) = run_sql(
                running.url,
                "SELECT rolsuper, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname = 'muster'",
            )
            assert tuple(rights) == (False, False, False)
        finally:
            running.stop(signal.SIGINT)


async def _open(url: str) -> None:
    store = await PostgresStore.open(url)
    assert await store.check() == []
    await store.aclose()
