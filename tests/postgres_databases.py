"""Databases of their own for tests, on a PostgreSQL server that is there."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

_NUMBERS = itertools.count()


def at(url: str, database: str, user: str | None = None) -> str:
    """The address of another database of that server, and for another user."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return parts._replace(path=f"/{database}", netloc=f"{user}@{host}" if user else parts.netloc).geturl()


def run_sql(url: str, *statements: str) -> list[Any]:
    """The rows of the last one; each is committed at once."""

    async def run() -> list[Any]:
        import asyncpg

        connection = await asyncpg.connect(url)
        try:
            found: list[Any] = []
            for statement in statements:
                found = await connection.fetch(statement)
            return found
        finally:
            await connection.close()

    return asyncio.run(run())


@contextlib.contextmanager
def database(server: str, template: str = "template1") -> Iterator[str]:
    """A new database with what `template` has, dropped in the end whoever is connected to it still."""
    name = f"muster_test_{os.getpid()}_{next(_NUMBERS)}"
    run_sql(server, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield at(server, name)
    finally:
        run_sql(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
