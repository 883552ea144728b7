"""Databases of their own for tests, on a PostgreSQL server that is there."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

USER = "muster_test"
"""Owns the databases of tests, and is no superuser: rules for rows hold for it."""
_NUMBERS = itertools.count()


def at(url: str, database: str, user: str | None = None) -> str:
    """The address of another database of that server, and for another user, with the same password."""
    parts = urlsplit(url)
    who, _, host = parts.netloc.rpartition("@")
    _, colon, password = who.partition(":")
    netloc = f"{user}{colon}{password}@{host}" if user else parts.netloc
    return parts._replace(path=f"/{database}", netloc=netloc).geturl()


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
    _make_user(server)
    run_sql(server, f"CREATE DATABASE {name} TEMPLATE {template} OWNER {USER}")
    try:
        yield at(server, name)
    finally:
        run_sql(server, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def template(server: str, run: Path) -> str:
    """The name of a database that holds a new store: made by whoever comes first of this run's processes."""
    name = _template_name(run)
    with (run / "template.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not run_sql(server, f"SELECT 1 FROM pg_database WHERE datname = '{name}'"):
            _make_user(server)
            run_sql(server, f"CREATE DATABASE {name} OWNER {USER}")
            asyncio.run(_make_store(at(server, name, USER)))
    return name


def drop_template(server: str, run: Path) -> None:
    run_sql(server, f"DROP DATABASE IF EXISTS {_template_name(run)}")


def _template_name(run: Path) -> str:
    return "muster_template_" + "".join(char for char in run.name.lower() if char.isalnum())


def _make_user(server: str) -> None:
    password = urlsplit(server).password
    login = f"LOGIN PASSWORD '{password}'" if password else "LOGIN"
    with contextlib.suppress(Exception):  # it is there already, or another process has just made it
        run_sql(server, f"CREATE ROLE {USER} NOSUPERUSER CREATEROLE {login}")


async def _make_store(url: str) -> None:
    from muster.stores.postgres.store import PostgresStore

    store = await PostgresStore.open(url)
    await store.aclose()
