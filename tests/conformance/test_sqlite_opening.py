"""Opening a SQLite store: what is refused, and what a killed writer leaves."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from store_rows import NOW, Subject, new_task, writes

from muster.hosts.file_lock import Lock, holder
from muster.model.errors import OwnerUnavailable, StoreFull, StoreHalted, StoreRefused, Unavailable
from muster.model.rows import Workspace
from muster.ports.store import Tx
from muster.stores.sqlite import schema
from muster.stores.sqlite import store as sqlite_store
from muster.stores.sqlite.copies import examine, write_anew
from muster.stores.sqlite.halt import BACKUPS
from muster.stores.sqlite.schema import UNRELEASED, UPGRADED_SCHEMA
from muster.stores.sqlite.store import SqliteStore
from patience import PATIENCE_S

BIG = 12 << 20
"""More than the writer's cache: SQLite must write it to the WAL before the commit."""

FOLDERS = [str(folder) for folder in Path(__file__).parents[:2]]
WRITER = f"""
import asyncio, sys, time
sys.path[:0] = {FOLDERS!r}
from pathlib import Path
from store_rows import NOW, new_task, writes
from muster.stores.sqlite.store import SqliteStore

store = SqliteStore.open(Path(sys.argv[1]))

async def add(first, last, *, then_hang=False):
    async def work(tx):
        for i in range(first, last):
            title = "x" * ({BIG} if then_hang else 10)
            await tx.write(writes(new_tasks=[new_task(i, title=title)]), NOW)
        if then_hang:
            print("in the middle", flush=True)
            time.sleep(600)
    await store.transact(lambda tx: work(tx.of(1)))

if sys.argv[2] == "hang":
    asyncio.run(add(1, 3))
    asyncio.run(add(3, 6, then_hang=True))
for i in range(1, 100_000):
    asyncio.run(add(i, i + 1))
    print(i, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "muster.db"


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


def opened(path: Path, runner: asyncio.Runner) -> Subject:
    store = SqliteStore.open(path)
    return Subject(store, runner, store._writer.execute, apsw.ConstraintError)


def ids(path: Path, runner: asyncio.Runner) -> list[int]:
    subject = opened(path, runner)
    try:
        assert subject.sql("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [row[0] for row in subject.sql("SELECT id FROM tasks ORDER BY id")]
    finally:
        subject.store.close()


def writer(path: Path, mode: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), mode], stdout=subprocess.PIPE, text=True
    )


def killed(process: subprocess.Popen[str]) -> str:
    """Kills it; what it had still said."""
    process.send_signal(signal.SIGKILL)
    assert process.stdout is not None
    with process.stdout as stdout:
        rest = stdout.read()  # `communicate` would lose what was read ahead of a line
    assert process.wait(PATIENCE_S) == -signal.SIGKILL
    return rest


def test_a_writer_killed_in_mid_transaction_leaves_what_was_committed(
    path: Path, runner: asyncio.Runner
) -> None:
    process = writer(path, "hang")
    assert process.stdout is not None
    assert process.stdout.readline() == "in the middle\n"
    wal = path.with_name("muster.db-wal")
    assert wal.stat().st_size > BIG, "the uncommitted rows never reached the file: nothing is tested"
    killed(process)
    assert ids(path, runner) == [1, 2]


@pytest.mark.promise("S6")
def test_what_was_acknowledged_survives_a_kill_at_any_time(path: Path, runner: asyncio.Runner) -> None:
    process = writer(path, "run")
    assert process.stdout is not None
    said = [int(process.stdout.readline()) for _ in range(25)]
    said += [int(line) for line in killed(process).splitlines()]
    found = ids(path, runner)
    assert found == list(range(1, len(found) + 1))
    assert len(found) in {said[-1], said[-1] + 1}, "at most the one that was being said"


def test_a_store_is_for_its_owners_eyes_only(path: Path, runner: asyncio.Runner) -> None:
    opened(path, runner).store.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_reopening_brings_back_everything(path: Path, runner: asyncio.Runner) -> None:
    subject = opened(path, runner)
    subject.add(new_task(1, "a"))
    subject.store.close()
    assert ids(path, runner) == [1]


@pytest.mark.parametrize(
    "junk", [b"this is no database at all\n" * 40, b"SQLite format 3\0" + b"\xff" * 4080, b"x"]
)
def test_a_damaged_file_is_refused_and_kept(path: Path, junk: bytes) -> None:
    path.write_bytes(junk)
    with pytest.raises(StoreRefused, match="damaged") as refused:
        SqliteStore.open(path)
    assert "backup" in refused.value.hint
    assert path.read_bytes() == junk


def test_a_cut_file_is_refused_and_kept(path: Path, runner: asyncio.Runner) -> None:
    subject = opened(path, runner)
    subject.add(*(new_task(i, title="x" * 500) for i in range(1, 200)))
    subject.store.close()
    whole = path.read_bytes()
    cut = whole[:2048]
    path.write_bytes(cut)
    with pytest.raises(StoreRefused, match="damaged"):
        SqliteStore.open(path)
    assert path.read_bytes()[100:] == cut[100:]


def test_an_emptied_file_does_not_take_its_wal_with_it(path: Path) -> None:
    path.write_bytes(b"")
    wal = path.with_name("muster.db-wal")
    wal.write_bytes(b"committed work")
    with pytest.raises(StoreRefused, match="cut short"):
        SqliteStore.open(path)
    assert wal.read_bytes() == b"committed work"
    wal.write_bytes(b"")
    SqliteStore.open(path).close()  # an owner that was killed at its very first start


def test_a_newer_schema_is_refused_and_kept(path: Path, runner: asyncio.Runner) -> None:
    subject = opened(path, runner)
    subject.add(new_task(1))
    subject.sql("PRAGMA user_version = 1000")
    subject.store.close()
    with pytest.raises(StoreRefused, match="schema 1000") as refused:
        SqliteStore.open(path)
    assert "upgrade" in refused.value.hint
    plain = apsw.Connection(str(path))
    assert plain.execute("PRAGMA user_version").fetchone() == (1000,)
    assert plain.execute("SELECT id FROM tasks").fetchall() == [(1,)]
    plain.close()


@pytest.mark.parametrize("number", [2, UPGRADED_SCHEMA - 1, UNRELEASED])
def test_a_schema_of_before_the_first_release_is_refused_and_kept(path: Path, number: int) -> None:
    """There were eight; all of their stores had tasks, and one of them is upgraded."""
    numbers = [number for number, _ in schema._MIGRATIONS]
    assert not set(numbers[1:]) & set(range(2, UNRELEASED + 1))
    old = apsw.Connection(str(path))
    old.execute("CREATE TABLE tasks (id INTEGER PRIMARY KEY, title TEXT) STRICT")
    old.execute("INSERT INTO tasks VALUES (1, 'kept'); PRAGMA user_version = " + str(number))
    old.close()
    backup = path.parent / BACKUPS / "one.db"
    backup.parent.mkdir()
    before = shutil.copy(path, backup).read_bytes()
    with pytest.raises(StoreRefused, match=f"schema {number}, of a build before the first") as refused:
        SqliteStore.open(path)
    assert "go on with the Muster that made it" in refused.value.hint
    assert f"mv {path.parent} {path.parent}.old" in refused.value.hint
    assert f"muster db check {backup}" in refused.value.hint
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "sql",
    [
        "ALTER TABLE attempts DROP COLUMN holder",
        "ALTER TABLE attempts ADD COLUMN more TEXT",
        "DROP TRIGGER {trigger}",
    ],
)
def test_a_store_of_another_build_is_refused_and_kept(path: Path, runner: asyncio.Runner, sql: str) -> None:
    subject = opened(path, runner)
    subject.add(new_task(1))
    [trigger, *_] = subject.sql("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    subject.sql(sql.format(trigger=trigger[0]))
    subject.store.close()
    before = path.read_bytes()
    with pytest.raises(StoreRefused, match="another build of Muster made it") as refused:
        SqliteStore.open(path)
    assert f"mv {path.parent} {path.parent}.old" in refused.value.hint
    assert path.read_bytes() == before
    assert "another build" in examine(path).findings[0]


def test_a_store_of_another_build_names_its_backup(path: Path, runner: asyncio.Runner) -> None:
    subject = opened(path, runner)
    subject.sql("ALTER TABLE attempts ADD COLUMN more TEXT")
    subject.store.close()
    backup = path.parent / BACKUPS / "one.db"
    backup.parent.mkdir()
    shutil.copy(path, backup)
    with pytest.raises(StoreRefused) as refused:
        SqliteStore.open(path)
    assert f"muster db check {backup}" in refused.value.hint


def test_the_shape_that_is_known_is_the_one_that_is_made(path: Path, runner: asyncio.Runner) -> None:
    subject = opened(path, runner)
    made = schema._shape(subject.store._writer)
    subject.store.close()
    assert hex(schema._checksum(made)) == hex(schema._NEWEST_SHAPE)


def test_what_a_person_has_added_to_a_store_is_no_other_build(path: Path, runner: asyncio.Runner) -> None:
    subject = opened(path, runner)
    subject.sql("CREATE VIEW mine AS SELECT id FROM tasks; ANALYZE")
    subject.store.close()
    SqliteStore.open(path).close()


def test_indexes_by_workspace_come_with_the_second_one(path: Path, runner: asyncio.Runner) -> None:
    wanted = (
        "SELECT name FROM sqlite_schema WHERE name IN ('events_workspace', 'tasks_workspace') ORDER BY name"
    )
    subject = opened(path, runner)
    assert subject.sql(wanted).fetchall() == []
    subject.tx("add_workspace", Workspace(2, "acme", 5))
    subject.store.close()
    subject = opened(path, runner)  # it is no other build's
    assert subject.sql(wanted).fetchall() == [("events_workspace",), ("tasks_workspace",)]
    subject.tx("add_workspace", Workspace(3, "initech", 5))
    plan = subject.sql(
        "EXPLAIN QUERY PLAN SELECT id FROM events WHERE workspace_id = 2 AND id > 7 ORDER BY id"
    )
    assert "events_workspace" in str(plan.fetchall())
    subject.store.close()


def test_an_unsound_sqlite_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "sqlite_version", lambda: ("3.51.2", False))
    with pytest.raises(StoreRefused, match="can corrupt"):
        SqliteStore.open(path)
    assert not path.exists()


async def _nothing(tx: Tx) -> None:
    await tx.write(writes(new_tasks=[new_task(9)]), NOW)


async def _cannot_sync(_: Tx) -> None:
    raise apsw.IOError("disk I/O error")


@pytest.mark.promise("S17")
def test_after_a_failed_sync_nobody_writes_until_a_person_has_looked(
    path: Path, runner: asyncio.Runner
) -> None:
    subject = opened(path, runner)
    with pytest.raises(StoreHalted, match="disk I/O error"):
        subject.transact(_cannot_sync)
    with pytest.raises(StoreHalted, match="disk I/O error"):
        subject.transact(_nothing)
    subject.store.close()
    with pytest.raises(StoreHalted, match="could not be synced") as halted:
        SqliteStore.open(path)
    assert "muster db check --resume" in halted.value.hint
    write_anew(path)
    assert ids(path, runner) == []


async def _disk_is_full(tx: Tx) -> None:
    await tx.write(writes(new_tasks=[new_task(1)]), NOW)
    raise apsw.FullError("database or disk is full")


def test_a_full_disk_refuses_one_write_and_harms_nothing(path: Path, runner: asyncio.Runner) -> None:
    subject = opened(path, runner)
    with pytest.raises(StoreFull, match="full"):
        subject.transact(_disk_is_full)
    subject.transact(_nothing)
    subject.store.close()
    assert ids(path, runner) == [9]


def test_a_foreign_writer_is_weather_and_not_a_bug(path: Path, runner: asyncio.Runner) -> None:
    subject = opened(path, runner)
    subject.store._writer.set_busy_timeout(1)  # type: ignore[attr-defined]
    foreign = apsw.Connection(str(path))
    foreign.execute("BEGIN IMMEDIATE")
    with pytest.raises(Unavailable, match="another program"):
        subject.transact(_nothing)
    foreign.execute("ROLLBACK")
    foreign.close()
    subject.transact(_nothing)
    subject.store.close()
    assert ids(path, runner) == [9]


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "owner.lock"
    assert holder(path) is None
    lock = Lock.take(path)
    assert holder(path) == os.getpid()
    with pytest.raises(OwnerUnavailable, match=str(os.getpid())):
        Lock.take(path)
    lock.release()
    assert holder(path) is None
    Lock.take(path).release()


@pytest.mark.promise("S6")
def test_others_cannot_lock_the_file_of_an_open_store(path: Path) -> None:
    """A process that may would take itself for the last one when it closes, and delete the WAL."""
    SqliteStore.open(path).close()
    store = SqliteStore.open(path)
    tries = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    tried = subprocess.run([sys.executable, "-c", tries, path], capture_output=True, text=True, check=False)
    store.close()
    assert "BlockingIOError" in tried.stderr, tried.stderr


@pytest.mark.promise("S17")
def test_a_look_that_outlives_its_store_halts_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in a thread: what it sees once the store was closed, its WAL gone, is no fault."""
    SqliteStore.open(path).close()
    store, look = SqliteStore.open(path), sqlite_store.identity

    def closed_meanwhile(of: Path) -> object:
        store.close()
        return look(of)

    with monkeypatch.context() as patched:
        patched.setattr(sqlite_store, "identity", closed_meanwhile)
        store.look_now()
    assert store.halted is None
    SqliteStore.open(path).close()
