"""L5 with real processes: an owner on one machine, workers on others, and an outage of each kind between them.

Nothing here compares times: each step waits for the one before it.  That a tree stands still *before* its lease
ends is shown on a clock of the test's own in tests/worker/test_ward.py.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from two_hosts import Site

from muster.model.errors import StaleEpoch
from patience import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="machines are made of namespaces")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.end()


def assert_second_attempt_ends_it(site: Site, task_id: int, done: int) -> None:
    """And the first one has done nothing beyond the deeds `done`."""
    site.finish.touch()
    until(lambda: site.status(task_id) == "COMPLETED", "the task is done")
    assert site.deeds(1) == done
    assert json.loads(site.task(task_id)["result"]) == {"by": 2}
    assert site.happened(task_id).count("completed") == 1
    assert "asked" not in site.ledger.read_text(), "what is superseded is killed, without the ladder"


@pytest.mark.promise("L5")
def test_an_outage_of_the_owner_costs_a_worker_of_another_host_nothing_but_time(site: Site) -> None:
    worker = site.worker("one")
    task_id = site.add()
    until(lambda: site.deeds(1) > 20, "the agent works")
    site.kill_owner()
    until(worker.stands_still, "the tree stands still")
    done = site.deeds(1)
    assert len(worker.tree()) >= 2 and worker.process.poll() is None
    site.start_owner()
    until(lambda: site.deeds(1) > done, "it goes on where it stood")
    site.finish.touch()
    until(lambda: site.status(task_id) == "COMPLETED", "the task is done")
    assert set(site.ledger.read_text().split()) == {"1"}
    assert {"lost", "readopted"}.isdisjoint(site.happened(task_id))


@pytest.mark.promise("L5")
@pytest.mark.promise("S3")
def test_a_worker_that_is_cut_off_does_nothing_beside_the_next_attempt(site: Site) -> None:
    cut_off = site.worker("one")
    task_id = site.add()
    until(lambda: site.deeds(1) > 20, "the agent works")
    cut_off.line.cut()
    until(cut_off.stands_still, "the tree stands still")
    done = site.deeds(1)
    until(lambda: site.status(task_id) == "PENDING", "the owner gives the silent attempt up")
    site.worker("two")
    until(lambda: site.deeds(2) > 20, "the next attempt works")
    cut_off.line.mend()
    until(lambda: not cut_off.tree(), "the old tree is gone")
    assert_second_attempt_ends_it(site, task_id, done)


@pytest.mark.promise("L5")
@pytest.mark.promise("S3")
@pytest.mark.parametrize("asleep", ["the worker", "the worker, and its agent ends meanwhile", "the machine"])
def test_a_worker_that_wakes_after_its_lease_changes_nothing_any_more(site: Site, asleep: str) -> None:
    late = site.worker("one")
    task_id = site.add()
    until(lambda: site.deeds(1) > 20, "the agent works")
    os.kill(late.process.pid, signal.SIGSTOP)
    if asleep == "the machine":
        until(lambda: late.signal_tree(signal.SIGSTOP) and late.stands_still(), "all of it sleeps")
    if "ends" in asleep:
        site.finish.with_name("finish-1").touch()
        until(lambda: not late.tree(), "its agent has done all it had to")
    until(lambda: site.status(task_id) == "PENDING", "the owner gives the silent attempt up")
    site.worker("two")
    until(lambda: site.deeds(2) > 20, "the next attempt works")
    os.kill(late.process.pid, signal.SIGCONT)
    if asleep == "the machine":
        late.signal_tree(signal.SIGCONT)
    # Frozen by its guard or killed for the owner's answer, whichever of the two threads runs first.
    until(lambda: not late.tree(), "what it had started is gone")
    done = site.deeds(1)
    for word in ("complete", "fail", "checkpoint", "release"):
        with pytest.raises(StaleEpoch):
            site.say(word, task_id, epoch=1)
    assert_second_attempt_ends_it(site, task_id, done)
