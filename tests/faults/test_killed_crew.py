"""A crew of which every process is killed, or stopped: what is said then, and how it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from copies import RUN, Site, site

from muster.hosts.file_lock import holder
from muster.hosts.local_host import LocalHost
from patience import PATIENCE_S, until


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path / "here") as made:
        yield made


def send_all(one: Site, number: signal.Signals) -> list[int]:
    """To its supervisor, owner, workers and agents, the supervisor first."""
    supervisor = holder(one.project.supervisor_lock)
    assert supervisor is not None
    pids = [supervisor, *one.pids()]
    for pid in dict.fromkeys(pids):
        os.kill(pid, number)
    return pids


def test_what_waits_while_nobody_is_up_waits_for_a_crew(here: Site) -> None:
    here.add()
    here.up()
    assert here("task", "add", "three", "--agent", "work").code == 0
    assert "waits for a free worker" in here("why", "three").said
    pids = send_all(here, signal.SIGKILL)
    until(lambda: all(LocalHost().identify(pid) is None for pid in pids), "all are dead")
    for command in (("why", "three"), ("task", "list")):
        code, said = here(*command)
        assert code == 0 and "no worker is up: `muster up` starts some" in said, said
        assert "free worker" not in said and "takes it now" not in said, said


def test_down_of_a_crew_that_was_stopped_says_its_steps(here: Site) -> None:
    here.add()
    here.up()
    send_all(here, signal.SIGSTOP)
    down = subprocess.Popen([*RUN, str(here.root), "down"], stdout=subprocess.PIPE, text=True)
    assert down.stdout is not None
    assert "(SIGSTOP): told to go on" in down.stdout.readline()
    assert "Draining: plan/one" in down.stdout.readline(), "what it waits for, once the owner tells"
    os.kill(down.pid, signal.SIGINT)  # the next step: it gives its task back
    said, _ = down.communicate(timeout=PATIENCE_S)
    assert down.returncode == 0 and "Given back: plan/one" in said and "Stopped." in said, said
