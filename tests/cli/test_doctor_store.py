"""`muster doctor` for a PostgreSQL store: by its address, and in the folder of a server."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

from muster.config.values import without_password, without_stars
from muster_command import run_muster
from postgres_databases import run_sql
from real_servers import free_port, own_folder, start_valkey
from several_servers import SharedServer

EXAMINED = {"PostgreSQL", "commits", "standby", "schema", "clocks", "connections", "timeouts"}


def doctor(folder: Path, *words: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    done = run_muster(folder, "doctor", *words, "--json")
    return done, {check["name"]: check for check in json.loads(done.stdout)["checks"]} if done.stdout else {}


def test_a_database_is_looked_at_by_its_address_anywhere(tmp_path: Path, postgres_store: str) -> None:
    done, checks = doctor(tmp_path, "--store", postgres_store)
    # The server of tests does without fsync: that alone is wrong, and said so.
    assert [name for name, check in checks.items() if check["ok"] is False] == ["commits"]
    assert done.returncode == 1 and "ALTER SYSTEM SET fsync = on" in checks["commits"]["fix"]
    assert checks.keys() == EXAMINED | {"Python", "roles", "tenants", "partitions", "backup"}
    assert not (tmp_path / ".muster").exists()
    shown = run_muster(tmp_path, "doctor", "--store", postgres_store).stdout
    assert "fix: as a superuser: ALTER SYSTEM" in shown and "1 to fix" in shown


def test_rows_that_others_could_see_are_told_with_what_mends_it(tmp_path: Path, postgres_store: str) -> None:
    run_sql(postgres_store, "ALTER TABLE muster.tasks NO FORCE ROW LEVEL SECURITY")
    _, checks = doctor(tmp_path, "--store", postgres_store)
    assert checks["tenants"]["ok"] is False
    run_sql(postgres_store, *filter(None, checks["tenants"]["fix"].split(";")))
    _, checks = doctor(tmp_path, "--store", postgres_store)
    assert checks["tenants"]["ok"]


def test_what_is_no_address_or_holds_a_password_is_refused(tmp_path: Path) -> None:
    done, _ = doctor(tmp_path, "--store", "postgresql://ada:geheim@db/x")
    assert done.returncode == 2 and "PGPASSWORD" in done.stderr and "geheim" not in done.stderr
    done, _ = doctor(tmp_path, "--store", "mysql://db/x")
    assert done.returncode == 2 and "postgresql://" in done.stderr


def test_a_database_that_is_away_is_told(tmp_path: Path) -> None:
    done, checks = doctor(tmp_path, "--store", f"postgresql://ada@127.0.0.1:{free_port()}/x")
    assert done.returncode == 1 and "does not answer" in checks["PostgreSQL"]["found"]


def test_the_folder_of_a_server_is_looked_at_with_its_database(tmp_path: Path, postgres_store: str) -> None:
    server = SharedServer(tmp_path / "a", postgres_store, "")
    server.start()
    try:
        _, checks = doctor(server.folder)
        assert checks["store"]["ok"] and "leader" in checks and checks.keys() >= EXAMINED
    finally:
        server.end(signal.SIGTERM)
    _, checks = doctor(server.folder)
    assert "muster serve" in checks["server"]["found"] and checks.keys() >= EXAMINED


def test_the_database_of_a_folder_that_no_server_has_served_yet_is_looked_at(
    tmp_path: Path, postgres_store: str
) -> None:
    (tmp_path / "muster.toml").write_text(f'[serve]\nstore = "{postgres_store}"\n')
    _, checks = doctor(tmp_path, "--offline")
    assert checks.keys() >= EXAMINED and checks["schema"]["ok"] and "store" not in checks
    assert "muster serve" in checks["server"]["found"]
    away = f"postgresql://ada:geheim@127.0.0.1:{free_port()}/x"
    (tmp_path / "muster.toml").write_text('[serve]\nstore_file = "address"\n')
    (tmp_path / "address").write_text(away)
    done, checks = doctor(tmp_path, "--offline")
    assert "does not answer" in checks["PostgreSQL"]["found"] and "geheim" not in done.stdout
    assert not (tmp_path / ".muster").exists()
    (tmp_path / "muster.toml").write_text("")
    assert run_muster(tmp_path, "task", "add", "ours").returncode == 0
    (tmp_path / "muster.toml").write_text(f'[serve]\nstore = "{postgres_store}"\n')
    _, checks = doctor(tmp_path, "--offline")
    assert checks["store"]["ok"] is False and "a store of its own" in checks["store"]["found"]


def test_the_address_that_a_server_leaves_is_one_without_a_password() -> None:
    for url, bare in {
        "postgresql://ada:geheim@db/x": "postgresql://ada@db/x",
        "postgresql://ada@db/x?password=geheim&a=b": "postgresql://ada@db/x?a=b",
        "postgresql://ada@db/x": "postgresql://ada@db/x",
    }.items():
        assert without_stars(without_password(url)) == bare


def test_a_valkey_that_takes_nothing_once_it_is_full_is_told(tmp_path: Path) -> None:
    with own_folder() as folder:
        valkey = start_valkey(folder, None, "--maxmemory", "50mb", "--maxmemory-policy", "noeviction")
        try:
            (tmp_path / "muster.toml").write_text(f'[runtime]\nurl = "{valkey.url}"\n')
            _, checks = doctor(tmp_path, "--offline")
            assert checks["Valkey"]["ok"] is None and "volatile-ttl" in checks["Valkey"]["fix"]
            told = checks["Valkey"]["fix"].split()
            with socket.create_connection(("127.0.0.1", int(valkey.url.split(":")[2].split("/")[0]))) as line:
                line.sendall(" ".join(told).encode() + b"\r\n")
                assert line.recv(100) == b"+OK\r\n"
            _, checks = doctor(tmp_path, "--offline")
            assert checks["Valkey"]["ok"] and not checks["Valkey"]["fix"]
        finally:
            valkey.stop()
