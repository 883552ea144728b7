"""How long a worker waits until it is known: to a real owner, over its socket."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from muster.agents.host import LocalHost
from muster.client.api import Api
from muster.client.crew import HttpCrew
from muster.client.http import Connection
from muster.config.project import Project
from muster.model import commands as c
from muster.model.errors import Unavailable

WORKERS = 120
P95_MS_MAX = 100.0
STARTED_S = 30.0


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """One whose owner is up, as a process of its own."""
    found = Project(tmp_path)
    owner = subprocess.Popen(
        [sys.executable, "-P", "-m", "muster.app.owner", str(tmp_path)], stderr=subprocess.DEVNULL
    )
    try:
        deadline_s = time.monotonic() + STARTED_S
        while not found.socket.exists():
            assert owner.poll() is None and time.monotonic() < deadline_s, "the owner did not start"
            time.sleep(0.02)
        yield found
    finally:
        owner.terminate()
        owner.wait(STARTED_S)


def _registration(number: int, host: LocalHost) -> c.Register:
    process = host.identify(1)
    assert process is not None
    return c.Register(
        worker_id=f"worker-{number:08d}",
        hostname=host.hostname,
        pid=process.pid,
        pid_start=process.start,
        boot_id=host.boot_id,
        agents=("shell",),
        general=("shell",),
    )


def test_a_worker_is_registered_within_100_ms(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    host = LocalHost()
    waits_ms = []
    for number in range(WORKERS):
        command = _registration(number, host)
        with closing(HttpCrew(project.socket)) as crew:  # each with a connection of its own
            begun_ns = time.perf_counter_ns()
            answer = crew.register(command)
            waits_ms.append((time.perf_counter_ns() - begun_ns) / 1e6)
        assert answer.lease_s > 0
    with closing(Api(Connection(project.socket))) as api:
        assert len(api.get("/api/v1/workers")) == WORKERS
    waits_ms.sort()
    p50_ms, p95_ms = waits_ms[WORKERS // 2], waits_ms[int(WORKERS * 0.95)]
    with capsys.disabled():
        print(f"\n{WORKERS} registrations: p50 {p50_ms:.1f} ms, p95 {p95_ms:.1f} ms")
    assert p95_ms < P95_MS_MAX


def test_nobody_is_registered_where_no_owner_is(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        HttpCrew(Project(tmp_path).socket).register(_registration(1, LocalHost()))
