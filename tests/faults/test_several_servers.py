"""Servers that share one store all serve and claim, one leads, and none is missed when it dies."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hook_receiver import Hook, receiving
from muster.client.api import Api, patiently
from muster.client.http import Connection
from muster.model.errors import MusterError
from muster_command import MUSTER
from patience import PATIENCE_S, until
from postgres_databases import USER, at
from several_servers import QUICK, Balancer, FarWorkers, Servers, SharedServer, at_once, several

LIMITS = QUICK.replace("[task]\n", "[task]\nwaiting = 30\n") + "[limits]\ngpu = 2\n"


@pytest.fixture
def empty(postgres_database: str) -> str:
    """The address of a database for a user who owns it, and is to make all that Muster needs there."""
    return at(postgres_database, postgres_database.rpartition("/")[2], USER)


@pytest.fixture
def two(tmp_path: Path, empty: str) -> Iterator[Servers]:
    with several(tmp_path, empty, 2, LIMITS) as servers:
        yield servers


@pytest.fixture
def roomy(tmp_path: Path, empty: str) -> Iterator[Servers]:
    with several(tmp_path, empty, 2) as servers:
        yield servers


def add(servers: Servers, server: SharedServer, title: str, **fields: Any) -> Any:
    with contextlib.closing(servers.api(server)) as api:
        return api.post("/api/v1/agent-tasks", {"title": title, "plan": "p", **fields})


def claimed(workers: list[FarWorkers], slots: int) -> list[Any]:
    """All that they are given, at once."""
    return [job for jobs in at_once([lambda w=w: w.claim(slots) for w in workers]) for job in jobs]  # type: ignore[misc]


def test_three_begin_at_once_on_an_empty_database(tmp_path: Path, empty: str) -> None:
    with several(tmp_path, empty, 3) as servers:
        leader = servers.leader
        assert leader is not None
        others = [server for server in servers.every if server is not leader]
        assert not any(server.leads for server in others)
        for server in others:
            assert until(lambda: server.local("GET", "/api/v1/coordinator/status")["leader"], "it follows")  # noqa: B023
            until(lambda: server.local("GET", "/health/coordinator")["status"] == "healthy", "it is well")  # noqa: B023
            assert set(server.local("POST", "/api/v1/coordinator/reconcile").values()) == {0}
        with contextlib.closing(servers.api(others[0])) as api:
            assert [token["name"] for token in api.get("/api/v1/tokens")] == ["first"]
        assert not (leader.folder / ".muster" / "state.db").exists()


def test_what_one_adds_a_claim_that_waits_at_another_is_given(two: Servers) -> None:
    a, b = two.every
    worker = FarWorkers(lambda: two.api(a))
    given, _ = at_once([lambda: worker.claim(wait_s=30), lambda: add(two, b, "from b")])
    (job,) = given or worker.claim(wait_s=30)
    assert job["title"] == "from b"
    worker.post("start", taskId=job["taskId"], epoch=job["epoch"], tokenHash="0" * 64)
    other = FarWorkers(lambda: two.api(b))
    assert other.claim() == []
    with pytest.raises(MusterError):
        other.post("complete", taskId=job["taskId"], epoch=job["epoch"] + 1)


@pytest.mark.promise("S12")
def test_claims_of_two_servers_overfill_no_limit_and_no_queue(two: Servers) -> None:
    def enqueue(number: int) -> bool:
        try:
            add(two, two.every[number % 2], f"t{number}", limitKey="gpu", idempotencyKey=f"k{number}")
        except MusterError as error:
            assert error.code == "overloaded", error
            return False
        return True

    added = at_once([lambda n=n: enqueue(n) for n in range(40)])  # type: ignore[misc]
    assert sum(added) == 30
    workers = [FarWorkers(lambda n=n: two.api(two.every[n % 2])) for n in range(8)]  # type: ignore[misc]
    jobs = claimed(workers * 2, slots=3)
    assert len(jobs) == 2
    assert len({job["taskId"] for job in jobs}) == 2


@pytest.mark.promise("S1")
def test_each_task_is_given_once_whoever_is_asked(two: Servers) -> None:
    for number in range(20):
        add(two, two.every[number % 2], f"t{number}")
    workers = [FarWorkers(lambda n=n: two.api(two.every[n % 2])) for n in range(6)]  # type: ignore[misc]
    jobs = claimed(workers * 3, slots=4)
    assert len(jobs) == 20
    assert len({job["taskId"] for job in jobs}) == 20


def test_one_key_is_one_task_though_two_servers_hear_it_at_once(two: Servers) -> None:
    made = at_once(
        [lambda n=n: add(two, two.every[n % 2], "same", idempotencyKey="k") for n in range(10)]  # type: ignore[misc]
    )
    assert len({one["id"] for one in made}) == 1
    others = at_once([lambda n=n: add(two, two.every[n % 2], f"t{n}") for n in range(10)])  # type: ignore[misc]
    assert len({one["id"] for one in others}) == 10


def test_one_plan_is_one_though_two_servers_hear_of_it_at_once(roomy: Servers) -> None:
    """Whoever has lost the answer of one asks the other, while the first one is still at it."""

    def add_plan(name: str, number: int) -> int:
        task = {"title": "t", "key": "t"}
        with contextlib.closing(roomy.api(roomy.every[number % 2])) as api:
            return int(api.post("/api/v1/plans", {"plan": name, "source": None, "tasks": [task]})["added"])

    for turn in range(15):
        added = at_once([lambda n=n, turn=turn: add_plan(f"p{turn}", n) for n in range(6)])  # type: ignore[misc]
        assert sum(added) == 1
    with contextlib.closing(roomy.api(roomy.every[0])) as api:
        assert sorted(plan["name"] for plan in api.get("/api/v1/plans")) == sorted(f"p{n}" for n in range(15))


NOTIFY = """\
[notify]
link = "https://{name}.example"
[channels.desk]
kind = "webhook"
url = "{url}"
private = true
tell = ["settled"]
"""


@pytest.fixture
def telling(tmp_path: Path, empty: str) -> Iterator[tuple[Servers, Hook]]:
    """Each server tells by links to itself."""
    two = Servers(tmp_path, empty, 2)
    with receiving() as hook, contextlib.closing(two):
        hook.answers.set()
        for server in two.every:
            with (server.folder / "muster.toml").open("a") as settings:
                settings.write(NOTIFY.format(name=server.folder.name, url=hook.url))
        two.start()
        yield two, hook


def settle(servers: Servers, server: SharedServer, plan: str) -> None:
    with contextlib.closing(servers.api(server)) as api:
        number = api.post("/api/v1/agent-tasks", {"title": plan, "plan": plan})["id"]
        api.post(f"/api/v1/agent-tasks/{number}/complete", {"actor": "user:ann"})


def told_by(hook: Hook, plan: str) -> list[str]:
    links = [json.loads(body)["link"] for _, body in hook.got]
    return [link.partition(".")[0].removeprefix("https://") for link in links if link.endswith(f"/{plan}")]


@pytest.mark.promise("S10")
def test_a_killed_leader_is_replaced_and_its_loops_go_on(telling: tuple[Servers, Hook]) -> None:
    two, hook = telling
    leader = two.leader
    assert leader is not None
    term = leader.term
    (other,) = [server for server in two.every if server is not leader]
    settle(two, other, "first")
    until(lambda: told_by(hook, "first"), "people are told")
    until(lambda: _taken(two, other), "it is known to be taken")
    worker = FarWorkers(lambda: two.api(leader))
    add(two, leader, "left")
    (job,) = worker.claim()
    leader.end(signal.SIGKILL)
    until(lambda: other.leads, "the other one leads")
    assert other.term == term + 1
    successor = FarWorkers(lambda: two.api(other))
    (again,) = until(successor.claim, "the lease of a silent worker is over")
    assert (again["taskId"], again["epoch"]) == (job["taskId"], job["epoch"] + 1)
    leader.start()
    assert not leader.leads
    settle(two, leader, "second")
    until(lambda: told_by(hook, "second"), "people are told")
    until(lambda: _taken(two, other), "it is known to be taken")
    assert other.end() == 0
    until(lambda: leader.leads, "a leader that ends leaves its place at once")
    names = [leader.folder.name, other.folder.name]
    assert [told_by(hook, plan) for plan in ("first", "second")] == [[name] for name in names]


def _taken(servers: Servers, server: SharedServer) -> bool:
    with contextlib.closing(servers.api(server)) as api:
        told = api.get("/api/v1/channels/desk/messages")
    return all(one["deliveredAtMs"] is not None for one in told)


@pytest.mark.promise("S10")
def test_a_leader_that_was_stopped_wakes_as_a_follower(two: Servers) -> None:
    leader = two.leader
    assert leader is not None
    term = leader.term
    (other,) = [server for server in two.every if server is not leader]
    leader.send(signal.SIGSTOP)
    until(lambda: other.leads, "the other one leads")
    leader.send(signal.SIGCONT)
    until(lambda: not leader.leads, "it follows")
    until(lambda: "loops end" in leader.log() or "is over" in leader.log(), "it has ended its loops")
    assert other.term == term + 1
    with contextlib.closing(two.api(other)) as api:
        events = api.get("/api/v1/events", {"limit": 1000})
    led = [event["message"] for event in events if event["event"] == "leader_changed"]
    assert len(led) == term + 1


def test_servers_are_restarted_in_turn_while_clients_go_on(roomy: Servers) -> None:
    """A client that repeats as docs/server.md says misses nothing, and nothing is done twice."""
    token, going = roomy.token, threading.Event()
    with contextlib.closing(Balancer([server.port for server in roomy.every])) as balancer:

        def enqueue(client: int) -> int:
            number = 0
            while not going.is_set():
                number += 1
                body = {"title": "t", "plan": f"p{client}", "key": f"k{number}"}
                body["idempotencyKey"] = f"{client}-{number}"

                def post(body: dict[str, str] = body) -> Any:
                    with contextlib.closing(Api(Connection(balancer.url, token))) as api:
                        return api.post("/api/v1/agent-tasks", body)

                patiently(post, PATIENCE_S)
            return number

        def restart() -> int:
            for server in roomy.every:
                assert server.end() == 0
                server.start()
            going.set()
            return 0

        counts = at_once([lambda: enqueue(1), lambda: enqueue(2), restart])
    with contextlib.closing(roomy.api(roomy.every[0])) as api:
        for client in (1, 2):
            tasks = api.get("/api/v1/agent-tasks", {"plan": f"p{client}", "limit": 1000})
            assert sorted(task["key"] for task in tasks) == sorted(
                f"k{n}" for n in range(1, counts[client - 1] + 1)
            )


WORKER = """\
agent = "far"
[health]
heartbeat = "300ms"
[agents.far]
command = ["sh", "-c", "muster report progress 50; sleep 1; echo \\"$0\\" >> done"]
"""


@pytest.mark.parametrize(
    ("way", "number"),
    [("balancer", signal.SIGKILL), ("addresses", signal.SIGKILL), ("addresses", signal.SIGSTOP)],
)
def test_a_worker_goes_on_with_another_server_when_its_own_is_gone(
    tmp_path: Path, empty: str, way: str, number: signal.Signals
) -> None:
    """It finds it by a balancer, or because it knows all addresses; also where its own only stands still."""
    settings = QUICK.replace('remote_lease = "3s"', 'remote_lease = "60s"')
    with several(tmp_path, empty, 2, settings) as two, contextlib.ExitStack() as stack:
        a, b = two.every
        folder = tmp_path / "w"
        folder.mkdir()
        (folder / "muster.toml").write_text(WORKER)
        servers = ["--server", a.url, "--server", b.url]
        if way == "balancer":
            balancer = stack.enter_context(contextlib.closing(Balancer([b.port, a.port])))
            servers = ["--server", balancer.url]
        env = {**os.environ, "MUSTER_TOKEN": two.token}
        with (folder / "log").open("wb") as log:
            argv = [*MUSTER, "worker", "start", *servers]
            process = subprocess.Popen(argv, cwd=folder, env=env, stdout=log, stderr=log)
        try:
            for task in range(6):
                add(two, a, f"t{task}")
            until((folder / "done").exists, "one is done")
            a.send(number)

            def completed() -> bool:
                with contextlib.closing(two.api(b)) as api:
                    tasks = api.get("/api/v1/agent-tasks", {"plan": "p"})
                return {task["status"] for task in tasks} == {"COMPLETED"}

            until(completed, f"the plan is done: {(folder / 'log').read_text()}")
            with contextlib.closing(two.api(b)) as api:
                epochs = [task["epoch"] for task in api.get("/api/v1/agent-tasks", {"plan": "p"})]
            assert epochs == [1] * 6, "a server's end costs no attempt"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)


@pytest.mark.promise("L5")
def test_the_lease_of_a_worker_is_the_one_that_it_was_told(tmp_path: Path, empty: str) -> None:
    """Whoever cannot renew freezes its agents in time by what it was told: nobody may have its task before."""
    settings = QUICK.replace('lease = "3s"', 'lease = "1s"', 1).replace(
        'remote_lease = "3s"', 'remote_lease = "2s"'
    )
    with several(tmp_path, empty, 1, settings) as one:
        (server,) = one.every
        worker = FarWorkers(lambda: one.api(server))
        assert worker.told["leaseS"] == 2.0
        task = add(one, server, "left")["id"]
        worker.claim()

        def said() -> list[str]:
            with contextlib.closing(one.api(server)) as api:
                events = api.get("/api/v1/events", {"limit": 1000})
            ends = ("released", "worker_dead")
            return [event["message"] for event in events if event["event"] in ends]

        until(lambda: len(said()) == 2, f"task {task} is free again")
        assert (
            said()[0] == f"attempt 1 given back: nothing was heard of {worker.id} for 2 s before it started"
        )
        silent_s = re.fullmatch(r"is dead: nothing was heard of it for (\d+) s", said()[1])
        assert silent_s is not None and int(silent_s[1]) >= 2


SLOTS = QUICK + '[agents.far]\ncommand = ["true"]\nslots = 3\nprovider = "acme"\n'


@pytest.mark.promise("S12")
def test_slots_ends_and_pools_of_one_server_hold_at_the_other(tmp_path: Path, empty: str) -> None:
    with several(tmp_path, empty, 2, SLOTS) as two:
        a, b = two.every
        for number in range(8):
            add(two, two.every[number % 2], f"t{number}", agent="far")
        at_a, at_b = FarWorkers(lambda: two.api(a)), FarWorkers(lambda: two.api(b))
        (first,) = at_a.claim()
        assert len(claimed([at_a, at_b] * 4, slots=2)) == 2, "three at one time, whoever is asked"

        with contextlib.closing(two.api(b)) as api:
            api.post(f"/api/v1/agent-tasks/{first['taskId']}/cancel", {"actor": "user:ada"})
        held = {"taskId": first["taskId"], "epoch": first["epoch"]}
        beat = at_a.post("heartbeat", workerId=at_a.id, attempts=[[held["taskId"], held["epoch"]]])
        assert [order["current"] for order in beat["attempts"]] == [False]

        at_a.post("gone", **held)
        (second,) = at_b.claim()
        held = {"taskId": second["taskId"], "epoch": second["epoch"]}
        at_b.post("start", **held, tokenHash="0" * 64)
        at_b.post("fail", **held, kind="rate_limit", message="429")
        assert at_a.claim() == [], "the provider is waited for at both"


@pytest.mark.promise("L4")
def test_a_server_whose_database_is_away_takes_no_work_and_goes_on_when_it_is_back(
    tmp_path: Path, empty: str
) -> None:
    there = urlsplit(empty)
    assert there.port is not None
    way = Balancer([there.port])
    url = there._replace(netloc=f"{there.username}@127.0.0.1:{way.port}").geturl()
    server = SharedServer(tmp_path / "a", url, QUICK)
    try:
        server.start()
        until(lambda: server.leads, "it leads")
        way.cut()
        until(lambda: not server.ready(), "it says that it takes no work")
        way = Balancer([there.port], way.port)
        until(server.ready, "it takes work again")
        until(lambda: server.leads, "it leads again")
    finally:
        server.end(signal.SIGKILL)
        way.close()
