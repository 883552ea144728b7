"""Partitions between a server and hosts of workers, in networks of their own: one way and both, and their end.

What was measured stands in the properties of `--junitxml`, and is printed with `-s`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from three_hosts import LEASE_S, ThreeHosts, three_hosts

from patience import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="hosts are made of namespaces")


@pytest.mark.promise("L1")
@pytest.mark.promise("L3")
@pytest.mark.promise("L4")
@pytest.mark.promise("L5")
def test_hosts_that_are_cut_off_stand_still_and_are_replaced_and_heal(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    with three_hosts(tmp_path) as site:
        a = site.host("a")
        task_id = site.add()
        until(lambda: site.deeds(1) > 20, "the agent works")
        _short(site, task_id)
        b, known = site.host("b"), len(site.events(task_id, "lost"))
        # Its answers are lost: it may be heard for a moment, and hears nothing.
        site.network.drop("server", "a")
        cut_ms = time.time() * 1000
        until(a.stands_still, "the tree stands still")
        assert site.task(task_id)["task"]["why"], "L3: somebody is waited for"
        frozen_ms = time.time() * 1000
        done = site.deeds(1)
        until(lambda: len(site.events(task_id, "lost")) > known, "its lease is over")
        lost_ms = site.events(task_id, "lost")[-1]["atMs"]
        until(lambda: site.deeds(2) > 5, "the other host works on it")
        assert site.deeds(1) == done, "the first one has done nothing since it stood still"
        assert b.tree(), "it is the other one's"
        site.network.drop("a", "server")
        site.network.let("server", "a")
        site.network.let("a", "server")
        healed_s = time.monotonic()
        until(lambda: not a.tree(), "what is superseded is killed")
        killed_s = time.monotonic() - healed_s
        site.finish.touch()
        until(lambda: site.task(task_id)["task"]["status"] == "COMPLETED", "it is done")
        assert json.loads(site.task(task_id)["result"]) == {"by": 2}
        assert site.deeds(1) == done
        assert len(site.events(task_id, "completed")) == 1
        until(lambda: len(site.far()) == 2, "both hosts serve again")
        figures = {
            "L1: silence until its task is free, s": (lost_ms - cut_ms) / 1000,
            "L5: silence until its tree was seen to stand still, s": (frozen_ms - cut_ms) / 1000,
            "L4: from the heal until nothing of it is left, s": killed_s,
        }
        for name, figure in figures.items():
            record_property(name, round(figure, 2))
            print(f"{name}: {figure:.2f} (lease {LEASE_S:g})")


def _short(site: ThreeHosts, task_id: int) -> None:
    """A partition that is over before the lease is, or before anybody took the task: it costs time alone."""
    a = site.hosts["a"]
    for source, target in (("a", "server"), ("server", "a")):
        site.network.drop(source, target)
    until(a.stands_still, "the tree stands still")
    done = site.deeds(1)
    for source, target in (("a", "server"), ("server", "a")):
        site.network.let(source, target)
    until(lambda: site.deeds(1) > done, "it goes on where it stood")
    assert site.task(task_id)["task"]["epoch"] == 1
