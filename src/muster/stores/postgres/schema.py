"""The schema `muster` of a database, its roles, and the migrations that are still to be made."""

from __future__ import annotations

import hashlib
from itertools import groupby
from pathlib import Path

import asyncpg

from muster.model.errors import StoreRefused
from muster.stores.postgres.statements import for_all, load

SCHEMA = "muster"
ENGINE, QUERY = "muster_engine", "muster_query"
"""Roles: the one carries out commands for all workspaces, the other reads for one.  See the migrations."""
OLDEST_SERVER = 15
PARTITIONS_AHEAD = 3
"""Months; see `make_partitions` in the migrations."""
NAMES_SHOWN = 5
"""Of a list in a sentence."""
_SQL = for_all(load("schema.sql")).by_name
_LOCK = (1296388948, 0)
"""Held while the schema is brought up to date."""


def _read_migrations() -> list[tuple[int, str]]:
    """By number; what stands in several files of one number is one migration."""
    files = sorted(Path(__file__).with_name("migrations").glob("*.sql"))
    by_number = groupby(files, key=lambda file: int(file.name.split("_")[0]))
    return [(number, "".join(file.read_text("utf-8") for file in some)) for number, some in by_number]


_MIGRATIONS = _read_migrations()
"""Those of this code: an upgrade puts other files there while a server is up."""


def _sha256(script: str) -> str:
    """Of its statements; lines that only comment may change."""
    lines = [line.strip() for line in script.splitlines()]
    told = "\n".join(line for line in lines if line and not line.startswith("--"))
    return hashlib.sha256(told.encode()).hexdigest()


_MADE_OF = {number: _sha256(script) for number, script in _MIGRATIONS}


def newest_schema() -> int:
    return _MIGRATIONS[-1][0]


async def schema_of(connection: asyncpg.Connection) -> int:
    """0 where there is none yet."""
    # `to_regclass` may answer from what this session has seen before another one committed the schema.
    if not await connection.fetchval(_SQL["is_ours"]):
        return 0
    found: int = await connection.fetchval("SELECT coalesce(max(number), 0) FROM muster.schema_version")
    return found


async def refuse_other_builds(connection: asyncpg.Connection) -> None:
    """Raises StoreRefused where the schema is one of our numbers, and was made of other statements than ours."""
    found = await connection.fetch(_SQL["made_of"])
    wrong = [number for number, made_of in found if number in _MADE_OF and made_of != _MADE_OF[number]]
    if wrong:
        raise StoreRefused(
            f"another build of Muster made this database: its schema {wrong[0]} is not the one of this build; "
            "nothing was changed",
            "serve it with the Muster that made it, or name an empty database",
        )


async def refuse_others(connection: asyncpg.Connection) -> None:
    """Raises StoreRefused where the schema is there, and what stands in it is not Muster's."""
    names = [name for (name,) in await connection.fetch(_SQL["others"])]
    if not names:
        return
    database = await connection.fetchval("SELECT quote_ident(current_database())")
    raise StoreRefused(
        f"the schema {SCHEMA} of the database {database} belongs to something else, it has {few(names)}; "
        "nothing was changed",
        f"name another database; or give it another name: ALTER SCHEMA {SCHEMA} RENAME TO {SCHEMA}_other;",
    )


def few(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


async def migrate(connection: asyncpg.Connection, *, known: bool = False) -> int:
    """Brings the schema up to date, and returns its number; of several servers that start at once one does it.

    `known`: this folder's server has served it; none is made anew, where a backup is to be put back.

    Raises StoreRefused for a server that is too old, a newer schema, or where this user may not make it.
    """
    version = connection.get_server_version()
    if version.major < OLDEST_SERVER:
        raise StoreRefused(
            f"PostgreSQL {version.major} is too old; nothing was changed", f"use {OLDEST_SERVER} or newer"
        )
    if present := await schema_of(connection):
        await refuse_other_builds(connection)
    if present == newest_schema():
        return present
    if known and not present:
        await refuse_others(connection)
        raise StoreRefused(
            "the database is empty, and this folder's server has served one that was not; nothing was written",
            "name the former one; or put a backup back, then: muster db restored; or serve from another folder",
        )
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1, $2)", *_LOCK)
            return await _make(connection)
    except asyncpg.InsufficientPrivilegeError as error:
        user = await connection.fetchval("SELECT session_user")
        raise StoreRefused(
            f"{user} may not make the tables of Muster here: {error}; nothing was changed",
            await rights_hint(connection),
        ) from error


async def rights_hint(connection: asyncpg.Connection) -> str:
    """What lets this user make the schema, as far as it is not so already."""
    user, database, unmade, unheld, makes = await connection.fetchrow(
        _SQL["missing"], [ENGINE, QUERY], _usable(connection)
    )
    words = [f"CREATE ROLE {role};" for role in unmade]
    words += [f"GRANT {', '.join(unheld)} TO {user};"] if unheld else []
    words += [] if makes else [f"GRANT CREATE ON DATABASE {database} TO {user};"]
    if not words:  # it is the schema, which somebody else has made
        return f"serve it once as its owner; or, where it is empty: ALTER SCHEMA {SCHEMA} OWNER TO {user};"
    return f"as a superuser: {' '.join(words)}"


def _usable(connection: asyncpg.Connection) -> str:
    return "SET" if connection.get_server_version().major >= 16 else "MEMBER"


async def _make(connection: asyncpg.Connection) -> int:
    if present := await schema_of(connection):
        await refuse_other_builds(connection)
    if present > newest_schema():
        raise StoreRefused(
            f"the database has schema {present}; this Muster knows up to {newest_schema()}",
            "upgrade Muster: pip install -U musterd",
        )
    if not present:
        await refuse_others(connection)
        await _make_roles(connection)
        await connection.execute("CREATE SCHEMA IF NOT EXISTS muster")
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS muster.schema_version (number integer PRIMARY KEY, "
            "made_at timestamptz NOT NULL DEFAULT now(), made_of text)"
        )
    await connection.execute("SET LOCAL search_path = muster")
    for number, script in _MIGRATIONS:
        if number > present:
            await connection.execute(script)
            await connection.execute(
                "INSERT INTO schema_version (number, made_of) VALUES ($1, $2)", number, _MADE_OF[number]
            )
    return newest_schema()


async def _make_roles(connection: asyncpg.Connection) -> None:
    """They belong to the server, not to one of its databases: another one may make them at this moment."""
    usable = _usable(connection)
    for role in (ENGINE, QUERY):
        if not await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role):
            try:
                async with connection.transaction():
                    await connection.execute(f"CREATE ROLE {role} NOLOGIN NOBYPASSRLS")
            except (asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
                pass
        if not await connection.fetchval("SELECT pg_has_role(session_user, $1, $2)", role, usable):
            await connection.execute(f"GRANT {role} TO SESSION_USER")
