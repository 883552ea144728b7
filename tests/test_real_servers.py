"""The servers that tests start: shared by its processes, for root and others, gone with the run."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from muster.hosts.local_host import adopted_orphans
from patience import HOURS_S, PATIENCE_S, until
from postgres_databases import run_sql
from real_servers import (
    UNPRIVILEGED,
    NoServer,
    own_folder,
    run_postgres,
    runs,
    start_postgres,
    start_valkey,
)

TESTS = Path(__file__).parent
USES = """\
import os, time, pytest
from pathlib import Path
from postgres_databases import run_sql

@pytest.mark.parametrize("turn", range(4))
def test_it(postgres, valkey, postgres_database, turn):
    assert run_sql(postgres_database, "SELECT 1")[0][0] == 1
    pid = run_sql(postgres, "SELECT pg_read_file('postmaster.pid')")[0][0].split()[0]
    with Path(os.environ["SEEN"]).open("a") as file:
        file.write(f"{pid} {valkey}\\n")
    time.sleep(float(os.environ["HOLD_S"]))
"""


def gone(pid: str) -> bool:
    return not psutil.pid_exists(int(pid)) or not runs(psutil.Process(int(pid)))


@contextlib.contextmanager
def pytest_run(hold_s: float, *how: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A run of four tests that use both servers, and where they write which; it leaves nothing."""
    with own_folder() as unused:
        temporary = unused.parent
        temporary.chmod(0o711)  # for whoever runs PostgreSQL in root's place
        file, seen = temporary / "test_it.py", temporary / "seen"
        file.write_text(USES)
        argv = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "conftest", "-p", "no:cacheprovider"]
        env = {
            **os.environ,
            "TMPDIR": str(temporary),
            "PYTHONPATH": str(TESTS),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        env |= {"SEEN": str(seen), "HOLD_S": str(hold_s)}
        argv += ["-p", "no:valkey", *how, str(file)]
        with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as run:
            try:
                yield run, seen
            finally:
                run.kill()
        assert {path.name for path in temporary.iterdir()} == {file.name, seen.name}


@pytest.mark.parametrize("how", [(), ("-n2",)], ids=["alone", "side by side"])
def test_all_processes_of_a_run_share_its_servers(how: tuple[str, ...]) -> None:
    with pytest_run(0, *how) as (run, seen):
        said, _ = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == 0, said
        servers = seen.read_text().splitlines()
    assert len(servers) == 4 and len(set(servers)) == 1
    assert gone(servers[0].split()[0])


@pytest.mark.parametrize("how", [(), ("-n2",)], ids=["alone", "side by side"])
def test_ctrl_c_leaves_no_server(how: tuple[str, ...]) -> None:
    with pytest_run(HOURS_S, *how) as (run, seen):
        until(lambda: run.poll() is not None or seen.exists(), "a test has both servers")
        until(lambda: run.poll() is not None or seen.read_text().endswith("\n"))
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=PATIENCE_S)
        assert run.returncode == pytest.ExitCode.INTERRUPTED, said
        pid = seen.read_text().split()[0]
    assert gone(pid)


def test_a_database_is_gone_with_its_test(postgres: str, postgres_database: str) -> None:
    run_sql(postgres_database, "CREATE TABLE own (id int)", "INSERT INTO own VALUES (7)")
    name = postgres_database.rpartition("/")[2]
    rows = run_sql(postgres, "SELECT datname FROM pg_database WHERE datname LIKE 'muster_test_%'")
    assert name in {row[0] for row in rows}


def test_valkey_answers(valkey: str) -> None:
    host, _, port = valkey.removeprefix("valkey://").removesuffix("/0").rpartition(":")
    with socket.create_connection((host, int(port))) as asking:
        asking.sendall(b"SET own 7\r\nGET own\r\nDEL own\r\n")
        said = b""
        while said.count(b"\n") < 4:
            said += asking.recv(100)
    assert said == b"+OK\r\n$1\r\n7\r\n:1\r\n"


def test_no_crew_of_this_process_takes_a_server_for_an_orphan() -> None:
    with own_folder() as folder:
        server = start_valkey(folder)
        try:
            assert server.pid not in {orphan.pid for orphan in adopted_orphans(())}
            assert os.getpgid(server.pid) == server.pid, "Ctrl-C does not reach it"
        finally:
            server.stop()


def test_a_killed_server_comes_back_with_what_was_committed() -> None:
    """With the settings of production: each commit is synced."""
    with own_folder() as folder:
        server = start_postgres(folder)
        run_sql(server.url, "CREATE TABLE own (id int)", "INSERT INTO own VALUES (7)")
        assert run_sql(server.url, "SHOW fsync")[0][0] == "on"
        server.stop(signal.SIGKILL)
        again = run_postgres(folder)
        try:
            assert [row[0] for row in run_sql(again.url, "SELECT id FROM own")] == [7]
        finally:
            again.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="whoever runs this test is an ordinary user")
def test_an_ordinary_user_starts_one_as_well() -> None:
    with own_folder() as folder:
        user = pwd.getpwnam(UNPRIVILEGED)
        folder.parent.chmod(0o755)
        os.chown(folder.parent, user.pw_uid, user.pw_gid)

        def start_and_stop() -> None:
            os.setgroups([])
            os.setgid(user.pw_gid)
            os.setuid(user.pw_uid)
            server = start_postgres(folder)
            with socket.socket(socket.AF_UNIX) as asking:
                asking.connect(server.socket)
            server.stop()

        # Forked, as Python itself may lie where that user cannot read it.
        child = multiprocessing.get_context("fork").Process(target=start_and_stop)
        child.start()
        child.join(PATIENCE_S)
        assert child.exitcode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
def test_a_closed_folder_is_named(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "run").mkdir(parents=True)
    closed.chmod(0o700)
    with pytest.raises(NoServer, match=rf"{UNPRIVILEGED} may not enter .*TMPDIR"):
        start_postgres(closed / "run" / "postgres")
