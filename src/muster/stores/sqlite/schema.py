"""The schema of a store's file: its number, its shape, and the migrations that are still to be made."""

from __future__ import annotations

import contextlib
import re
import zlib
from pathlib import Path

import apsw

from muster.model.errors import StoreRefused
from muster.stores.sqlite.halt import other_build_hint


def _read_migrations() -> list[tuple[int, str]]:
    files = sorted(Path(__file__).with_name("migrations").glob("*.sql"))
    return [(int(f.name.split("_")[0]), f.read_text("utf-8")) for f in files]


_MIGRATIONS = _read_migrations()
"""Those of this code: an upgrade puts other files there while a crew is up."""


def schema_of(connection: apsw.Connection) -> int:
    present: int = connection.execute("PRAGMA user_version").fetchone()[0]  # type: ignore[index]
    return present


def newest_schema() -> int:
    return _MIGRATIONS[-1][0]


FIRST_SCHEMA, UNRELEASED = 1, 8
"""Numbers up to this one were those of builds before the first release: the next migration has a higher one."""
UPGRADED_SCHEMA = 7
"""That of the last one of them which worked for people: see `upgrade`."""
UPGRADES = Path(__file__).with_name("upgrades")
_NEWEST_SHAPE = 0x1DFBD4CF
"""Checksum of what the migrations make: to make it anew costs each opening 4 ms, to compare it 0.3."""

_OF_TENANTS = frozenset({"tasks_workspace", "events_workspace"})
"""Indexes that come with a second workspace."""


def other_shape(connection: apsw.Connection) -> str:
    """How the store differs from what this Muster makes under the same number; empty where it does not.

    Builds between two releases call different tables by one number.
    """
    schema = schema_of(connection)
    if not schema or (schema == newest_schema() and _checksum(_shape(connection)) == _NEWEST_SHAPE):
        return ""
    with contextlib.closing(apsw.Connection(":memory:")) as ours:
        for script in _scripts_of(schema):
            ours.execute(script)
        missing = _shape(ours) - _shape(connection)
    names = ", ".join(sorted({name for name, _ in missing}))
    return f"another build of Muster made it: schema {schema} has another {names} here" if names else ""


def _scripts_of(schema: int) -> list[str]:
    if schema == UPGRADED_SCHEMA:
        return [(UPGRADES / "schema_7.sql").read_text("utf-8")]
    return [script for number, script in _MIGRATIONS if number <= schema]


def first_migration() -> str:
    (script,) = (script for number, script in _MIGRATIONS if number == FIRST_SCHEMA)
    return script


def _shape(connection: apsw.Connection) -> set[tuple[str, str]]:
    """Tables, indexes and triggers, by name and words; comments count for nothing."""
    made = connection.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {
        (name, " ".join(re.sub("--[^\n]*", "", sql).split())) for name, sql in made if name not in _OF_TENANTS
    }


def _checksum(shape: set[tuple[str, str]]) -> int:
    return zlib.crc32(repr(sorted(shape)).encode())


def refuse_newer(path: Path, schema: int) -> None:
    """Raises StoreRefused, but for what is upgraded."""
    if schema == UPGRADED_SCHEMA:
        return
    if newest_schema() < schema <= UNRELEASED:
        raise StoreRefused(
            f"{path} has schema {schema}, of a build before the first release; nothing was changed",
            other_build_hint(path),
        )
    if schema > newest_schema():
        raise StoreRefused(
            f"{path} has schema {schema}; this Muster knows up to {newest_schema()}",
            "upgrade Muster: pip install -U musterd",
        )


def pending_migrations(connection: apsw.Connection, path: Path) -> list[tuple[int, str]]:
    """Raises StoreRefused for a schema that is newer than this Muster."""
    present = schema_of(connection)
    refuse_newer(path, present)
    return [(number, script) for number, script in _MIGRATIONS if number > present]
