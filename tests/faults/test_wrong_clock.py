"""A server whose host's clock is wrong takes nobody's work, and is named."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import pytest

from muster_command import run_muster
from patience import until
from postgres_databases import USER, at
from several_servers import QUICK, Balancer, FarWorkers, Servers, SharedServer, worker_of

AHEAD_S = 600
SET_WRONG = f"""\
import time
right, right_ns = time.time, time.time_ns
time.time = lambda: right() + {AHEAD_S}
time.time_ns = lambda: right_ns() + {AHEAD_S} * 1_000_000_000
"""
AGENT = """\
agent = "far"
[health]
heartbeat = "300ms"
[agents.far]
slots = 3
command = ["sh", "-c", "muster report progress 50; sleep 1"]
"""


def tasks(servers: Servers) -> list[Any]:
    with contextlib.closing(servers.api(servers.every[0])) as api:
        found: list[Any] = api.get("/api/v1/agent-tasks", {"plan": "p", "limit": 1000})
        return found


def assert_taken_elsewhere(servers: Servers, at_home: SharedServer, elsewhere: SharedServer) -> None:
    """What a worker is given by one server."""
    worker = FarWorkers(lambda: servers.api(at_home))
    worker.ask_at(lambda: servers.api(elsewhere))
    assert worker.post("heartbeat", workerId=worker.id, attempts=[])["known"]
    worker.post("deregister", workerId=worker.id, reason="it has seen enough")


@pytest.mark.promise("S15")
def test_workers_of_a_balancer_go_on_where_one_servers_clock_is_wrong(
    tmp_path: Path, postgres_database: str
) -> None:
    url = at(postgres_database, postgres_database.rpartition("/")[2], USER)
    servers = Servers(tmp_path, url, 2, QUICK)
    right, wrong = servers.every
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(SET_WRONG)
    wrong.env = {**os.environ, "PYTHONPATH": str(tmp_path / "hooks")}
    try:
        servers.start()
        for at_home, elsewhere in ((right, wrong), (wrong, right)):
            assert_taken_elsewhere(servers, at_home, elsewhere)
        balancer = Balancer([server.port for server in servers.every])
        with worker_of(servers, tmp_path / "host", balancer.url, AGENT, "-n", "2"):
            with contextlib.closing(servers.api(right)) as api:
                for number in range(12):
                    api.post("/api/v1/agent-tasks", {"title": f"t{number}", "plan": "p"})
            until(lambda: {one["status"] for one in tasks(servers)} == {"COMPLETED"}, "all is done")
        assert {one["epoch"] for one in tasks(servers)} == {1}, "no attempt was lost"
        said = (tmp_path / "host" / ".muster" / "muster.log").read_text()
        assert "ended: " not in said and "exit code" not in said
        assert wrong.log().count(f"this host's clock is {AHEAD_S} s ahead of the database's") == 1
        assert "this host's clock" not in right.log()
        finding = f"that of {wrong.named} is {AHEAD_S} s ahead of the database's"
        until(lambda: finding in run_muster(right.folder, "doctor", "--offline").stdout, "doctor names it")
        env = {**os.environ, "MUSTER_TOKEN": servers.token}
        told = run_muster(tmp_path, "doctor", "--offline", "--server", balancer.url, env=env)
        assert finding in told.stdout and told.returncode == 1, told
        balancer.close()
    finally:
        servers.close()
