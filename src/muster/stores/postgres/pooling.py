"""Connections to the database: to whichever of its servers takes writes, and not asked for again and again while
none does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

import asyncpg

from muster.hosts.addresses import FILES, option_hint, settings_named
from muster.hosts.keepalive import end_when_unheard
from muster.model.errors import BadConfig, CommitUnknown, StoreAway
from muster.stores.postgres.faults import TRIED_AGAIN, classify, is_closed

log = logging.getLogger(__name__)

CONNECTING_S = 10.0
"""For a connection, over all servers that the address names."""
HOST_S = 3.0
"""So long one of several is waited for before the next one is tried: a dead host does not even refuse."""
FIRST_WAIT_S, WAIT_S_MAX = 0.1, 2.0
CLOSING_S = 5.0
KEEPALIVE_S, PROBE_S, PROBES = 10, 5, 3
"""A host that acknowledges nothing for so long (25 s) is gone: a connection to it ends.  One that is only slow,
or whose server stands still, acknowledges what it is sent."""
_WRITES = "read-write"
_TARGET = "target_session_attrs"


def each_server(url: str) -> list[str]:
    """An address for each server that the one names: of several, one that takes writes is meant."""
    parts = urlsplit(url)
    who, at, hosts = parts.netloc.rpartition("@")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    places = [(host, "") for host in hosts.split(",")]
    if "host" in query:
        names = query.pop("host").split(",")
        ports = query.pop("port", "").split(",")
        ports = ports * len(names) if len(ports) == 1 else ports
        places = list(zip(names, ports, strict=False))
    if len(places) == 1:
        return [url]
    query.setdefault(_TARGET, _WRITES)
    return [_address(parts, f"{who}{at}", place, query) for place in places]


def _address(parts: SplitResult, who: str, place: tuple[str, str], query: dict[str, str]) -> str:
    host, port = place
    if host.startswith("/"):  # the folder of a socket stands in no authority
        given, authority = {**query, "host": host, **({"port": port} if port else {})}, who
    else:
        given, authority = query, f"{who}{host}{':' if port else ''}{port}"
    return f"{parts.scheme}://{authority}{parts.path}?{urlencode(given, quote_via=quote)}"


class Addresses:
    """Connects to one of a database's servers, the one first that it was connected to last."""

    def __init__(self, url: str) -> None:
        self._each = each_server(url)

    @property
    def host(self) -> str:
        """Where the one is that it was connected to last, in words."""
        parts = urlsplit(self._each[0])
        query = dict(parse_qsl(parts.query))
        return query.get("host") or parts.netloc.rpartition("@")[2] or "this host"

    async def connect(self, **settings: Any) -> asyncpg.Connection:
        """Raises what the last one of them has said."""
        settings.setdefault("timeout", HOST_S if len(self._each) > 1 else CONNECTING_S)
        refused: BaseException | None = None
        for url in tuple(self._each):
            try:
                connection = await connected(url, **settings)
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InternalClientError) as error:
                refused = error
                if not isinstance(classify(error), StoreAway):
                    raise
                continue
            self._each = [url, *(one for one in self._each if one != url)]
            _end_when_unheard(connection)
            return connection
        assert refused is not None
        raise refused


async def connected(url: str, **settings: Any) -> asyncpg.Connection:
    """Raises BadConfig where it is the address that cannot be used."""
    try:
        return await asyncpg.connect(url, **settings)
    except (asyncpg.UndefinedObjectError, asyncpg.InvalidParameterValueError) as error:
        names = [name for name in settings_named(url) if name in str(error)]
        if not names:
            raise
        raise _unusable(f"PostgreSQL refuses its parameter {names[0]}", option_hint(names[0])) from None
    except asyncpg.ObjectNotInPrerequisiteStateError as error:  # ALTER DATABASE ... ALLOW_CONNECTIONS false
        raise OSError(str(error)) from error
    except FileNotFoundError:
        # That of a socket is named in it; a certificate's is not, and may be there again later.
        if said := _absent(url):
            raise OSError(said) from None
        raise
    except ValueError as error:
        if isinstance(error, OSError):  # a certificate, which is the server's
            raise
        # What others say may be a part of the address.
        said = f": {error}" if isinstance(error, asyncpg.ClientConfigurationError) else ""
        fix = "look at its host, port and parameters, and at PGHOST, PGPORT, PGSSLMODE and the like"
        raise _unusable(f"nobody can connect with it{said}", fix) from None


def _absent(url: str) -> str:
    """The first file of the address that is not there, in words."""
    for name, path in parse_qsl(urlsplit(url).query):
        if name in FILES and not Path(path).exists():
            return f"there is no {path}, its {name}"
    return ""


def _unusable(problem: str, hint: str) -> BadConfig:
    error = BadConfig(f"the address of the database: {problem}; nothing was written", hint)
    error.key = "serve.store"
    return error


def _end_when_unheard(connection: asyncpg.Connection) -> None:
    found = connection._transport.get_extra_info("socket")
    if found is not None:
        end_when_unheard(found, KEEPALIVE_S, PROBE_S, PROBES)


class TryLater:
    """Between tries of a database that does not answer: whoever comes meanwhile is told so at once."""

    def __init__(self, fraction: Callable[[], float] = random.random) -> None:
        self._fraction = fraction
        self._wait_s = self._until_s = 0.0
        self._said = ""

    def refuse_early(self) -> None:
        """Raises StoreAway."""
        if asyncio.get_running_loop().time() < self._until_s:
            raise StoreAway(self._said, TRIED_AGAIN)

    def failed(self, away: StoreAway) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s < self._until_s:
            return  # several have tried at once
        self._wait_s = min(WAIT_S_MAX, self._wait_s * 2 or FIRST_WAIT_S)
        self._until_s = now_s + self._wait_s * (1 + self._fraction()) / 2
        self._said = away.message

    def answered(self) -> None:
        self._wait_s = self._until_s = 0.0


class Connections:
    """Connections of one kind, each for one at a time."""

    def __init__(self, pool: asyncpg.Pool, retry: TryLater) -> None:
        self._pool, self._retry = pool, retry

    @contextlib.asynccontextmanager
    async def acquire(self) -> AsyncIterator[asyncpg.Connection]:
        self._retry.refuse_early()
        try:
            connection = await self._pool.acquire()
        except Exception as error:
            if isinstance(away := classify(error), StoreAway):
                self._retry.failed(away)
            raise
        self._retry.answered()
        try:
            yield connection
        finally:
            await self._pool.release(connection)

    async def close(self) -> None:
        await self._pool.close()

    def terminate(self) -> None:
        self._pool.terminate()


@contextlib.asynccontextmanager
async def undone(connection: asyncpg.Connection) -> AsyncIterator[None]:
    """Rolls back where the body raises in the middle of a transaction."""
    try:
        yield
    except CommitUnknown:
        connection.terminate()  # the next one waits for the standby
        raise
    except BaseException as raised:
        # Of one that was cut short nobody can tell yet; what is sent now waits until it has ended.
        cut = isinstance(raised, asyncio.CancelledError)
        try:
            if not connection.is_closed() and (cut or connection.is_in_transaction()):
                await connection.execute("ROLLBACK", timeout=CLOSING_S)
        except Exception as error:
            # The first error is the one to report; the server rolls back by itself when the connection is gone.
            if not is_closed(error):
                log.warning("rollback failed: %s", error)
                connection.terminate()
        raise
