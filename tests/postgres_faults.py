"""A PostgreSQL of a test's own, the lines to it, and what may become of them."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
from pathlib import Path
from typing import Any

import psutil

from patience import until
from postgres_databases import USER, at, run_sql
from real_servers import Running, free_port, run_postgres, start_postgres
from several_servers import both_ways

NAME = "muster"
SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'muster' AND backend_type = 'client backend'"
)


class HarmedPostgres:
    """Always at the same port, with its usual settings: whatever it has acknowledged is synced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self._settings = {"port": str(self.port)}
        self._running: Running = start_postgres(folder, self._settings)
        with (folder / "data" / "pg_hba.conf").open("a") as file:
            file.write("host all all 127.0.0.0/8 trust\n")  # each line to it has an address of its own
        user = f"CREATE ROLE {USER} NOSUPERUSER CREATEROLE LOGIN"
        run_sql(self._running.url, "SELECT pg_reload_conf()", user, f"CREATE DATABASE {NAME} OWNER {USER}")

    @property
    def url(self) -> str:
        """A superuser's."""
        return at(self._running.url, NAME)

    def over(self, port: int) -> str:
        """The address for a server that reaches it over a line at this port."""
        return f"postgresql://{USER}@127.0.0.1:{port}/{NAME}"

    def sql(self, *statements: str) -> list[Any]:
        return run_sql(self.url, *statements)

    def answers(self) -> bool:
        try:
            return bool(self.sql("SELECT 1"))
        except Exception:
            return False

    def end(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGKILL: its postmaster dies, and with it all that serves."""
        self._running.stop(how)

    def start(self) -> None:
        self._running = run_postgres(self._folder, self._settings)

    def stand_still(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            postmaster = psutil.Process(self._running.pid)
            # The postmaster first: it would start another one in the place of whoever is gone.
            for process in (postmaster, *postmaster.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)

    def kill_a_session(self, chance: random.Random) -> None:
        """Nobody knows what it has written to the memory that all share: all sessions end, and it recovers."""
        pids = [row[0] for row in self.sql(SESSIONS)]
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(pids), signal.SIGKILL)
        until(self.answers, "the database has recovered")

    def end_sessions(self) -> None:
        self.sql(f"SELECT pg_terminate_backend(pid) FROM ({SESSIONS}) AS them")


class DatabaseLine:
    """From one server to its database, which knows the server by the address that the line comes from."""

    def __init__(self, port: int, source: str) -> None:
        self._there = port
        self.source = source
        self._away = False
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, away: bool = False) -> None:
        """All that go over it break; `away`: and nobody gets through any more."""
        with self._lock:
            self._away = away
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._away = False

    def close(self) -> None:
        self.cut(away=True)
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                threading.Thread(target=self._carry, args=(caller,), daemon=True).start()

    def _carry(self, caller: socket.socket) -> None:
        there = ("127.0.0.1", self._there)
        with contextlib.suppress(OSError), caller:
            if self._away:
                return
            with socket.create_connection(there, source_address=(self.source, 0)) as database:
                with self._lock:
                    if self._away:
                        return
                    self._open |= {caller, database}
                try:
                    both_ways(caller, database)
                finally:
                    with self._lock:
                        self._open -= {caller, database}
