"""What attempts leave is at every server of a store: files that they name, checkpoints, and what they print."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from muster.client.api import Api
from muster.client.http import ClientRequest, Connection
from muster.model.errors import MusterError
from muster.web.identity import hash_of
from patience import until
from postgres_databases import USER, at
from several_servers import QUICK, Balancer, FarWorkers, Servers, SharedServer, several, worker_of


@pytest.fixture
def pair(tmp_path: Path, postgres_database: str) -> Iterator[Servers]:
    url = at(postgres_database, postgres_database.rpartition("/")[2], USER)
    with several(tmp_path, url, 2, QUICK.replace('remote_lease = "3s"', 'remote_lease = "60s"')) as servers:
        yield servers


AGENT = """\
agent = "far"
[health]
heartbeat = "300ms"
[agents.far]
command = ["sh", "-c", "{0}"]
"""
MAKES = (
    "head -c 1500000 /dev/zero > out && echo end >> out && muster report artifact 'the report/1' out && "
    "echo half > half && muster report checkpoint half && echo printed"
)


def got(servers: Servers, server: SharedServer, path: str) -> bytes:
    with contextlib.closing(Connection(server.url, servers.token)) as connection:
        status, body = connection.request(ClientRequest("GET", path))
    assert status == 200, body
    return body


def test_what_a_worker_behind_a_balancer_has_left_is_at_each_server(pair: Servers, tmp_path: Path) -> None:
    with (
        contextlib.closing(Balancer([server.port for server in pair.every])) as balancer,
        worker_of(pair, tmp_path / "w", balancer.url, AGENT.format(MAKES)),
        contextlib.closing(pair.api(pair.every[0])) as api,
    ):
        task = api.post("/api/v1/agent-tasks", {"title": "t", "plan": "p"})["id"]
        path = f"/api/v1/agent-tasks/{task}"
        until(lambda: api.get(path)["task"]["status"] == "COMPLETED", "it is done")
    for server in pair.every:
        with contextlib.closing(pair.api(server)) as api:
            (made,) = api.get(f"{path}/artifacts")
            assert (made["name"], made["bytes"]) == ("the report/1", 1_500_004)
            assert api.get(f"{path}/checkpoint")["epoch"] == 1
        name = "the%20report%2F1"
        assert got(pair, server, f"{path}/artifacts/1/{name}/content").endswith(b"\0end\n")
        assert base64.b64encode(b"printed\n") in got(pair, server, f"{path}/output?epoch=1")
        assert not [*(server.folder / ".muster" / "attempts").iterdir()], "nothing of it is on its disk"


def test_a_file_whose_server_is_killed_in_the_middle_is_whole_at_the_other(pair: Servers) -> None:
    a, b = pair.every
    worker = FarWorkers(lambda: pair.api(a))
    with contextlib.closing(pair.api(a)) as api:
        api.post("/api/v1/agent-tasks", {"title": "t", "plan": "p"})
    (job,) = worker.claim()
    token = secrets.token_hex(16)
    held = {"taskId": job["taskId"], "epoch": job["epoch"]}
    worker.post("start", **held, tokenHash=hash_of(token))
    data = os.urandom(900_000)
    announced = {"name": "out", "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}

    def say(server: SharedServer, verb: str, body: dict[str, Any]) -> Any:
        with contextlib.closing(Api(Connection(server.url), {"Authorization": f"Bearer {token}"})) as api:
            return api.post(f"/attempt/v1/{job['taskId']}/{job['epoch']}/{verb}", body)

    def part(server: SharedServer, offset: int, size: int) -> Any:
        text = base64.b64encode(data[offset : offset + size]).decode()
        return say(server, "artifact/content", {**announced, "offset": offset, "data": text})

    assert part(a, 0, 500_000) == {"received": 500_000, "whole": False}
    say(a, "checkpoint", {"data": base64.b64encode(b"half").decode()})
    a.end(signal.SIGKILL)
    with pytest.raises(MusterError):
        part(a, 500_000, 400_000)
    assert part(b, 500_000, 400_000) == {"received": 900_000, "whole": True}
    say(b, "artifact", {"name": "out", "location": "out"})
    path = f"/api/v1/agent-tasks/{job['taskId']}"
    assert got(pair, b, f"{path}/artifacts/1/out/content") == data
    with contextlib.closing(pair.api(b)) as api:
        kept = api.get(f"{path}/checkpoint")
    assert base64.b64decode(kept["data"]) == b"half"
    a.start()
    assert got(pair, a, f"{path}/artifacts/1/out/content") == data
