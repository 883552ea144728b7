"""Two servers that share a PostgreSQL database and a Valkey; the crew's workers know the addresses of both."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import asyncpg

from muster.client.http import Connection
from muster.stores.postgres.schema import SCHEMA
from muster.stores.postgres.statements import for_all, load
from muster.stores.postgres.store import CHECKS
from muster.stores.rows import attempt_of, event_of, task_of
from muster.stores.sqlite.history import Rows
from patience import until
from postgres_faults import DatabaseLine, HarmedPostgres
from real_servers import own_folder
from several_servers import Servers, SharedServer
from valkey_faults import HarmedValkey

_SERVERS = """\
[health]
heartbeat = "500ms"
lease = "5s"
remote_lease = "5s"
sweep = "200ms"
[task]
retries = 50
losses = 1000
backoff = { first = "50ms", max = "200ms" }
[serve]
rate = 0
"""
_WITNESS = (
    "CREATE TABLE public.witness (number bigint GENERATED ALWAYS AS IDENTITY, term bigint, server text)",
    """CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
           INSERT INTO public.witness (term, server) SELECT value::bigint, host(inet_client_addr())
             FROM muster.meta WHERE workspace_id = 0 AND name = 'term';
           RETURN NULL;
       END $$""",
    "CREATE TRIGGER noted AFTER INSERT ON muster.seals FOR EACH ROW EXECUTE FUNCTION public.note()",
    """CREATE TRIGGER noted AFTER INSERT ON muster.events FOR EACH ROW WHEN (NEW.event = 'leader_changed')
       EXECUTE FUNCTION public.note()""",
)
"""What leaders write, and which server it came from: each has a line, and so an address, of its own."""
_HISTORY = for_all(load("history.sql")).by_name


class PostgresBackend:
    settings = '[health]\nheartbeat = "500ms"\n'
    lease_s = 5.0
    far = True

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stack = contextlib.ExitStack()
        self._begun = False
        self.database: HarmedPostgres
        self.valkey: HarmedValkey
        self.lines: list[DatabaseLine]
        self.servers: Servers

    @property
    def up(self) -> Sequence[str]:
        known = [word for server in self.servers.every for word in ("--server", server.url)]
        return ("worker", "start", *known, "-n")

    @property
    def urls(self) -> str:
        return ",".join(server.url for server in self.servers.every)

    def begin(self, env: Mapping[str, str]) -> Mapping[str, str]:
        if not self._begun:
            self._begun = True
            self._begin(env)
        return {"MUSTER_TOKEN": self.servers.token}

    def _begin(self, env: Mapping[str, str]) -> None:
        enter = self._stack.enter_context
        self.database = HarmedPostgres(enter(own_folder()))
        self._stack.callback(self.database.end, signal.SIGINT)
        self._stack.callback(self.database.go_on)
        folder = enter(own_folder())
        folder.mkdir()
        self.valkey = HarmedValkey(folder)
        self._stack.callback(self.valkey.end)
        self.valkey.start()
        self.lines = [
            enter(contextlib.closing(DatabaseLine(self.database.port, f"127.0.0.{n}"))) for n in (2, 3)
        ]
        self.servers = Servers(
            self._root / "servers",
            [self.database.over(line.port) for line in self.lines],
            len(self.lines),
            _SERVERS,
            options=("--runtime", self.valkey.url),
            env=env,
        )
        self._stack.callback(self.servers.close)
        self.servers.start()
        self.database.sql(*_WITNESS)

    def connect(self) -> Connection:
        return Connection(self.urls, self.servers.token)

    def place(self, chance: random.Random) -> Path:
        """The folder's socket: there it is believed who did what."""
        return chance.choice(self.servers.every).folder / ".muster" / "muster.sock"

    def line_of(self, server: SharedServer) -> DatabaseLine:
        return self.lines[self.servers.every.index(server)]

    def revive(self) -> None:
        """Servers that die, or have died, are started, and all are waited for."""
        for server in self.servers.every:
            until(lambda one=server: self._serves(one), f"{server.folder.name} serves")  # type: ignore[misc]

    @staticmethod
    def _serves(server: SharedServer) -> bool:
        if server.process is None or server.process.poll() is not None:
            server.begin()
            return False
        return server.answers()

    def leader(self) -> SharedServer:
        return until(lambda: self.servers.leader, "a server leads")

    def follower(self) -> SharedServer:
        leader = self.leader()
        (other,) = [server for server in self.servers.every if server is not leader]
        return other

    def history(self) -> Rows:
        return asyncio.run(self._history())

    async def _history(self) -> Rows:
        connection = await asyncpg.connect(self.database.url, server_settings={"search_path": SCHEMA})
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                found = {name: await connection.fetch(_HISTORY[name]) for name in _HISTORY}
        finally:
            await connection.close()
        return Rows(
            [task_of(row) for row in found["all_tasks"]],
            [attempt_of(row) for row in found["all_attempts"]],
            [event_of(row) for row in found["all_events"]],
            [(row[0], row[1]) for row in found["all_dependencies"]],
        )

    def damage(self) -> list[str]:
        return asyncio.run(self._damage())

    async def _damage(self) -> list[str]:
        connection = await asyncpg.connect(self.database.url, server_settings={"search_path": SCHEMA})
        try:
            rows = [
                row
                for name, sql in CHECKS.items()
                for row in await connection.fetch(sql, *([False] if name == "hole" else []))
            ]
        finally:
            await connection.close()
        return [row[0] for row in rows]

    def unproven(self) -> list[str]:
        """By each of the servers."""
        self.revive()
        found = []
        for server in self.servers.every:
            report = server.local("GET", "/api/v1/audit/verify")
            if not report["whole"]:
                found += [f"{server.folder.name}: {problem}" for problem in report["problems"]]
        return found

    def old_terms(self) -> tuple[int, list[str]]:
        rows = self.database.sql("SELECT term, server FROM public.witness ORDER BY number")
        return len(rows), under_old_terms([(row[0], row[1]) for row in rows])

    def end(self) -> None:
        self._stack.close()


def under_old_terms(writes: Sequence[tuple[int, str]]) -> list[str]:
    """Writes of leaders, as (present term, server), that were not those of who led in that term."""
    leaders: dict[int, str] = {}
    found = []
    for term, server in writes:
        leader = leaders.setdefault(term, server)
        if leader != server or term < max(leaders):
            found.append(f"{server} wrote in term {term}, which was that of {leader}, after {max(leaders)}")
    return found
