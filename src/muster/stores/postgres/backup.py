"""A copy of the store as of one moment, made by PostgreSQL's own pg_dump while others work."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from muster.hosts.handed_on import handed_on
from muster.model.errors import Conflict, StoreFault
from muster.stores.postgres.schema import ENGINE, SCHEMA

PROGRAM = "pg_dump"
_PLACES = re.compile(r"(?:^|(?<=,))\[?([^,\]]*?)\]?(?::(\d+))?(?=,|$)")
"""Hosts, each with its port where it has one."""
_NONE = f"there is no {PROGRAM} on the PATH of the Muster server"
_OTHER_VERSION = "server version mismatch"


async def dump(url: str, target: Path, *, force: bool) -> int:
    """Writes the archive, for pg_restore, and returns its size.  Raises as ports.store.Store.back_up."""
    if not force and await asyncio.to_thread(target.exists):
        raise Conflict(f"{target} is there already; no backup was made", "name another file, or add --force")
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    # As a role that sees every row: without it, rules for rows would refuse the whole copy.
    options = [
        "--format=custom",
        "--no-password",
        f"--role={ENGINE}",
        "--enable-row-security",
        f"--schema={SCHEMA}",
    ]
    try:
        said = await _run([PROGRAM, *options, f"--file={draft}"], _environment(url))
        if said is not None:
            raise StoreFault(f"{PROGRAM} failed: {said}; no backup was made", _hint(said))
        return await asyncio.to_thread(_keep, draft, target)
    except OSError as error:
        raise StoreFault(f"{target} cannot be written: {error}; no backup was made") from error
    finally:
        await asyncio.to_thread(draft.unlink, missing_ok=True)


async def _run(argv: list[str], environment: dict[str, str]) -> str | None:
    """What it said where it failed."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError:
        return _NONE
    _, said = await process.communicate()
    return said.decode(errors="replace").strip() or "no reason given" if process.returncode else None


def _hint(said: str) -> str:
    if said == _NONE or _OTHER_VERSION in said:
        return (
            f"put the {PROGRAM} of the database's version, or a newer one, first on the PATH of the "
            "Muster server, which runs it, and start that server anew"
        )
    return "muster doctor tells what keeps the server from its database or from a table of it"


def _environment(url: str) -> dict[str, str]:
    """Where to connect: not in the arguments, which other users see."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query))
    places = _PLACES.findall(unquote(parts.netloc.rpartition("@")[2]))
    ports = ",".join(port for _, port in places)
    found = {
        "PGHOST": given.pop("host", ",".join(host for host, _ in places)),
        "PGPORT": given.pop("port", ports if ports.strip(",") else ""),
        "PGUSER": given.pop("user", unquote(parts.username or "")),
        "PGPASSWORD": given.pop("password", unquote(parts.password or "")),
        "PGPASSFILE": given.pop("passfile", ""),
        "PGDATABASE": unquote(parts.path.lstrip("/")) or given.get("dbname") or given.get("database", ""),
    }
    # As connections are made: the one of several that takes writes.
    several = "read-write" if "," in found["PGHOST"] else ""
    found["PGTARGETSESSIONATTRS"] = given.get("target_session_attrs", several)
    found |= {f"PG{name.upper()}": value for name, value in given.items() if name.startswith("ssl")}
    # What it says is told apart by its words.
    return {**handed_on(), "LC_ALL": "C", **{name: value for name, value in found.items() if value}}


def _keep(draft: Path, target: Path) -> int:
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.replace(target)
    folder = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return target.stat().st_size
