"""What of a database could keep Muster from working, lose what it has written, or show it to others.

It is asked without changing anything, by whoever may log in, also before there are any tables.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl, unquote, urlsplit

import asyncpg

from muster.model.errors import StoreRefused
from muster.model.findings import Check
from muster.stores.postgres.copy_mark import copy_mark
from muster.stores.postgres.faults import classify, room_hint
from muster.stores.postgres.pooling import CLOSING_S, Addresses
from muster.stores.postgres.schema import (
    ENGINE,
    OLDEST_SERVER,
    PARTITIONS_AHEAD,
    QUERY,
    SCHEMA,
    few,
    newest_schema,
    refuse_other_builds,
    refuse_others,
    rights_hint,
    schema_of,
)
from muster.stores.postgres.statements import for_all, load
from muster.stores.postgres.store import READERS, WRITERS, session_settings

CONNECTIONS = WRITERS + 2 * READERS
"""Of one server at most."""
CLOCK_MS_MAX = 5_000
"""Tokens expire by a server's clock, and what they did is dated by the database's."""
STATEMENT_S_MIN = 60
"""A statement may wait for locks, and for a standby."""
RIGHTS = {"muster.events": "SELECT, INSERT, DELETE", "muster.seals": "SELECT, INSERT, UPDATE"}
"""The engine's, on tables where it does not have all."""
_SQL = for_all(load("examination.sql")).by_name
Look = Callable[["_Asked"], Awaitable[list[Check]]]


class _Asked:
    """A session as anybody has it, and one as those of Muster are."""

    def __init__(self, plain: asyncpg.Connection, own: asyncpg.Connection) -> None:
        self.plain, self.own = plain, own

    async def row(self, name: str, *bindings: object) -> asyncpg.Record:
        return await self.plain.fetchrow(_SQL[name], *bindings)

    async def names(self, name: str, *bindings: object) -> list[str]:
        return [row[0] for row in await self.plain.fetch(_SQL[name], *bindings)]

    async def setting(self, name: str) -> str:
        """As whoever logs in has it; empty where this server knows no such setting."""
        return await self.plain.fetchval("SELECT current_setting($1, true)", name) or ""


async def examine(url: str) -> list[Check]:
    open_ones: list[asyncpg.Connection] = []
    try:
        open_ones.append(await _connected(url, {"application_name": "muster doctor"}))
        open_ones.append(await _connected(url, session_settings()))
        asked = _Asked(*open_ones)
        version = asked.plain.get_server_version()
        if version.major < OLDEST_SERVER:
            fix = f"move the database to PostgreSQL {OLDEST_SERVER} or newer"
            return [Check("PostgreSQL", False, f"{version.major} is too old", fix)]
        looks = [_server, _commits, _standby, _schema, _clock, _connections, _timeouts]
        if await _schema_shown(asked) == newest_schema():
            looks += [_roles, _tenants, _partitions, _backup]
        return [check for look in looks for check in await look(asked)]
    except asyncpg.TooManyConnectionsError as error:
        return [await _no_room(error, open_ones)]
    except Exception as error:
        return [_no_answer(error, url)]
    finally:
        for connection in open_ones:
            await connection.close(timeout=CLOSING_S)


async def _connected(url: str, settings: dict[str, str]) -> asyncpg.Connection:
    return await Addresses(url).connect(server_settings=settings)


async def _no_room(error: asyncpg.TooManyConnectionsError, open_ones: list[asyncpg.Connection]) -> Check:
    """Whoever got one connection and no second one can ask how many there are."""
    for one in open_ones:
        for check in await _connections(_Asked(one, one)):
            if not check.ok:
                return check._replace(ok=False)
    return Check("connections", False, f"none is left: {error}", room_hint(error))


def _no_answer(error: Exception, url: str) -> Check:
    """Raises what is a bug."""
    match error:
        case asyncpg.InvalidAuthorizationSpecificationError():
            fix = "its password: [serve] store_file, MUSTER_SERVE_STORE, PGPASSWORD or ~/.pgpass"
            return Check("PostgreSQL", False, f"it lets nobody in: {error}", fix)
        case asyncpg.InvalidCatalogNameError():
            return Check("PostgreSQL", False, str(error), _createdb(url))
        case asyncpg.PostgresError():
            return Check("PostgreSQL", False, f"it refuses: {error}", "look into its log")
    if (fault := classify(error)) is None:
        raise error
    return Check("PostgreSQL", False, fault.message, "start it, or see that it can be reached from here")


def _createdb(url: str) -> str:
    """What the address does not say is left to whoever runs it."""
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query))
    user = parts.username or given.get("user")
    database = parts.path.lstrip("/") or given.get("database") or given.get("dbname")
    names = (
        shlex.quote(unquote(name)) if name else word
        for name, word in ((user, "USER"), (database, "DATABASE"))
    )
    return f"createdb -O {' '.join(names)}"


async def _server(asked: _Asked) -> list[Check]:
    version = asked.plain.get_server_version()
    if await asked.plain.fetchval("SELECT pg_is_in_recovery()"):
        fix = "name the primary in the address (target_session_attrs=read-write finds it among several hosts)"
        return [Check("PostgreSQL", False, "a standby, which takes no writes", fix)]
    if await asked.own.fetchval("SHOW transaction_read_only") == "on":
        return [await _read_only(asked)]
    return [Check("PostgreSQL", True, f"{version.major}.{version.micro}")]


async def _read_only(asked: _Asked) -> Check:
    user, database = await asked.row("who")
    whose = await asked.plain.fetchval(_SQL["read_only_by"])
    owner = {"database": f"DATABASE {database}", "user": f"ROLE {user}"}
    owner["database user"] = f"ROLE {user} IN DATABASE {database}"
    said = "it takes no writes: each transaction is read-only"
    if whose in owner:
        mends = f"ALTER {owner[whose]} RESET default_transaction_read_only;"
    else:
        mends = "ALTER SYSTEM SET default_transaction_read_only = off; SELECT pg_reload_conf();"
    # The session that mends it begins as read-only as all others.
    return Check("PostgreSQL", False, said, _super(f"SET default_transaction_read_only = off; {mends}"))


async def _commits(asked: _Asked) -> list[Check]:
    """What was said to be written is there after a power cut (S6)."""
    off = [name for name in ("fsync", "full_page_writes") if await asked.setting(name) != "on"]
    if off:
        sets = " ".join(f"ALTER SYSTEM SET {name} = on;" for name in off)
        said = f"{' and '.join(off)} off: a power cut may lose or damage everything"
        return [Check("commits", False, said, f"as a superuser: {sets} SELECT pg_reload_conf();")]
    own = await asked.own.fetchval("SHOW synchronous_commit")
    if own != session_settings()["synchronous_commit"]:
        fix = "connect to PostgreSQL itself: what stands in between drops the settings of sessions"
        return [Check("commits", False, f"synchronous_commit is {own}, though Muster has asked for on", fix)]
    usual = await asked.setting("synchronous_commit")
    besides = "" if usual == "on" else f" (it is {usual} for others; Muster sets its own)"
    return [Check("commits", True, f"on the disk before they are answered{besides}")]


async def _standby(asked: _Asked) -> list[Check]:
    wanted = await asked.setting("synchronous_standby_names")
    if not wanted:
        said = "no synchronous standby: what was written last is lost with the disk of the database"
        fix = "set up one, then as a superuser: ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (NAME)';"
        return [Check("standby", None, said, fix)]
    synchronous, hidden = await asked.row("standbys")
    if synchronous:
        return [Check("standby", True, f"synchronous: {synchronous}")]
    if hidden:
        user = await asked.plain.fetchval("SELECT session_user")
        fix = f"as a superuser: GRANT pg_monitor TO {user};"
        return [Check("standby", None, f"{wanted}; who follows is not shown to {user}", fix)]
    said = f"nobody of {wanted} follows: every write waits until one does"
    fix = (
        "start the standby; to go on without it, as a superuser: "
        "ALTER SYSTEM SET synchronous_standby_names = ''; SELECT pg_reload_conf();"
    )
    return [Check("standby", False, said, fix)]


async def _schema_shown(asked: _Asked) -> int | None:
    """None where this login may not see it."""
    try:
        return await schema_of(asked.plain)
    except asyncpg.InsufficientPrivilegeError:
        return None


async def _schema(asked: _Asked) -> list[Check]:
    present, newest = await _schema_shown(asked), newest_schema()
    if present is None:
        user, _ = await asked.row("who")
        owner = await asked.plain.fetchval(_SQL["owner"])
        fix = f"log in as {owner}; or {_super(f'GRANT {ENGINE}, {QUERY} TO {user};')}"
        return [Check("schema", False, f"it is {owner}'s, and {user} may not use it", fix)]
    try:
        await (refuse_other_builds if present else refuse_others)(asked.plain)
    except StoreRefused as error:
        return [Check("schema", False, error.message, error.hint)]
    if present == newest:
        halted = await _halted(asked)
        if (mark := copy_mark(halted)) is not None:
            copied = mark.error()
            return [Check("schema", False, copied.message, copied.hint)]
        if halted is not None:
            fix = "put back what is missing; if that is lost, muster db restored goes on with what is there"
            return [Check("schema", False, f"the store was halted: {halted}", fix)]
        return [Check("schema", True, f"{present}")]
    if present > newest:
        said = f"{present}; this Muster knows up to {newest}"
        return [Check("schema", False, said, "upgrade Muster: pip install -U musterd")]
    user, may = await asked.row("may_make", [ENGINE, QUERY])
    if not may:
        said = f"none yet, and {user} may not make it"
        return [Check("schema", False, said, await rights_hint(asked.plain))]
    said = "none yet" if not present else f"{present}, of an older Muster"
    return [Check("schema", None, f"{said}: the next `muster serve` makes it")]


async def _halted(asked: _Asked) -> str | None:
    """Rules for rows hold for the owner as well: it is the engine that sees it."""
    if not await asked.plain.fetchval(_SQL["may_be"], [ENGINE]):
        return None  # `_roles` tells of that
    async with asked.plain.transaction(readonly=True):
        await asked.plain.execute(f"SET LOCAL ROLE {ENGINE}")
        reason: str | None = await asked.plain.fetchval(_SQL["halted"])
        return reason


async def _clock(asked: _Asked) -> list[Check]:
    before_s = time.time()
    theirs_ms = await asked.plain.fetchval(_SQL["clock"])
    ours_ms = round((before_s + time.time()) * 500)
    ahead_ms = theirs_ms - ours_ms
    said = f"the database's is {abs(ahead_ms) / 1000:.1f} s {'ahead' if ahead_ms > 0 else 'behind'}"
    if abs(ahead_ms) > CLOCK_MS_MAX:
        return [Check("clocks", False, said, "set the clocks of both hosts: timedatectl set-ntp true")]
    return [Check("clocks", True, said)]


async def _connections(asked: _Asked) -> list[Check]:
    limit, others, where = await asked.row("connections")
    servers = max(0, limit - others) // CONNECTIONS
    said = f"{limit} by {where}, {others} of them others'; a server takes up to {CONNECTIONS}"
    if servers > 1:
        return [Check("connections", True, f"{said}: room for {servers} servers")]
    user, database = await asked.row("who")
    raised = limit + (2 - servers) * CONNECTIONS
    fixes = {
        "max_connections": f"ALTER SYSTEM SET max_connections = {raised}; and restart PostgreSQL",
        "the database": f"ALTER DATABASE {database} CONNECTION LIMIT {raised};",
        "the role": f"ALTER ROLE {user} CONNECTION LIMIT {raised};",
    }
    room = "one server" if servers else "none"
    return [
        Check("connections", None if servers else False, f"{said}: room for {room}", _super(fixes[where]))
    ]


async def _timeouts(asked: _Asked) -> list[Check]:
    """That a frozen server holds nothing for long, and that no work is broken off."""
    user, database = await asked.row("who")
    found = []
    for name, wanted in session_settings().items():
        if name.endswith("_timeout") and (own := await asked.own.fetchval(f"SHOW {name}")) != wanted:
            fix = "connect to PostgreSQL itself: what stands in between drops the settings of sessions"
            found.append(
                Check("timeouts", False, f"{name} is {own}, though Muster has asked for {wanted}", fix)
            )
    for name in ("statement_timeout", "transaction_timeout"):
        ms = await asked.plain.fetchval(_SQL["milliseconds"], name)
        if ms and ms < STATEMENT_S_MIN * 1000:
            said = f"{name} is {await asked.setting(name)}: work that has to wait is broken off"
            fix = _super(f"ALTER ROLE {user} IN DATABASE {database} SET {name} = 0;")
            found.append(Check("timeouts", False, said, fix))
    if found:
        return found
    if not await asked.plain.fetchval(_SQL["milliseconds"], "idle_in_transaction_session_timeout"):
        said = (
            "other programs may leave a transaction open for ever, which keeps what was deleted on the disk"
        )
        fix = f"ALTER DATABASE {database} SET idle_in_transaction_session_timeout = '10min';"
        return [Check("timeouts", None, said, _super(fix))]
    return [Check("timeouts", True, "a session that hangs in a transaction is ended")]


async def _roles(asked: _Asked) -> list[Check]:
    """Neither of them may do more than what it is for (S13)."""
    user, _ = await asked.row("who")
    found = []
    for role, strong in await asked.plain.fetch(_SQL["too_strong"], [ENGINE, QUERY]):
        fix = f"ALTER ROLE {role} NOSUPERUSER NOBYPASSRLS;"
        found.append(
            Check("roles", False, f"{role} is {strong}: it sees every row of every workspace", _super(fix))
        )
    if found:
        return found
    for role, other in await asked.plain.fetch(_SQL["stronger"], [ENGINE, QUERY], ENGINE, QUERY):
        fix = f"REVOKE {other} FROM {role};"
        found.append(Check("roles", False, f"{role} may do what {other} may", _super(fix)))
    for kind, owned, role in await asked.plain.fetch(_SQL["owned"], [ENGINE, QUERY]):
        fix = f"ALTER {kind} {owned} OWNER TO {user}; {_given_again(owned, role)}"
        found.append(
            Check("roles", False, f"{role} owns {owned}: it can change who sees its rows", _super(fix))
        )
    if not await asked.plain.fetchval(_SQL["may_be"], [ENGINE, QUERY]):
        fix = f"GRANT {ENGINE}, {QUERY} TO {user};"
        found.append(Check("roles", False, f"{user} may not act as {ENGINE} and {QUERY}", _super(fix)))
    return found or [Check("roles", True, f"{ENGINE} and {QUERY}")]


def _given_again(owned: str, role: str) -> str:
    """An owner has the rights that it was given no longer, once it owns nothing."""
    if owned == SCHEMA:
        return f"GRANT USAGE ON SCHEMA {owned} TO {role};"
    rights = "SELECT" if role == QUERY else RIGHTS.get(owned, "SELECT, INSERT, UPDATE, DELETE")
    return f"GRANT {rights} ON {owned} TO {role};"


async def _tenants(asked: _Asked) -> list[Check]:
    """Row-level security, which keeps workspaces apart."""
    found = []
    if bare := await asked.names("without_rules"):
        sets = " ".join(
            f"ALTER TABLE muster.{t} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;" for t in bare
        )
        found.append(Check("tenants", False, f"no row-level security is forced on {few(bare)}", sets))
    for table, policy in await asked.plain.fetch(_SQL["loose_rules"], ENGINE, QUERY):
        said = f"the rule {policy} of {table} shows rows of other workspaces"
        found.append(Check("tenants", False, said, f"DROP POLICY {policy} ON muster.{table};"))
    for table, rights in await asked.plain.fetch(_SQL["loose_rights"], QUERY):
        said = f"{QUERY} has {rights} on {table}"
        found.append(Check("tenants", False, said, f"REVOKE {rights} ON muster.{table} FROM {QUERY};"))
    return found or [Check("tenants", True, "row-level security is forced on every table")]


async def _partitions(asked: _Asked) -> list[Check]:
    make = f"SELECT muster.make_partitions({PARTITIONS_AHEAD});"
    if missing := await asked.names("partitions_missing", PARTITIONS_AHEAD):
        said = f"{few(missing)} not made yet; servers do that every hour"
        return [Check("partitions", False, said, f"muster serve, or: {make}")]
    return [Check("partitions", True, f"made for {PARTITIONS_AHEAD} months ahead")]


async def _backup(asked: _Asked) -> list[Check]:
    """It is made as the engine, which sees every row; it fails as a whole where that may not read one table."""
    if closed := await asked.names("unreadable", ENGINE):
        fix = f"GRANT SELECT ON {', '.join(f'{SCHEMA}.{name}' for name in closed)} TO {ENGINE};"
        return [Check("backup", False, f"{ENGINE} may not read {few(closed)}: muster db backup fails", fix)]
    return [Check("backup", True, f"{ENGINE} may read every table")]


def _super(statement: str) -> str:
    return f"as a superuser: {statement}"
