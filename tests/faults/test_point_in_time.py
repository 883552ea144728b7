"""What docs/several-servers.md tells to type for a restore to a moment, and for that of a dump, word for word."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from muster_command import run_muster
from patience import PATIENCE_S, until
from postgres_databases import at, run_sql
from real_servers import FAST, SETTINGS, Running, as_postgres, own_folder, start_postgres
from several_servers import QUICK, Servers, SharedServer

DOCS = Path(__file__).parents[2] / "docs" / "several-servers.md"
SETTING = re.compile(r"(\w+) = ('[^']*'|\w+)")
LOST, HALTED = re.compile(r"  lost  (.*)"), re.compile(r"the work it is about: (.*); nothing more is written")
OWNER = ("CREATE ROLE muster LOGIN CREATEROLE", "CREATE DATABASE muster OWNER muster")


class Cluster:
    """One that is archived as the docs say, with a database and a user as they name them."""

    def __init__(self, folder: Path) -> None:
        _, _, section = DOCS.read_text().partition("## Backup and restore\n")
        archiving, restore = re.findall(r"```text\n(.*?)```", section, re.DOTALL)[:2]
        self.folder = folder
        self.archiving = [line for line in archiving.splitlines() if line[0] not in "#$"]
        self._base_backup = [line[2:] for line in archiving.splitlines() if line.startswith("$ ")]
        self.lines = [line[2:].partition("  #")[0] for line in restore.splitlines() if line.startswith("$ ")]
        self.settings = SETTING.findall(" ".join(line for line in restore.splitlines() if line[0] == "#"))
        wanted = {
            name: self._here(value.strip("'")) for name, value in SETTING.findall("\n".join(self.archiving))
        }
        self.running = start_postgres(folder, FAST | wanted)
        self.port = str(urlsplit(self.running.url).port)
        self.shell("mkdir -p /backup/wal")
        run_sql(self.running.url, *OWNER)
        self.url = at(self.running.url, "muster", "muster")

    def _here(self, text: str) -> str:
        return text.replace("/backup", str(self.folder / "backup")).replace("db-a", "127.0.0.1")

    def shell(self, line: str) -> None:
        """As PostgreSQL's user, who has another data folder than that of the cluster which is lost."""
        place = {"PGHOST": "127.0.0.1", "PGPORT": self.port, "PGUSER": "postgres"}
        as_postgres(self.folder, self._here(line), PGDATA=str(self.folder / "again"), **place)

    def back_up(self) -> None:
        for line in self._base_backup:
            self.shell(line)

    def archive(self) -> None:
        """All that was written so far."""
        (last,) = run_sql(self.running.url, "SELECT pg_walfile_name(pg_switch_wal())")
        said = "SELECT last_archived_wal FROM pg_stat_archiver"
        until(lambda: (run_sql(self.running.url, said)[0][0] or "") >= last[0], "all is archived")

    def restore(self, moment: str) -> None:
        """As the lines of the docs up to `pg_ctl start`; the settings of the cluster stand in its file here."""
        at_start = self.lines.index("pg_ctl start")
        empty = self.lines.index(next(line for line in self.lines if line.startswith("cp -a")))
        self.shell("mkdir -m 700 again")
        self.shell(self.lines[empty])
        assert {name for name, _ in self.settings} == {
            "restore_command",
            "recovery_target_time",
            "recovery_target_action",
        }
        known = {name: self._here(value) for name, value in self.settings} | {
            "recovery_target_time": f"'{moment}'",
            "max_connections": SETTINGS["max_connections"],
            "port": self.port,
            "listen_addresses": "'127.0.0.1'",
            "unix_socket_directories": f"'{self.folder}'",
        }
        with (self.folder / "again" / "postgresql.conf").open("a") as file:
            file.writelines(f"{line}\n" for line in map(self._here, self.archiving))
            file.writelines(f"{name} = {value}\n" for name, value in known.items())
        self.shell(self.lines[at_start])
        until(lambda: run_sql(self.running.url, "SELECT pg_is_in_recovery()") == [(False,)], "it is promoted")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with own_folder() as folder:
        made = Cluster(folder)
        try:
            yield made
        finally:
            made.running.stop(signal.SIGKILL)
            with contextlib.suppress(OSError, ValueError):
                pid = int((folder / "again" / "postmaster.pid").read_text().split()[0])
                Running("", pid, "", "").stop(signal.SIGKILL)


def task(servers: Servers, server: SharedServer, title: str) -> None:
    with contextlib.closing(servers.api(server)) as api:
        api.post("/api/v1/agent-tasks", {"title": title, "plan": "p", "idempotencyKey": title})


def titles(servers: Servers, server: SharedServer) -> set[str]:
    with contextlib.closing(servers.api(server)) as api:
        return {one["title"] for one in api.get("/api/v1/agent-tasks", {"plan": "p", "limit": 1000})}


def messages(servers: Servers, server: SharedServer) -> list[str]:
    with contextlib.closing(servers.api(server)) as api:
        return [one["message"] for one in api.get("/api/v1/events", {"limit": 1000})]


def go_on(cluster: Cluster, server: SharedServer) -> str:
    """The last line of the docs, in that folder; what `muster db restored` has said."""
    words = cluster.lines[-1].removeprefix("cd server-a && ").split(" && ")
    assert words == ["muster db restored", "muster serve"]
    done = run_muster(server.folder, *words[0].split()[1:])
    assert done.returncode == 0, done.stderr
    server.start()
    return done.stdout


@pytest.mark.promise("S2", "S6")
@pytest.mark.usefixtures("postgres_programs")
def test_the_cluster_as_of_a_moment_and_a_dump_go_on(cluster: Cluster, tmp_path: Path) -> None:
    servers = Servers(tmp_path, cluster.url, 2, QUICK)
    a, b = servers.every
    try:
        servers.start()
        task(servers, a, "before the base backup")
        cluster.back_up()
        task(servers, b, "before the moment")
        dumped = run_muster(a.folder, "db", "backup", str(tmp_path / "muster.dump"))
        assert dumped.returncode == 0, dumped.stderr
        ((moment,),) = run_sql(cluster.running.url, "SELECT clock_timestamp()::text")
        task(servers, a, "after the moment")
        task(servers, b, "after the moment as well")
        cluster.archive()
        assert cluster.lines[0].strip() == "muster down"
        assert run_muster(a.folder, "down").returncode == 0
        assert a.process is not None and a.process.wait(PATIENCE_S) == 0
        cluster.running.stop(signal.SIGKILL)
        shutil.rmtree(cluster.folder / "data")

        cluster.restore(moment)
        until(lambda: "are missing; nothing more is written" in b.log(), "who was left up has halted")
        told = LOST.findall(go_on(cluster, a))[0]
        assert told.startswith(HALTED.findall(b.log())[0]), "the same as the servers say"
        assert any(told in message for message in messages(servers, a)), "and so says the audit"
        until(b.ready, "it goes on by itself")
        expected = {"before the base backup", "before the moment"}
        assert titles(servers, a) == titles(servers, b) == expected
        task(servers, b, "since")
        assert run_muster(a.folder, "audit", "verify").returncode == 0

        for server in servers.every:
            assert server.end() == 0
        (line,) = [one for one in cluster.lines if "pg_restore" in one]
        shutil.copy(tmp_path / "muster.dump", cluster.folder)
        (cluster.folder / "muster.dump").chmod(0o644)
        cluster.shell("dropdb muster")
        cluster.shell(re.sub(r"\S+\.dump", "muster.dump", line))
        go_on(cluster, a)
        assert titles(servers, a) == expected
        task(servers, a, "since the dump")
    finally:
        servers.close()
