"""A store that several servers share is asked wherever one of them answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import muster
from cli_owner import Cli, Owner
from far_servers import SECRET, FarOwner, far_owner
from muster.app.remote_crew import refuse_other_work
from muster.client import http
from muster.client.async_http import AsyncConnections
from muster.client.crew import HttpCrew
from muster.client.http import ClientRequest, Connection
from muster.client.remote import ServerPlaces
from muster.config.project import Project
from muster.model import commands as c
from muster.model.errors import Conflict, MusterError, OwnerUnavailable
from patience import PATIENCE_S, until


@pytest.fixture
def far(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FarOwner]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    with far_owner(tmp_path / "elsewhere") as made:
        yield made


@pytest.fixture
def dead() -> str:
    """Nobody listens there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"http://127.0.0.1:{free.getsockname()[1]}"


class Unable:
    """Lets everybody in, and answers nothing, or that it can do nothing now."""

    def __init__(self, answer: bytes = b"") -> None:
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self._let_in: list[socket.socket] = []
        self.asked = 0
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._let_in.append(self._listening.accept()[0])
                threading.Thread(target=self._hear, args=(self._let_in[-1],), daemon=True).start()

    def _hear(self, caller: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while caller.recv(1 << 16):
                self.asked += 1
                caller.sendall(self._answer)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        for one in (self._listening, *self._let_in):
            one.close()


AWAY = b'{"code": "store_away", "detail": "no database", "hint": ""}'
AWAY_ANSWER = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n%s" % (len(AWAY), AWAY)


@pytest.fixture
def silent() -> Iterator[Unable]:
    with contextlib.closing(Unable()) as made:
        yield made


@pytest.fixture
def unable() -> Iterator[Unable]:
    with contextlib.closing(Unable(AWAY_ANSWER)) as made:
        yield made


def test_commands_ask_the_server_that_answers(cli: Cli, far: FarOwner, dead: str, unable: Unable) -> None:
    env = {"MUSTER_TOKEN": SECRET}
    ran = cli("plan", "list", "--server", dead, "--server", far.url, env=env)
    assert (ran.code, ran.out.split()[0]) == (0, "billing"), ran.err
    ran = cli("plan", "list", env={**env, "MUSTER_SERVER": f"{unable.url},{far.url}"})
    assert ran.code == 0 and unable.asked == 1, ran.err
    ran = cli("plan", "pause", "billing", "--server", f"{dead},{far.url}", env=env)
    assert ran.code == 0, ran.err
    ran = cli("plan", "list", "--server", dead, "--server", "http://127.0.0.1:1", env=env)
    assert ran.code == 7 and f"no server answers at {dead}, http://127.0.0.1:1: " in ran.err
    assert cli("plan", "list", "--server", f"{far.url},muster.example", env=env).code == 2


def test_each_server_is_asked_once_and_what_keeps_it_from_answering_is_told(
    dead: str, silent: Unable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "SLOW_S", 0.1)
    noted: list[str] = []
    with contextlib.closing(Connection(f"{dead},{silent.url}", slow=noted.append)) as connection:
        for _ in range(2):  # whichever it begins at
            with pytest.raises(OwnerUnavailable) as away:
                connection.request(ClientRequest("GET", "/api/v1/status", reply_s=0.5))
            assert f"{dead} (Connection refused)" in str(away.value)
            assert f"{silent.url} (timed out)" in str(away.value)
    assert silent.asked == 2
    assert len(noted) == 2 and f"{silent.url} has not answered" in noted[0]


def test_programs_with_an_event_loop_ask_each_server_once_too(dead: str, silent: Unable) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        refusing = f"http://127.0.0.1:{free.getsockname()[1]}"

    async def ask() -> None:
        connections = AsyncConnections(f"{dead},{silent.url},{refusing}")
        try:
            for _ in range(3):  # whichever it begins at
                with pytest.raises(OwnerUnavailable) as away:
                    await connections.request(ClientRequest("GET", "/api/v1/status", reply_s=0.5))
                for one, why in ((dead, "refused"), (silent.url, "timed out"), (refusing, "refused")):
                    assert re.search(rf"{one} \([^)]*{why}", str(away.value)), away.value
        finally:
            await connections.close()

    asyncio.run(ask())
    assert silent.asked == 3


def test_an_order_that_cannot_be_carried_out_is_not_given_again_unasked(
    far: FarOwner, unable: Unable
) -> None:
    """Nobody knows what became of it; but who repeats it asks the next server."""
    with contextlib.closing(Connection(f"{unable.url},{far.url}", SECRET)) as connection:
        order = ClientRequest("POST", "/api/v1/plans/billing/pause", b"{}", {})
        assert connection.request(order)[0] == 503
        assert unable.asked == 1
        assert connection.request(order)[0] < 300


def test_a_login_names_all_servers_and_its_token_is_good_for_each(cli: Cli, far: FarOwner, dead: str) -> None:
    both = f"{dead},{far.url}/"
    assert cli("login", both, "--name", "work", stdin=SECRET.encode()).code == 0
    (kept,) = json.loads(cli("context", "list", "--json").out)
    assert kept["server"] == f"{dead},{far.url}"
    assert cli("plan", "list", "--context", "work").code == 0
    assert cli("plan", "list", "--server", far.url).code == 0, "the token of the context with this address"
    assert cli("plan", "list", "--server", f"{far.url},http://127.0.0.1:1").code == 4, (
        "another store, perhaps"
    )


def test_programs_go_on_at_the_server_that_answers(far: FarOwner, dead: str, unable: Unable) -> None:
    for first in (dead, unable.url):
        client = muster.Client(server=f"{first},{far.url}", token=SECRET)
        assert [plan.name for plan in client.plans()][:1] == ["billing"]

        async def ask(first: str = first) -> None:
            async with muster.AsyncClient(server=f"{first},{far.url}", token=SECRET) as client:
                assert [plan.name for plan in await client.plans()][:1] == ["billing"]
                await client.add("t", plan="p")

        asyncio.run(ask())


W1 = "worker-aaaaaaaa"


def token_of_ended(far: FarOwner) -> Any:
    """The token of a worker that has ended since: whoever asks with it is told so."""
    crew = HttpCrew(far.url, SECRET)
    crew.register(c.Register(worker_id=W1, hostname="far", pid=1, pid_start=1, boot_id="b", agents=("a",)))
    crew.deregister(c.Deregister(worker_id=W1))
    return crew._own


def test_a_server_that_one_thread_has_given_up_is_waited_for_by_none(far: FarOwner, silent: Unable) -> None:
    """A worker's heartbeat notices it, and who waits for work at that server asks the next one."""
    crew = HttpCrew(f"{silent.url},{far.url}", SECRET, reply_s=0.2)
    crew._worker_id, crew._own = W1, token_of_ended(far)
    told: list[MusterError] = []

    def claim() -> None:
        while not (told and isinstance(told[-1], Conflict)):
            try:
                crew.claim(c.Claim(worker_id=W1, request_id="r"), wait_s=60.0)
            except MusterError as error:
                told.append(error)

    waiting = threading.Thread(target=claim, daemon=True)
    waiting.start()
    until(lambda: silent.asked, "it waits")
    heartbeat = c.Heartbeat(worker_id=W1, attempts=())
    with pytest.raises(OwnerUnavailable):
        crew.heartbeat(heartbeat, wait_s=0)
    assert not crew.heartbeat(heartbeat, wait_s=0).known, "the other server answers"
    waiting.join(PATIENCE_S)
    assert not waiting.is_alive() and isinstance(told[-1], Conflict), told
    assert "it closed the connection" in told[0].message, "it has not waited until its own time was over"


def test_who_finds_it_given_up_already_does_not_go_on_to_the_next_but_one() -> None:
    places = ServerPlaces("http://a:1, http://b:1 ,http://c:1")
    lost = places.now
    for _ in range(2):
        places.leave(lost)
    assert [one.host for one in (lost, places.now)] == ["a", "b"]


def test_servers_of_a_store_may_come_and_go_for_a_folder_of_workers(owner: Owner, tmp_path: Path) -> None:
    elsewhere = Project(tmp_path / "workers")
    elsewhere.server_file.parent.mkdir(parents=True)
    elsewhere.server_file.write_text("http://a:1,http://b:1")
    refuse_other_work(elsewhere, "http://c:1,http://b:1")
    with pytest.raises(Conflict, match="has worked for"):
        refuse_other_work(elsewhere, "http://c:1,http://d:1")
