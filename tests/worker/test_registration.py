"""Workers make themselves known: to a real owner, over its socket."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from muster.cli.context import answers
from muster.client.api import Api
from muster.client.crew import HttpCrew
from muster.client.http import Connection
from muster.config.project import Project
from muster.hosts.local_host import LocalHost
from muster.model import commands as c
from muster.model.errors import Unavailable
from patience import PATIENCE_S, until

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
