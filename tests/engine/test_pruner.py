"""Retention drops what has been over for long enough, in bounded pages, and leaves signed stubs of events."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest
from engine_rig import Rig, complete
from msgspec.structs import replace
from test_time_limits import jump

from muster.app.key import logged_heads
from muster.config.project import Project
from muster.engine.audit import Auditor
from muster.engine.batch import drive
from muster.engine.services import pruner
from muster.engine.services.pruner import CATCH_UP_S, HOLD_MS, Pruner
from muster.engine.services.scheduler import Scheduler
from muster.engine.services.sealer import Sealer
from muster.hosts.attempt_folders import LocalFolders, take_artifact
from muster.hosts.log_file import LogFile
from muster.model import commands as c
from muster.model.answers import AuditReport
from muster.model.artifacts import ArtifactPart
from muster.model.edits import PlanUpdated, UpdatePlan
from muster.model.retention import Retention
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.seals import Signer
from muster.model.task import Now

SIGNER = Signer(b"k" * 32)
DAY_S = 86400


NEVER_S = 10_000 * DAY_S


class Site:
    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig = rig
        self.folder = folder
        term = rig.new_boot().term
        self.sealer = Sealer(rig.clock, rig.reads, rig, SIGNER, term=term)
        folders = LocalFolders(folder, folder / "muster.log", (LOG_BYTES_MAX, 4))
        # What is archived would be among the events that the tests count.
        self.pruner, self.archiver = (
            Pruner(rig.clock, rig.reads, rig, SIGNER, folders=folders, retention=retention, term=term)
            for retention in (Retention(tasks_s=NEVER_S), Retention())
        )
        rig.register()

    def prune(self) -> None:
        asyncio.run(self.pruner.run_once())

    def archive(self) -> None:
        asyncio.run(self.archiver.run_once())

    def verify(self) -> AuditReport:
        return asyncio.run(Auditor(self.rig.reads, SIGNER, list, DEFAULT_WORKSPACE).verify())

    def count(self, table: str) -> int:
        (number,) = self.rig.store._writer.execute(f"SELECT count(*) FROM {table}").fetchone()
        return int(number)

    def work(self, plan: str, *, done: bool = True) -> None:
        spec = c.Spec(title="a", key="a", idempotency_key=plan)
        self.rig.do(c.Enqueue(plan=plan, source=None, tasks=(spec,), actor="ada"))
        (job,) = self.rig.started()
        ids = {"task_id": job.task_id, "epoch": job.epoch}
        self.rig.do(c.AppendLog(**ids, stream="stdout", offset=0, data=b"hello"))
        self.rig.do(c.SaveCheckpoint(**ids, data=b"state"))
        (self.folder / str(job.task_id) / str(job.epoch)).mkdir(parents=True)
        if done:
            self.rig.do(complete(job))
        drive(self.sealer.run_once())


@pytest.fixture
def site(tmp_path: Path) -> Any:
    """Without the rig's audit: the beginning of it is gone."""
    rig = Rig()
    yield Site(rig, tmp_path)
    rig.store.close()


LOG_BYTES_MAX = 1000
TABLES = ("events", "logs", "checkpoints", "idempotency")


def test_nothing_goes_before_its_time(site):
    site.work("old")
    before = [site.count(table) for table in TABLES]
    site.rig.clock.advance(6 * DAY_S)
    site.prune()
    assert [site.count(table) for table in TABLES] == before


def test_each_goes_when_its_time_is_over(site):
    site.work("old")
    events = site.count("events")
    site.rig.clock.advance(8 * DAY_S)
    site.prune()
    assert [site.count(table) for table in TABLES] == [events, 1, 1, 0]
    site.rig.clock.advance(23 * DAY_S)
    site.prune()
    assert [site.count(table) for table in TABLES] == [events, 0, 0, 0]
    site.rig.clock.advance(60 * DAY_S)
    site.work("new")
    site.prune()
    report = site.verify()
    new = events - 2  # its worker was registered, and its coordinator took over, long before
    assert report.whole and report.pruned == events and report.sealed == site.count("events") == new


def test_nothing_goes_while_the_clock_may_have_been_set_wrong(site):
    site.work("old")
    rig, kept = site.rig, [site.count(table) for table in TABLES]
    scheduler = Scheduler(rig.clock, rig.reads, rig, term=site.sealer._term, interval_s=1.0)
    drive(scheduler.run_once())

    def left() -> list[int]:
        site.prune()
        site.archive()
        return [site.count(table) for table in TABLES]

    jump(rig, 31 * DAY_S)
    assert left() == kept, "it is known before the jump is noted"
    drive(scheduler.run_once())
    rig.clock.advance(HOLD_MS / 1000 - 1)
    assert left() == kept
    rig.clock.advance(1)
    assert left()[1:] == [0, 0, 0], "this is the time, then"


class WrongHost:
    """A server's own clock, which is a day off."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def now(self) -> Now:
        right = self._rig.clock.now()
        return replace(right, wall_ms=right.wall_ms - DAY_S * 1000)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rig.clock, name)


class ItsStore:
    """Its clock is right."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    async def now(self, here: Now) -> Now:
        return self._rig.clock.now()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rig.reads, name)


def test_a_server_whose_clock_is_wrong_drops_by_the_stores_time(site):
    """It takes that difference for no jump of a clock either, or nothing would ever be dropped."""
    site.work("old")
    rig, term = site.rig, site.sealer._term
    clock, reads = WrongHost(rig), ItsStore(rig)
    drive(Scheduler(clock, reads, rig, term=term, interval_s=1.0).run_once())
    folders = LocalFolders(site.folder, site.folder / "muster.log", (LOG_BYTES_MAX, 4))
    kept = Retention(tasks_s=NEVER_S)
    server = Pruner(clock, reads, rig, SIGNER, folders=folders, retention=kept, term=term)
    before = [site.count(table) for table in TABLES]
    rig.clock.advance(7 * DAY_S - 1)
    asyncio.run(server.run_once())
    assert [site.count(table) for table in TABLES] == before
    rig.clock.advance(2)
    asyncio.run(server.run_once())
    assert site.count("idempotency") == 0
    site.rig.enqueue({"a": ()})
    drive(Sealer(clock, reads, rig, SIGNER, term=term).run_once())
    (sealed_at_ms,) = rig.store._writer.execute("SELECT max(at_ms) FROM seals").fetchone()
    assert sealed_at_ms == rig.clock.now().wall_ms


def test_what_came_from_a_file_is_known_when_its_events_are_gone(site):
    def update(*keys: str) -> PlanUpdated:
        tasks = tuple(c.Spec(title=key, key=key) for key in keys)
        answer: PlanUpdated = site.rig.do(UpdatePlan(plan="p", source="/p.md", tasks=tasks, actor="ada"))
        return answer

    update("a", "b")
    drive(site.sealer.run_once())
    site.rig.clock.advance(91 * DAY_S)
    site.prune()
    assert site.count("events") == 0
    assert [change.key for change in update("b").diff.removed] == ["a"]
    assert site.rig.statuses() == {"a": "CANCELLED", "b": "PENDING"}


def test_what_runs_keeps_its_checkpoint_and_its_folder(site):
    site.work("long", done=False)
    site.rig.clock.advance(31 * DAY_S)
    site.prune()
    assert site.count("checkpoints") == 1 and len(list(site.folder.iterdir())) == 1


def test_folders_of_ended_attempts_go_with_their_logs(site):
    site.work("old")
    (site.folder / "notes").mkdir()
    site.rig.clock.advance(31 * DAY_S)
    site.prune()
    assert [path.name for path in site.folder.iterdir()] == ["notes"]


def test_events_that_are_not_sealed_stay(site):
    site.rig.enqueue({"a": ()})
    before = site.count("events")
    site.rig.clock.advance(1000 * DAY_S)
    site.prune()
    assert site.count("events") == before


def test_a_range_that_somebody_else_drops_is_found(site):
    site.work("old")
    site.rig.clock.advance(91 * DAY_S)
    site.work("new")
    site.prune()
    with pytest.raises(apsw.ConstraintError):
        site.rig.store._writer.execute("DELETE FROM events")
    site.rig.store._writer.execute(
        "UPDATE seals SET pruned_at_ms = 1, marks = x'' WHERE pruned_at_ms IS NULL"
    )
    site.rig.store._writer.execute("DELETE FROM events")
    report = site.verify()
    assert not report.whole and "without a signature" in report.problems[0]


def test_a_page_is_bounded_and_the_rest_follows_soon(site):
    specs = tuple(c.Spec(title="t", idempotency_key=f"k{n}") for n in range(700))
    site.rig.do(c.Enqueue(plan="many", source=None, tasks=specs, actor="ada"))
    site.rig.clock.advance(8 * DAY_S)
    site.prune()
    assert site.count("idempotency") == 200
    before = site.rig.clock.now().mono_ms
    drive(site.pruner.pause())
    assert site.rig.clock.now().mono_ms - before == CATCH_UP_S * 1000
    site.prune()
    assert site.count("idempotency") == 0


def test_a_log_that_is_too_long_becomes_an_old_one(rig, tmp_path):
    project = Project(tmp_path)
    project.state_dir.mkdir()
    site = Site(rig, project.state_dir)
    head = f"sealed events of workspace 1 up to 7, head {'a' * 64}\n"
    project.log_file.write_text("x" * (LOG_BYTES_MAX - len(head)) + head)
    site.prune()
    assert LogFile(project.log_file).all() == [project.log_file]
    with project.log_file.open("a") as writer:
        writer.write("more\n")
    site.prune()
    old, now = LogFile(project.log_file).all()
    assert (old.name, now.read_bytes()) == ("muster.log.1", b"")
    assert logged_heads(project) == [(1, "a" * 64)], "the audit's head is still known"


def test_completed_tasks_are_archived_once_their_plan_is_over(site):
    def status(*keys: str) -> list[str]:
        return [str(site.rig.task(key).status) for key in keys]

    site.rig.enqueue({"a": (), "b": ("a",)})
    (job,) = site.rig.started()
    site.rig.do(complete(job))
    site.rig.clock.advance(31 * DAY_S)
    site.archive()
    assert status("a", "b") == ["COMPLETED", "PENDING"], "b is left to do, so a is still counted"
    (job,) = site.rig.started()
    site.rig.do(complete(job))
    site.archive()
    assert status("a", "b") == ["ARCHIVED", "COMPLETED"], "each by its own end"
    site.rig.clock.advance(31 * DAY_S)
    site.archive()
    assert status("a", "b") == ["ARCHIVED", "ARCHIVED"]
    assert site.rig.task("a").done, "who waits for it goes on"
    drive(site.sealer.run_once())
    assert site.verify().whole


def test_failed_and_cancelled_tasks_stay_in_sight(site):
    site.rig.enqueue({"a": ()}, plan="one")
    site.rig.enqueue({"b": (), "c": ()}, plan="two")
    site.rig.do(c.Cancel(task_id=site.rig.id("c"), actor="ada"))
    for job in site.rig.started():
        site.rig.do(complete(job))
    site.rig.clock.advance(31 * DAY_S)
    site.archive()
    assert [str(site.rig.task(key).status) for key in ("a", "b", "c")] == [
        "ARCHIVED",
        "ARCHIVED",
        "CANCELLED",
    ]


def test_more_tasks_than_a_page_are_archived_page_by_page(site, monkeypatch):
    monkeypatch.setattr(pruner, "PAGE_ROWS", 2)
    site.rig.do(
        c.Enqueue(
            plan="p",
            source=None,
            actor="ada",
            tasks=tuple(c.Spec(title=k, key=k, done=True) for k in "abcde"),
        )
    )
    site.rig.clock.advance(31 * DAY_S)
    for archived in (2, 4, 5, 5):
        site.archive()
        found = [str(site.rig.task(key).status) for key in "abcde"]
        assert found == ["ARCHIVED"] * archived + ["COMPLETED"] * (5 - archived)


def test_half_a_file_goes_with_its_attempt(site: Site) -> None:
    """Whoever was cut off while it was sent goes on until then, and nobody does after it."""
    half = ArtifactPart(name="out", sha256="0" * 64, size=2, offset=0, data=b"x")
    site.rig.do(c.Enqueue(plan="p", source=None, tasks=(c.Spec(title="a"), c.Spec(title="b")), actor="ada"))
    over, running = site.rig.started(slots=1), site.rig.started(slots=1)
    for (job,) in (over, running):
        take_artifact(site.folder, job.task_id, job.epoch, half, lambda data: data)
    site.prune()
    assert len([*site.folder.rglob("*.part")]) == 2
    site.rig.do(complete(over[0]))
    site.prune()
    (left,) = site.folder.rglob("*.part")
    assert left.name.startswith(f"{running[0].task_id}-{running[0].epoch}-")
    jump(site.rig, 40 * DAY_S)
    site.rig.do(complete(running[0]))
    site.prune()
    assert not [*site.folder.rglob("*.part")], "it is no question of time"
