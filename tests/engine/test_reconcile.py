"""Reconcile finds what raw SQL, a bug or a restored file has left behind, and counts what it mends."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_rig import LEASE_S, W1, FakeHost, Rig, complete

from muster.engine.batch import drive
from muster.engine.services.reaper import Reaper
from muster.engine.services.reconciler import Reconciler
from muster.model.answers import Reconciled
from muster.model.errors import TermOver
from muster.model.states import AttemptStatus, TaskStatus


class Site:
    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.term = rig.new_boot().term
        self.host = FakeHost(rig.log)
        reaper = Reaper(
            rig.clock,
            rig.reads,
            rig,
            self.host,
            sweep=lambda: 0,
            term=self.term,
            lease_s=LEASE_S,
            interval_s=0.5,
        )
        self.reconciler = Reconciler(reaper, rig.reads, rig, term=self.term)
        rig.register()

    def reconcile(self) -> tuple[int, int, int, int]:
        found: Reconciled = drive(self.reconciler.reconcile())
        return (
            found.dead_workers_found,
            found.expired_claims_released,
            found.orphaned_tasks_recovered,
            found.stale_states_fixed,
        )

    def sql(self, statement: str) -> None:
        self.rig.store._writer.execute(statement)


@pytest.fixture
def site() -> Iterator[Site]:
    """Without the rig's audit: raw SQL writes no events."""
    rig = Rig()
    rig.enqueue({"a": (), "b": ("a",), "c": ()})
    yield Site(rig)
    rig.store.close()


def test_a_sound_store_is_left_alone(site):
    site.rig.started(slots=1)
    before = site.rig.events()
    assert site.reconcile() == (0, 0, 0, 0)
    assert site.rig.events() == before


def test_a_dead_worker_and_its_claims(site):
    site.rig.started(slots=2)
    site.host.dead.add(100)
    assert site.reconcile() == (1, 2, 0, 0)
    assert site.reconcile() == (0, 0, 0, 0)


def test_a_task_that_nobody_holds(site):
    site.rig.started(slots=1)
    site.sql("UPDATE attempts SET ended_at_ms = 1, status = 'lost'")
    assert site.reconcile() == (0, 0, 1, 0)
    assert site.rig.task("a").status is TaskStatus.PENDING and site.rig.task("a").ready
    assert "no attempt held it" in site.rig.events("a")[-1].message
    assert [job.key for job in site.rig.claim(slots=1)] == ["a"]


def test_an_attempt_whose_rows_are_gone(site):
    site.rig.started(slots=1)
    site.sql("DELETE FROM attempts")
    assert site.reconcile() == (0, 0, 1, 0)


@pytest.mark.parametrize("status", ["COMPLETED", "CANCELLED", "PENDING"])
def test_an_open_attempt_of_a_task_that_it_does_not_hold(site, status):
    (job,) = site.rig.started(slots=1)
    site.sql(f"UPDATE tasks SET status = '{status}' WHERE id = {job.task_id}")
    found = site.reconcile()
    assert found == (0, 0, 0, 1 + (status == "COMPLETED"))  # with it, what waits for it
    assert site.rig.attempt(job).status is AttemptStatus.CANCELLED
    assert not site.rig.beat(W1, job).attempts[0].current


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tasks SET unmet = 0 WHERE key = 'b'",
        "UPDATE tasks SET unmet = 7 WHERE key = 'b'",
        "UPDATE tasks SET unmet = 1 WHERE key = 'c'",
    ],
)
def test_a_counter_that_is_wrong(site, statement):
    site.sql(statement)
    assert site.reconcile() == (0, 0, 0, 1)
    assert site.reconcile() == (0, 0, 0, 0)
    assert {job.key for job in site.rig.claim()} == {"a", "c"}


def test_a_dependency_that_was_met_and_never_marked(site):
    (a,) = site.rig.started(slots=1)
    site.rig.do(complete(a))
    site.sql("UPDATE dependencies SET met = 0")
    site.sql("UPDATE tasks SET unmet = 1 WHERE key = 'b'")
    assert site.reconcile() == (0, 0, 0, 1)
    assert site.rig.task("b").ready


@pytest.mark.parametrize("status", ["CANCELLED", "ARCHIVED"])
def test_what_waits_for_a_skipped_task(site, status):
    site.sql(f"UPDATE tasks SET status = '{status}', skipped = 1, error = 'skipped' WHERE key = 'a'")
    assert site.reconcile() == (0, 0, 0, 1)
    assert site.rig.task("b").ready


def test_it_goes_through_all_pages(site):
    site.rig.enqueue({f"t{n}": () for n in range(1200)}, plan="many")
    site.sql("UPDATE tasks SET unmet = 1 WHERE key LIKE 't%'")
    assert site.reconcile() == (0, 0, 0, 1200)


def test_only_the_leader_mends(site):
    site.sql("UPDATE tasks SET unmet = 1")
    site.rig.new_boot()
    with pytest.raises(TermOver):
        site.reconcile()
