"""`muster db copy` that is cut off: at each moment the file or the database is valid, and never both."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import muster

from moved_stores import MovedProject
from muster.hosts.file_lock import holder
from muster.model.errors import StoreRefused
from muster.model.views import TaskFilter
from muster.ports.store import Transaction
from muster.stores.postgres.store import PostgresStore
from muster_command import run_muster
from patience import PATIENCE_S, until
from postgres_databases import USER, at, run_sql
from real_servers import Running, own_folder, run_postgres, start_postgres

BEFORE_THE_FILE_HAS_MOVED = (
    ("Intake.begin", "after"),
    ("Intake.fill", "before"),
    ("Intake.keep", "after"),
    ("Intake.analyze", "before"),
    ("SqliteStore.move", "before"),
)
"""The last steps before the mark in the file: marked, in the transaction, filled, committed, compared."""
BEFORE_THE_DATABASE_IS_FREE = (("SqliteStore.move", "after"), ("Intake.lift", "before"))


@pytest.fixture
def project(tmp_path: Path) -> MovedProject:
    return MovedProject(tmp_path / "project")


@pytest.fixture
def url(postgres_database: str) -> str:
    return at(postgres_database, postgres_database.rpartition("/")[2], USER)


async def _nothing(_: Transaction) -> None: ...


def served(url: str) -> dict[str, tuple[str, int]]:
    """The tasks that a server of that database has.  Raises StoreRefused where it would not begin."""

    async def look() -> dict[str, tuple[str, int]]:
        store = await PostgresStore.open(url)
        try:
            await store.transact(_nothing)
            views = await store.reads.task_views(TaskFilter())
        finally:
            await store.aclose()
        return {f"{view.plan}/{view.key}": (view.status, view.epoch) for view in views}

    return asyncio.run(look())


def refused(url: str) -> str:
    with pytest.raises(StoreRefused) as error:
        served(url)
    return error.value.message


@pytest.mark.promise("S6")
@pytest.mark.parametrize(("step", "when"), BEFORE_THE_FILE_HAS_MOVED)
def test_killed_before_the_file_has_moved_the_file_counts(
    project: MovedProject, url: str, step: str, when: str
) -> None:
    project.killed(url, step, when)
    assert "or that was cut off" in refused(url)
    project("task", "add", "four", "--key", "four", "--plan", "plan")
    assert "db copy --clear" in project("db", "copy", url, code=6)
    before = project.tasks
    project("db", "copy", url, "--clear")
    assert "plan/four" in before and served(url) == before


@pytest.mark.promise("S6")
@pytest.mark.parametrize(("step", "when"), BEFORE_THE_DATABASE_IS_FREE)
def test_killed_after_that_the_next_copy_finishes_it(
    project: MovedProject, url: str, step: str, when: str
) -> None:
    before = project.tasks
    project.killed(url, step, when)
    assert "or that was cut off" in refused(url)
    doctor = run_muster(project.folder, "doctor", "--store", url, "--offline").stdout
    assert "✗ schema" in doctor and "or that was cut off" in doctor
    assert "was copied" in project("task", "add", "four", code=1)
    assert "the tasks go on in" in project("db", "copy", url)
    assert served(url) == before == project.tasks
    assert "was copied" in project("db", "copy", url, code=1)


def test_killed_as_the_very_last_it_is_done(project: MovedProject, url: str) -> None:
    before = project.tasks
    project.killed(url, "Intake.lift", "after")
    assert "was copied" in project("db", "copy", "--clear", url, code=1)
    assert served(url) == before


@pytest.mark.parametrize(
    ("step", "when"), [("Intake.take_back", "after"), ("SqliteStore.move_back", "after")]
)
def test_an_undo_that_is_killed_is_done_again(project: MovedProject, url: str, step: str, when: str) -> None:
    before = project.tasks
    project("db", "copy", url)
    argv = [*project.copying(url, step, when), "--undo"]
    assert subprocess.run(argv, capture_output=True, check=False).returncode == -9
    assert "was taken back" in refused(url)
    project("db", "copy", "--undo", url, code=0 if step == "Intake.take_back" else 6)
    project("task", "add", "four", "--key", "four", "--plan", "plan")
    assert "was taken back" in project("db", "copy", url, code=6)
    project("db", "copy", "--clear", url)
    assert served(url).keys() == before.keys() | {"plan/four"}


@pytest.fixture
def lonely() -> Iterator[Running]:
    """A PostgreSQL that the test may kill."""
    with own_folder() as folder:
        running = start_postgres(folder)
        try:
            yield running
        finally:
            running.stop(signal.SIGKILL)


@pytest.mark.parametrize("step", ["Intake.fill", "Intake.lift"])
def test_a_database_that_goes_away_is_told_and_the_copy_repeated(
    project: MovedProject, lonely: Running, step: str
) -> None:
    before = project.tasks
    argv = project.copying(lonely.url, step, "before", str(lonely.pid))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 7 and "PostgreSQL does not answer" in done.stderr, done.stdout + done.stderr
    lonely.stop(signal.SIGKILL)
    again = run_postgres(Path(lonely.folder), {"port": lonely.url.rpartition(":")[2].partition("/")[0]})
    try:
        if step == "Intake.fill":
            assert "--clear" in project("db", "copy", lonely.url, code=6)
            project("task", "add", "four", "--key", "four", "--plan", "plan")
            before = project.tasks
            project("db", "copy", "--clear", lonely.url)
        else:
            assert "was copied" in project("task", "add", "four", code=1)
            project("db", "copy", lonely.url)
        assert served(lonely.url) == before
    finally:
        again.stop(signal.SIGKILL)


def test_who_comes_while_it_copies_is_refused(project: MovedProject, url: str, tmp_path: Path) -> None:
    before = project.tasks
    with project.copying_still(url, tmp_path / "pause", "Intake.keep"):
        assert "or that was cut off" in refused(url)
        code, said = muster(project.folder, "up", "--daemon")
        assert code != 0 and "is held by process" in said, said
        assert "nothing was changed" in project("db", "copy", url, code=6)
        other = MovedProject(tmp_path / "other")
        assert "another process copies" in other("db", "copy", url, code=6)
    until(lambda: holder(project.lock) is None, "the crew that was begun has ended: its store has moved")
    assert served(url) == before


def test_a_disk_that_is_full_leaves_both_as_they_were(
    project: MovedProject, url: str, postgres_database: str
) -> None:
    before = project.tasks
    project.killed(url, "Intake.begin", "after")
    run_sql(
        postgres_database,
        "CREATE FUNCTION muster.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END $$",
        "CREATE TRIGGER full_disk BEFORE INSERT ON muster.events FOR EACH ROW EXECUTE FUNCTION muster.full()",
        "DELETE FROM muster.halt",
    )
    assert "is full" in project("db", "copy", url, code=7)
    assert run_sql(postgres_database, "SELECT * FROM muster.halt") == []
    assert run_sql(postgres_database, "SELECT * FROM muster.tasks") == []
    run_sql(postgres_database, "DROP TRIGGER full_disk ON muster.events")
    project("db", "copy", url)
    assert served(url) == before
