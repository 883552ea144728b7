"""A database that answers and refuses: it takes no writes, or lets nobody in.  People are told which of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster_command import run_muster
from patience import until
from postgres_databases import at, run_sql
from real_servers import FAST, own_folder, start_postgres
from several_servers import QUICK, several

ROLE = "served"
END_SESSIONS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
)


@pytest.fixture
def superuser() -> Iterator[str]:
    """The address of an empty database, in a server of its own: a role's rights hold in all of one."""
    with own_folder() as folder:
        server = start_postgres(folder, FAST)
        try:
            run_sql(server.url, f"CREATE ROLE {ROLE} LOGIN CREATEROLE", f"CREATE DATABASE app OWNER {ROLE}")
            yield at(server.url, "app")
        finally:
            server.stop()


def test_a_database_that_was_made_read_only_is_told_as_such_until_it_is_mended(
    tmp_path: Path, superuser: str
) -> None:
    with several(tmp_path, at(superuser, "app", ROLE), 1) as servers:
        (server,) = servers.every
        status = run_muster(server.folder, "status")
        assert "nothing is written" not in status.stdout
        run_sql(superuser, "ALTER DATABASE app SET default_transaction_read_only = on", END_SESSIONS)
        until(lambda: not server.ready(), "it says that nothing is written")
        status = run_muster(server.folder, "status")
        assert "nothing is written: PostgreSQL takes no writes" in status.stdout
        assert "muster doctor" in status.stdout and "does not answer (cannot execute" not in server.log()
        unwritable = json.loads(run_muster(server.folder, "status", "--json").stdout)["unwritable"]
        assert unwritable["code"] == "store_away"
        added = run_muster(server.folder, "task", "add", "t", "--plan", "p")
        assert added.returncode == 7 and "takes no writes" in added.stderr
        assert "tried again" not in added.stderr and "muster doctor" in added.stderr
        told = json.loads(run_muster(server.folder, "doctor", "--json").stdout)["checks"]
        (bad,) = [check for check in told if check["name"] == "PostgreSQL"]
        fix = bad["fix"].removeprefix("as a superuser: ")
        run_sql(superuser, *(one for one in fix.split(";") if one.strip()))
        until(server.ready, "it goes on by itself")
        assert json.loads(run_muster(server.folder, "status", "--json").stdout)["unwritable"] is None


def test_a_database_that_lets_nobody_in_is_away_and_not_halted(tmp_path: Path, superuser: str) -> None:
    settings = QUICK.replace("[serve]\n", '[serve]\nalert_after = "1s"\n')
    with several(tmp_path, at(superuser, "app", ROLE), 1, settings) as servers:
        (server,) = servers.every
        run_sql(superuser, f"ALTER ROLE {ROLE} NOLOGIN", END_SESSIONS)
        until(lambda: "CRITICAL" in server.log(), "it is told")
        assert "store.away since" in server.log() and "store.halted" not in server.log()
        run_sql(superuser, f"ALTER ROLE {ROLE} LOGIN")
        until(lambda: "the store is back" in server.log(), "that is told as well")
        until(server.ready, "it takes work again")
