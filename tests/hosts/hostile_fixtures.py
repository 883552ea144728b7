"""Real processes, and the proof after every test that none of them is left."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_crowd import HostileCrowd

from muster.hosts.local_host import adopted_orphans, become_subreaper, reap_zombies
from muster.hosts.process_table import scan
from muster.ports.agent import AttemptFolder
from muster.ports.host import ProcessId


def _zombies() -> set[ProcessId]:
    return {proc.id for proc in scan() if proc.gone and proc.ppid == os.getpid()}


@pytest.fixture
def hostiles(tmp_path: Path) -> Iterator[HostileCrowd]:
    hostiles = HostileCrowd(tmp_path, f"1000.{random.randrange(10**9, 10**10)}")
    before = _zombies()  # of a test of another kind, in this process
    yield hostiles
    left = hostiles.kill_leftovers()
    assert left == [], "the test left processes alive"
    assert _zombies() - before == set(), "zombies"


@pytest.fixture
def folder(tmp_path: Path) -> AttemptFolder:
    return AttemptFolder(path=tmp_path / "attempts" / "7" / "3")


@pytest.fixture
def subreaper(hostiles: HostileCrowd) -> Iterator[None]:
    """Makes the test's process a subreaper, as a worker is, and ends that afterwards."""
    assert become_subreaper()
    yield
    assert hostiles.kill_leftovers() == [], "the test left processes alive"
    assert become_subreaper(wanted=False)
    reap_zombies(adopted_orphans(()))
