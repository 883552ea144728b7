"""Workers make themselves known: to a real owner, over its socket."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from around import worker_context
from real_crew import crew, start

from muster.client.api import Api
from muster.client.crew import HttpCrew
from muster.client.http import Connection, answers
from muster.config.project import Project
from muster.hosts.local_host import LocalHost
from muster.model import commands as c
from muster.model.errors import BadInput, OwnerUnavailable, Unavailable
from muster.ports.host import ProcessId
from muster.runtimes.chance import SystemChance
from muster.worker.worker import Worker
from patience import HOURS_S, PATIENCE_S, until

WORKERS = 20


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    """One whose owner is up, as a process of its own."""
    found = Project(tmp_path)
    owner = subprocess.Popen(
        [sys.executable, "-P", "-m", "muster.app.owner", str(tmp_path)], stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: answers(found.socket) or owner.poll() is not None, "the owner answers")
        yield found
    finally:
        owner.terminate()
        owner.wait(PATIENCE_S)


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


def test_all_who_register_are_known(project: Project) -> None:
    host = LocalHost()
    for number in range(WORKERS):
        with closing(HttpCrew(project.socket)) as crew:  # each with a connection of its own
            assert crew.register(_registration(number, host)).lease_s > 0
    with closing(Api(Connection(project.socket))) as api:
        assert len(api.get("/api/v1/workers")) == WORKERS


def test_nobody_is_registered_where_no_owner_is(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        HttpCrew(Project(tmp_path).socket).register(_registration(1, LocalHost()))


@pytest.mark.parametrize("up_s", [0.0, 1e6], ids=["just booted", "up for days"])
def test_a_worker_that_begins_before_its_owner_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, up_s: float
) -> None:
    begun_s, clock = time.monotonic(), time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: clock() - begun_s + up_s)
    crew = LateOwner()
    worker = Worker(
        crew,  # type: ignore[arg-type]
        worker_context(tmp_path),
        SystemChance(),
        hostname="h",
        boot_id="b",
        process=ProcessId(1, 1),
        slots=1,
        general=(),
        offers={},
        orphan_grace_s=HOURS_S,
    )
    with pytest.raises(BadInput, match="heard"):
        worker.run()
    assert crew.asked == 3


class LateOwner:
    asked = 0

    def register(self, command: c.Register) -> None:
        self.asked += 1
        raise BadInput("heard") if self.asked == 3 else OwnerUnavailable("not yet")


def test_whoever_takes_the_place_of_a_dead_worker_goes_on_with_its_task(tmp_path: Path) -> None:
    """Fresh tasks wait as well, and the coordinator itself looks much later."""
    (tmp_path / "muster.toml").write_text('[health]\nsweep = "10m"\n')
    script = "echo $$ >> {}; exec sleep 300"
    tasks = [
        {"title": key, "key": key, "agent": "shell", "priority": priority, "description": script.format(key)}
        for key, priority in (("begun", 9), ("fresh", 5), ("urgent", 9))
    ]
    with crew(tmp_path, "owner", "worker") as (api, processes):
        plan = {"plan": "p", "source": None, "actor": "test"}
        api.post("/api/v1/plans", plan | {"tasks": tasks[:1]})
        until((tmp_path / "begun").exists, "the first runs")
        api.post("/api/v1/plans", plan | {"tasks": tasks})
        processes[1].kill()
        processes[1].wait()
        processes.append(start(tmp_path, "worker"))
        until(
            lambda: any((tmp_path / key).exists() for key in ("fresh", "urgent")) or two_runs(tmp_path),
            "one runs",
        )
        assert two_runs(tmp_path), "it went on with the task that was half done"


def two_runs(folder: Path) -> bool:
    return len((folder / "begun").read_text().split()) == 2
