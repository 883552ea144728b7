"""That nothing is left of a tree: by a look at what has begun since its root, and when that is not enough."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from muster.hosts import local_host, process_table
from muster.hosts import process as process_module
from muster.hosts.process_table import HostCounts, Proc, begun_since
from patience import PATIENCE_S

pytestmark = pytest.mark.skipif(not process_table.LINUX, reason="only Linux makes orphans its children")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each look at all processes."""
    taken: list[int] = []
    scan = process_module.scan

    def counted() -> list[Proc]:
        taken.append(1)
        return scan()

    monkeypatch.setattr(process_module, "scan", counted)
    return taken


def test_a_subreaper_looks_at_what_has_begun_since_alone(hostiles, subreaper, looks) -> None:
    for _ in range(20):  # what others begin meanwhile has it look at all
        process = hostiles.start("true")
        assert process.wait(PATIENCE_S) == 0
        assert process.sweep() == 0
        if not looks:
            break
        looks.clear()
    else:
        pytest.fail("it always looked at all processes")


def test_whoever_is_no_subreaper_looks_at_all(hostiles, looks) -> None:
    process = hostiles.start("true")
    assert process.wait(PATIENCE_S) == 0
    assert process.sweep() == 0
    assert len(looks) >= 2


def test_what_hands_over_to_its_child_again_and_again_is_caught(hostiles, subreaper) -> None:
    """Each lives for about a millisecond, in a session of its own, without a mark."""
    relay = (
        "import os, time\n"
        "if os.fork(): os._exit(0)\n"
        "for _ in range(100_000):\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    time.sleep(0.001)\n"
    )
    for name in "12345":
        launch = ("env", "-i", sys.executable, "-S", "-c", relay, hostiles.token)
        process = hostiles.start(*launch, name=name)
        assert process.wait(PATIENCE_S) == 0
        process.sweep()
        assert not hostiles.alive()


@pytest.fixture
def then() -> HostCounts:
    return HostCounts.by_now()


def test_a_child_is_there_behind_its_parent(then: HostCounts) -> None:
    for _ in range(100):
        child = subprocess.Popen(["sleep", "1000"])
        found = begun_since(child.pid, then)
        child.kill()
        child.wait()
        if found is not None:
            break
        then = HostCounts.by_now()
    else:
        pytest.fail("something else began each time")
    assert found[0].pid == child.pid and found[0].ppid == os.getpid()
    assert [proc.pid for proc in found] == sorted(proc.pid for proc in found)


@pytest.mark.parametrize(
    "cause", ["wrapped", "too many", "a chosen pid", "not counted", "counted by nobody then"]
)
def test_where_one_may_be_missing_nothing_is_said(cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = os.getpid()
    then = HostCounts(0 if cause == "counted by nobody then" else 1000, root)
    newest = {"wrapped": root - 1, "too many": root + 10_000}.get(cause, root + 2)
    number = {"a chosen pid": 1003, "not counted": 0}.get(cause, 1002)
    monkeypatch.setattr(process_table, "_newest_pid", lambda: newest)
    monkeypatch.setattr(process_table, "_number_begun", lambda: number)
    assert begun_since(root, then) is None


def test_a_subreaper_knows_that_it_is_one(subreaper) -> None:
    assert local_host.adopts_orphans()
    assert local_host.become_subreaper(wanted=False)
    assert not local_host.adopts_orphans()
    assert local_host.become_subreaper()
