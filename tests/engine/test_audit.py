"""The sealer's promise: an edit, a hole and a cut are found, and the event is named (S7)."""

from __future__ import annotations

import logging
from typing import Any

import apsw
import pytest
from engine_rig import Rig, complete

from muster.engine.audit import Auditor
from muster.engine.batch import drive
from muster.engine.service import PAGE_ROWS
from muster.engine.services.sealer import CATCH_UP_S, Sealer
from muster.model import commands as c
from muster.model.answers import AuditReport
from muster.model.errors import Conflict, TermOver
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.seals import Signer

SIGNER = Signer(b"k" * 32)


class Site:
    """A rig with some history, a sealer, and somebody with a hand on the file."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.term = rig.new_boot().term
        self.sealer = Sealer(rig.clock, rig.reads, rig, SIGNER, term=self.term)
        self.heads: list[str] = []
        """Of the default workspace, as the log names them."""
        rig.register()

    def history(self, plan: str) -> None:
        self.rig.enqueue({"a": (), "b": ("a",)}, plan=plan)
        for job in self.rig.started():
            self.rig.do(complete(job))

    def seal(self) -> None:
        drive(self.sealer.run_once())

    def _logged(self) -> list[tuple[int, str]]:
        return [(DEFAULT_WORKSPACE, head) for head in self.heads]

    def verify(self, signer: Signer = SIGNER) -> AuditReport:
        async def work() -> AuditReport:
            return await Auditor(self.rig.reads, signer, self._logged, DEFAULT_WORKSPACE).verify()

        import asyncio

        return asyncio.run(work())

    def sql(self, statement: str, *bindings: Any) -> None:
        self.rig.store._writer.execute(statement, bindings)

    def break_in(self, *statements: str) -> None:
        for trigger in ("events_no_update", "events_no_delete", "seals_no_update", "seals_no_delete"):
            self.sql(f"DROP TRIGGER {trigger}")
        for statement in statements:
            self.sql(statement)


@pytest.fixture
def site(rig: Rig) -> Site:
    made = Site(rig)
    for plan in ("one", "two", "three"):
        made.history(plan)
        made.seal()
    return made


@pytest.fixture
def broken() -> Any:
    """For what leaves a store that no audit of the rig would accept."""
    rig = Rig()
    made = Site(rig)
    for plan in ("one", "two", "three"):
        made.history(plan)
        made.seal()
    yield made
    rig.store.close()


def test_what_nobody_touched_is_whole(site):
    site.history("four")
    report = site.verify()
    assert report.whole and report.problems == ()
    assert (report.seals, report.sealed + report.unsealed) == (3, len(site.rig.events()))
    assert report.unsealed and report.head == drive(site.rig.reads.last_seal()).head


def test_an_empty_store_is_whole(rig):
    report = Site(rig).verify()
    assert report.whole and (report.seals, report.sealed) == (0, 0)


def test_nothing_new_needs_no_seal(site):
    site.seal()
    assert site.verify().seals == 3


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE events SET message = 'fine' WHERE id = 7", "event 7 ("),
        ("UPDATE events SET at_ms = at_ms + 1 WHERE id = 7", "was changed after it was sealed"),
        ("UPDATE events SET actor = 'bob' WHERE id = 1", "event 1 ("),
        ("DELETE FROM events WHERE id = 7", "event 7 is missing"),
        (
            "DELETE FROM seals WHERE to_id = (SELECT min(to_id) FROM seals)",
            "does not follow the one before it",
        ),
        ("UPDATE seals SET count = 1 WHERE to_id = (SELECT max(to_id) FROM seals)", "signature does not fit"),
        (
            "UPDATE seals SET marks = x'' WHERE to_id = (SELECT max(to_id) FROM seals)",
            "signature does not fit",
        ),
        ("UPDATE seals SET pruned_at_ms = 1, marks = x''", "removed without a signature"),
        ("UPDATE seals SET key_id = 'ff' WHERE to_id = (SELECT max(to_id) FROM seals)", "signed with key ff"),
    ],
)
def test_an_edit_or_a_hole_is_named(broken, statement, message):
    broken.break_in(statement)
    report = broken.verify()
    assert not report.whole
    assert any(message in problem for problem in report.problems), report.problems


def test_one_edit_is_one_problem(broken):
    broken.break_in("UPDATE events SET message = 'fine' WHERE id = 7")
    assert len(broken.verify().problems) == 1


def test_an_event_that_was_put_in_is_named(broken):
    broken.break_in(
        "UPDATE seals SET to_id = to_id",
        "DELETE FROM events WHERE id = 3",
        "INSERT INTO events SELECT 3, workspace_id, task_id, 99, at_ms, level, event, message, details,"
        " previous_status, new_status, generation, epoch, actor, subject FROM events WHERE id = 4",
    )
    assert "event 3 (" in broken.verify().problems[0]


def test_cut_events_are_missing(broken):
    broken.break_in("DELETE FROM events WHERE id > 20")
    problems = broken.verify().problems
    assert "event 21 is missing" in problems
    assert any("events and" in problem for problem in problems)


def test_a_cut_of_what_was_not_sealed_yet_shows_in_the_tasks(broken):
    broken.history("four")
    broken.break_in("DELETE FROM events WHERE id = (SELECT max(id) FROM events)")
    unsealed, in_task = broken.verify().problems
    assert "events came after the last seal" in unsealed and "has had" in in_task


def test_a_cut_together_with_its_seals_and_tasks_shows_in_the_log(broken):
    broken.heads = [seal.head for seal in drive(broken.rig.reads.seals(0, 10))]
    plan = "(SELECT id FROM plans WHERE name = 'three')"
    tasks = f"(SELECT id FROM tasks WHERE plan_id = {plan})"
    broken.break_in(
        f"DELETE FROM events WHERE task_id IN {tasks}",
        f"DELETE FROM tasks WHERE plan_id = {plan}",
        "DELETE FROM seals WHERE to_id > (SELECT max(id) FROM events)",
    )
    assert "the log names 1 heads" in broken.verify().problems[0]
    broken.sql("UPDATE sqlite_sequence SET seq = (SELECT max(id) FROM events) WHERE name = 'events'")
    broken.history("later")
    broken.seal()
    broken.heads.append(drive(broken.rig.reads.last_seal()).head)
    (problem,) = broken.verify().problems
    assert "the log names 1 heads" in problem, "the next seal does not hide it"


def test_a_loss_that_was_known_when_the_store_was_restored_is_no_cut(site):
    lost = "a" * 64
    site.heads = [lost]
    assert not site.verify().whole
    site.rig.do(c.Restored(actor="ada", incarnation="i", lost_head=f"{lost} {'b' * 64}"))
    assert not site.verify().whole, "a made-up proof"
    site.rig.do(c.Restored(actor="ada", incarnation="i", lost_head=f"{lost} {SIGNER.loss_proof(lost)}"))
    report = site.verify()
    assert (report.whole, report.lost) == (True, 1)
    site.heads += ["c" * 64]
    assert not site.verify().whole


def test_another_key_proves_nothing(site):
    assert not site.verify(Signer(b"x" * 32)).whole


def test_the_database_refuses_edits_and_deletions(site):
    for statement in (
        "UPDATE events SET message = ''",
        "DELETE FROM events WHERE id = 1",
        "DELETE FROM seals",
        "UPDATE seals SET head = ''",
    ):
        with pytest.raises(apsw.ConstraintError):
            site.sql(statement)


def test_the_head_is_in_the_log_too(site, caplog):
    site.history("four")
    with caplog.at_level(logging.INFO):
        site.seal()
    assert drive(site.rig.reads.last_seal()).head in caplog.text


def test_a_seal_is_bounded_and_the_rest_follows_soon(rig):
    site = Site(rig)
    rig.enqueue({f"t{n}": () for n in range(PAGE_ROWS + 10 - len(rig.events()))})
    site.seal()
    assert drive(rig.reads.last_seal()).count == PAGE_ROWS
    before = rig.clock.now().mono_ms
    drive(site.sealer.pause())
    assert rig.clock.now().mono_ms - before == CATCH_UP_S * 1000
    site.seal()
    assert site.verify().sealed == PAGE_ROWS + 10


def test_only_the_leader_seals_and_only_what_follows(site):
    seal = drive(site.rig.reads.seals(0, 1))[0]
    with pytest.raises(Conflict):
        site.rig.do(c.AddSeal(term=site.term, seal=seal))
    site.rig.new_boot()
    with pytest.raises(TermOver):
        site.rig.do(c.AddSeal(term=site.term, seal=seal))


def test_the_newest_events_by_level_time_and_task(site):
    rig = site.rig

    def found(**changes: Any) -> list[str]:
        wanted: dict[str, Any] = {"task_id": None, "levels": (), "since_ms": 0, "limit": 1000} | changes
        return [event.event for event in drive(rig.reads.audit_events(**wanted))]

    assert found() == [event.event for event in rig.events()]
    assert found(limit=2) == [event.event for event in rig.events()][-2:]
    assert found(since_ms=rig.clock.now().wall_ms + 1) == []
    task_id = rig.events()[0].task_id
    assert found(task_id=task_id) == [e.event for e in rig.events() if e.task_id == task_id]
    assert found(task_id=task_id, levels=("ERROR",)) == []
