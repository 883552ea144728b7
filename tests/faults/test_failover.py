"""A standby takes the database's place: nothing that was acknowledged is lost, or all say that it was."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from muster.client.api import Api, patiently
from muster.client.crew import HttpCrew
from muster.client.http import Connection
from muster.model import commands as c
from muster.model.errors import MusterError, StoreFault
from muster_command import MUSTER
from patience import PATIENCE_S, until
from several_servers import QUICK, FarWorkers, Servers, SharedServer, at_once, several
from standbys import standby

REGISTER = c.Register(
    worker_id="worker-a1b2c3d4",
    hostname="far",
    pid=1,
    pid_start=1,
    boot_id="boot",
    slots=1,
    agents=("far",),
    general=("far",),
)
BEAT = c.Heartbeat(worker_id=REGISTER.worker_id, attempts=())
SETTINGS = QUICK.replace('lease = "3s"', 'lease = "60s"')


def restored(server: SharedServer) -> Any:
    argv = [*MUSTER, "-C", str(server.folder), "db", "restored", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def task(servers: Servers, server: SharedServer, title: str) -> Any:
    with contextlib.closing(servers.api(server)) as api:
        return api.post("/api/v1/agent-tasks", {"title": title, "plan": "p", "idempotencyKey": title})


def tasks(servers: Servers, server: SharedServer) -> Any:
    """A server that was ready a moment ago may have lost its database once more."""

    def ask() -> Any:
        with contextlib.closing(servers.api(server)) as api:
            return api.get("/api/v1/agent-tasks", {"plan": "p", "limit": 1000})

    return patiently(ask, PATIENCE_S)


def titles(servers: Servers, server: SharedServer) -> set[str]:
    return {one["title"] for one in tasks(servers, server)}


class Client:
    """Adds tasks, and does them, until it is told to end; keeps what it was told to be done."""

    def __init__(self, servers: Servers, server: SharedServer, name: str) -> None:
        self._url, self._token, self._name = server.url, servers.token, name
        self.added: set[str] = set()
        self.completed: dict[int, int] = {}
        """Epoch by task."""
        self.ending = threading.Event()

    def _ask(self, call: Callable[[Api], Any]) -> Any:
        def once() -> Any:
            with contextlib.closing(Api(Connection(self._url, self._token))) as api:
                return call(api)

        return patiently(once, PATIENCE_S)

    def run(self) -> int:
        worker = FarWorkers(lambda: Api(Connection(self._url, self._token)))
        number = 0
        while not self.ending.is_set():
            number += 1
            title = f"{self._name}-{number}"
            body = {"title": title, "plan": "p", "key": title, "idempotencyKey": title}
            self._ask(lambda api: api.post("/api/v1/agent-tasks", body))  # noqa: B023
            self.added.add(title)
            request = f"{self._name}-claim-{number}"
            for job in patiently(lambda: worker.claim(request=request), PATIENCE_S):  # noqa: B023
                held = {"taskId": job["taskId"], "epoch": job["epoch"]}
                patiently(lambda: worker.post("start", **held, tokenHash="0" * 64), PATIENCE_S)  # noqa: B023
                patiently(lambda: worker.post("complete", **held), PATIENCE_S)  # noqa: B023
                self.completed[job["taskId"]] = job["epoch"]
        return number


@pytest.mark.promise("S6", "S1", "S4")
def test_a_synchronous_standby_has_all_that_was_acknowledged(tmp_path: Path) -> None:
    with standby(synchronous=True) as database, several(tmp_path, database.url, 2, SETTINGS) as two:
        task(two, two.every[0], "first")
        clients = [Client(two, server, name) for server, name in zip(two.every, "ab", strict=True)]

        def fail_over() -> int:
            try:
                until(lambda: all(len(client.completed) > 2 for client in clients), "they are at work")
                database.fail_over()
                before = [len(client.completed) for client in clients]
                until(
                    lambda: all(len(c.completed) > n + 2 for c, n in zip(clients, before, strict=True)),
                    f"they work on with the standby: {[server.log() for server in two.every]}",
                )
            finally:
                for client in clients:
                    client.ending.set()
            return 0

        at_once([*(client.run for client in clients), fail_over])
        # What leads looks at the database with growing pauses while it is away: clients may be sooner.
        until(lambda: all(server.ready() for server in two.every), "both take work")
        until(lambda: two.leader, "one of them leads")
        added = set().union(*(client.added for client in clients))
        assert added <= titles(two, two.every[0])
        every = tasks(two, two.every[1])
        found = {one["id"]: (one["status"], one["epoch"]) for one in every}
        assert len(every) == len({one["title"] for one in every}), "none was added twice"
        for client in clients:
            for task_id, epoch in client.completed.items():
                assert found[task_id] == ("COMPLETED", epoch), "none was done twice"


def refused(call: Callable[[], object]) -> bool:
    """Because the store is behind; while it is away that is not known yet."""
    try:
        call()
    except StoreFault as error:
        assert error.code == "store_rewound" and "muster db restored" in error.hint
        return True
    except MusterError:
        return False
    raise AssertionError("it was written")


@pytest.mark.promise("S2")
def test_servers_halt_where_the_standby_lags_until_a_person_takes_it_as_it_is(tmp_path: Path) -> None:
    with standby(synchronous=False) as database, several(tmp_path, database.url, 2, SETTINGS) as two:
        a, b = two.every
        task(two, a, "kept")
        until(lambda: kept(database.second.url), "the standby has it")
        database.cut_off()
        task(two, a, "lost")
        task(two, b, "lost as well")
        worker = FarWorkers(lambda: two.api(a))
        (job,) = worker.claim()
        database.fail_over()
        for server in two.every:
            until(lambda: refused(lambda: task(two, server, "late")), "it writes nothing")  # noqa: B023
            assert titles(two, server) == {"kept"}, "reads go on"
            assert not server.ready()
        told = restored(a)
        assert "commit" in told["missing"] and told["base"] > 1_000_000
        for server in two.every:
            until(server.ready, "it goes on by itself")
        task(two, b, "late")
        beat = worker.post("heartbeat", workerId=worker.id, attempts=[[job["taskId"], job["epoch"]]])
        assert not beat["known"] or not beat["attempts"][0]["current"]
        again = FarWorkers(lambda: two.api(b)).claim()
        assert again and all(one["epoch"] > told["base"] for one in again)
        with contextlib.closing(two.api(b)) as api:
            (event,) = [
                one for one in api.get("/api/v1/events", {"limit": 1000}) if one["event"] == "store_restored"
            ]
        assert event["actor"].startswith("user:") and "missing" in event["message"]


def kept(standby_url: str) -> bool:
    from postgres_databases import at, run_sql

    with contextlib.suppress(Exception):  # it has no such table yet
        return bool(run_sql(at(standby_url, "app"), "SELECT 1 FROM muster.tasks WHERE title = 'kept'"))
    return False


@pytest.mark.promise("S2")
def test_a_server_that_was_away_and_a_worker_elsewhere_notice_it_as_well(tmp_path: Path) -> None:
    """Whoever is left has seen nothing that is missing."""
    with standby(synchronous=False) as database, several(tmp_path, database.url, 2, SETTINGS) as two:
        a, b = two.every
        task(two, a, "kept")
        until(lambda: kept(database.second.url), "the standby has it")
        worker = FarWorkers(lambda: two.api(a))
        assert a.end() == 0
        (a.folder / ".muster" / "store.witness").unlink()
        until(lambda: b.leads, "the other one leads")
        database.cut_off()
        worker = FarWorkers(lambda: two.api(b))
        (job,) = worker.claim()
        assert b.end() == 0
        database.fail_over()
        a.start()
        task(two, a, "late")
        b.begin()
        assert b.process is not None and b.process.wait(PATIENCE_S) == 1
        assert "muster db restored" in b.log()
        until(lambda: refused(lambda: task(two, a, "later")), "the one that was there is told")
        restored(b)
        until(a.ready, "it goes on by itself")
        b.start()
        # A proof of what was granted in an earlier life counts no more.
        beat = worker.post("heartbeat", workerId=worker.id, attempts=[[job["taskId"], job["epoch"]]])
        assert not beat["known"] or not beat["attempts"][0]["current"]


@pytest.mark.promise("S2")
def test_a_worker_has_seen_what_new_servers_of_an_old_database_cannot_know(tmp_path: Path) -> None:
    """All of them begin anew with the standby, in folders that have noted nothing; the worker holds nothing."""
    with standby(synchronous=False) as database, several(tmp_path, database.url, 2, SETTINGS) as two:
        a, b = two.every
        task(two, a, "kept")
        crew = HttpCrew(f"{a.url},{b.url}", two.token, key="k" * 32)
        crew.register(REGISTER)
        assert crew.heartbeat(BEAT, wait_s=0).seen
        until(lambda: kept(database.second.url), "the standby has it")
        database.cut_off()
        task(two, a, "lost")
        crew.heartbeat(BEAT, wait_s=0)
        for server in two.every:
            server.end(signal.SIGKILL)
            (server.folder / ".muster" / "store.witness").unlink()
        database.fail_over()
        two.start()
        assert titles(two, b) == {"kept"}, "nobody has noticed"
        until(lambda: refused(lambda: crew.heartbeat(BEAT, wait_s=0)), "it tells them")
        for server in two.every:
            until(lambda: refused(lambda: task(two, server, "late")), "nothing is written")  # noqa: B023
            assert not server.ready()
        assert "commit" in restored(a)["missing"]
        for server in two.every:
            until(server.ready, "it goes on by itself")
        crew.heartbeat(BEAT, wait_s=0)
        task(two, b, "late")


def test_what_nobody_has_signed_halts_nothing(tmp_path: Path, postgres_store: str) -> None:
    with several(tmp_path, postgres_store, 1, SETTINGS) as one:
        (server,) = one.every
        crew = HttpCrew(server.url, one.token, key="k" * 32)
        crew.register(REGISTER)
        seen = crew.heartbeat(BEAT, wait_s=0).seen
        *commit, number, mac = seen.split(".")
        for made_up in ("x", "....", ".".join([*commit, str(int(number) + 9), mac]), "9" * 40):
            crew._seen = made_up
            assert crew.heartbeat(BEAT, wait_s=0).known
        assert server.ready()
