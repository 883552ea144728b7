"""A PostgreSQL server and a standby that follows it, and takes its place."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from patience import until
from postgres_databases import run_sql
from real_servers import FAST, Running, follow_postgres, own_folder, run_postgres, start_postgres

STREAMING = "SELECT state, sync_state FROM pg_stat_replication"


class Standby:
    """`url` names both, for a user who owns an empty database."""

    def __init__(self, folder: Path, *, synchronous: bool) -> None:
        other = folder.with_name("t")
        self.first = start_postgres(folder, FAST)
        self.second: Running | None = None
        run_sql(self.first.url, "CREATE ROLE app LOGIN CREATEROLE", "CREATE DATABASE app OWNER app")
        follow_postgres(self.first, other)
        self.second = run_postgres(other, FAST)
        self.url = (
            f"postgresql://app@{_place(self.first)},{_place(self.second)}/app?target_session_attrs=read-write"
        )
        until(lambda: self._state("streaming"), "the standby follows")
        if synchronous:
            run_sql(
                self.first.url, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"
            )
            until(lambda: self._state("sync"), "the standby is waited for")

    def _state(self, word: str) -> bool:
        return any(word in tuple(row) for row in run_sql(self.first.url, STREAMING))

    def cut_off(self) -> None:
        """What is written from now on does not come to the standby."""
        assert self.second is not None
        run_sql(self.second.url, "ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
        until(lambda: not run_sql(self.first.url, STREAMING), "the standby has been cut off")

    def fail_over(self) -> None:
        """The first one is killed, with all that it was about."""
        assert self.second is not None
        self.first.stop(signal.SIGKILL)
        run_sql(self.second.url, "SELECT pg_promote(true, 600)")

    def close(self) -> None:
        for server in (self.first, self.second):
            if server is not None:
                server.stop(signal.SIGKILL)


def _place(server: Running) -> str:
    return urlsplit(server.url).netloc.rpartition("@")[2]


@contextlib.contextmanager
def standby(*, synchronous: bool) -> Iterator[Standby]:
    with own_folder() as folder:
        made = Standby(folder, synchronous=synchronous)
        try:
            yield made
        finally:
            made.close()
