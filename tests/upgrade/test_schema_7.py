"""Stores of the last build before the first release: all that is in them is taken over, or nothing is changed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest
from old_stores import lay_out, rows, write_store

from muster.config.identity import look
from muster.config.project import Project
from muster.model.errors import StoreFull, StoreRefused, Unavailable
from muster.stores.sqlite.copies import examine
from muster.stores.sqlite.store import SqliteStore
from muster_command import run_muster
from patience import PATIENCE_S

KEPT = {
    "tasks": "id, plan_id, lane_id, status, generation, epoch, event_seq, priority, unmet, ready, retries, "
    "losses, percent, step, error_kind, error, paused_reason, question, expires_at_ms, key, title, description, "
    "metadata, tags, capabilities, target, parent_task_id, estimated_s, created_by, result",
    "dependencies": "parent_id, child_id, met",
    "attempts": "task_id, epoch, generation, status, worker_id, agent, request_id, lease_until_ms, session_key, "
    "token_hash, error, exit_code, checkpoints, log_bytes, usage, session_usage",
    "checkpoints": "task_id, epoch, number, data",
    "logs": "rowid, task_id, epoch, stream, offset, data",
    "artifacts": "task_id, epoch, name, location",
    "idempotency": "workspace_id, key, task_id, created_at_ms",
    "seals": "to_id, from_id, count, head, marks",
    "lanes": "id, plan_id, agent, capabilities, profile, limit_key",
    "workers": "id, pid, pid_start, boot_id, status, agents",
    "plans": "id, name, ticked_event_id, failures",
}
OPEN = """
import os, signal, sys
from pathlib import Path
import apsw
from muster.stores.sqlite.store import SqliteStore

left = int(sys.argv[2])

def point(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return False

apsw.connection_hooks.append(lambda connection: connection.set_progress_handler(point, 2_000))
files = {"os.rename", "os.link", "os.mkdir", "os.remove", "fcntl.flock"}
sys.addaudithook(lambda event, _: point() if event in files else None)
SqliteStore.open(Path(sys.argv[1])).close()
print("opened", flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "project"


@pytest.fixture
def store(folder: Path) -> Path:
    return lay_out(folder)


def told(folder: Path, *argv: str) -> str:
    done = run_muster(folder, *argv)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def opening(path: Path, kill_at: int = 0) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", OPEN, str(path), str(kill_at)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kept(path: Path) -> dict[str, list[tuple[object, ...]]]:
    key = {table: columns.split(", ")[0] for table, columns in KEPT.items()}
    found = {
        table: rows(path, f"SELECT {columns} FROM {table} ORDER BY {key[table]}, 2, 3")
        for table, columns in KEPT.items()
    }
    events = "id, task_id, seq, at_ms, event, message, details, previous_status, new_status, epoch, actor"
    found["events"] = rows(path, f"SELECT {events} FROM events WHERE event <> 'store_upgraded' ORDER BY id")
    return found


@pytest.mark.promise("S2")
@pytest.mark.promise("S7")
def test_everything_is_kept(folder: Path, store: Path) -> None:
    before = kept(store)
    assert before["attempts"] and before["logs"] and before["seals"] and before["idempotency"]
    said = run_muster(folder, "status", env=dict(os.environ))
    backup = store.parent / "backups" / "schema-7.db"
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"{store} was upgraded from schema 7; as it was it is kept in {backup}" in said.stderr
    assert "no witness" not in said.stderr
    assert kept(store) == before == kept(backup)
    assert rows(store, "SELECT DISTINCT workspace_id FROM tasks") == [(1,)]
    assert rows(store, "SELECT name, source FROM plans WHERE source IS NOT NULL") == [("shop", "shop.md")]
    assert rows(store, "SELECT key FROM tasks WHERE skipped ORDER BY key") == [("polish",), ("skipped",)]
    (epochs,) = rows(store, "SELECT seq FROM sqlite_sequence WHERE name = 'epochs'")
    assert epochs == (max(int(str(row[1])) for row in before["attempts"]),)
    assert told(folder, "db", "check").startswith("sound")
    assert told(folder, "audit", "verify").startswith("whole: 59 events sealed")
    again = run_muster(folder, "status", env=dict(os.environ))
    assert "upgraded" not in again.stderr, "it is done once"


def test_its_audit_still_shows_an_edit(folder: Path, store: Path) -> None:
    told(folder, "status")
    with_hand = apsw.Connection(str(store))
    (trigger,) = with_hand.execute("SELECT sql FROM sqlite_schema WHERE name = 'events_no_update'").fetchone()
    with_hand.execute("DROP TRIGGER events_no_update; UPDATE events SET actor = 'me' WHERE id = 40")
    with_hand.execute(trigger)
    with_hand.close()
    verified = run_muster(folder, "audit", "verify")
    assert verified.returncode != 0
    assert "event 40" in verified.stdout and "was changed after it was sealed" in verified.stdout


def test_the_upgrade_is_in_the_audit_with_the_old_head(store: Path) -> None:
    heads = rows(store, "SELECT head FROM seals ORDER BY to_id DESC LIMIT 1")
    SqliteStore.open(store).close()
    ((at, message, details),) = rows(
        store, "SELECT seq, message, details FROM events WHERE event = 'store_upgraded'"
    )
    assert at == 1 and "as it was it is kept in backups/schema-7.db" in str(message)
    expected = {"schema": 7, "tasks": 21, "events": 59, "seals": 2, "head": heads[0][0]}
    assert json.loads(str(details)) == expected


def test_todays_crew_finishes_the_plan(folder: Path, store: Path) -> None:
    told(folder, "answer", "shop/ask", "blue")
    told(folder, "task", "retry", "shop/fail")
    told(folder, "up", "--daemon", "--workers", "2")
    told(folder, "task", "wait", "shop/order", "shop/blocked", "shop/paint", "--timeout", "60s")
    told(folder, "down")
    tasks = json.loads(told(folder, "task", "list", "--plan", "shop", "--json"))
    assert {task["key"]: task["status"] for task in tasks} == {
        **dict.fromkeys(["hello", "wall", "half", "order", "fail", "blocked"], "COMPLETED"),
        **dict.fromkeys(["ask", "paint", "print", "think"], "COMPLETED"),
        "polish": "CANCELLED",
    }
    ledger = [line.split(maxsplit=2) for line in (folder / "ledger.txt").read_text().splitlines()]
    shop = {name: (epoch, *more) for name, epoch, *more in ledger if name.startswith("shop/")}
    assert shop == {
        "shop/half": ("2", '{"shelf": 4}'),
        "shop/fail": ("2",),
        "shop/ask": ("2",),
        "shop/order": ("1",),
        "shop/blocked": ("1",),
        "shop/paint": ("1",),
    }
    assert len(ledger) == len({name for name, *_ in ledger}), "nothing is done twice"
    ended = rows(store, "SELECT a.status FROM attempts a JOIN tasks t ON t.id = task_id WHERE key = 'half'")
    assert ended == [("lost",), ("completed",)]
    assert "- [ ]" not in (folder / "shop.md").read_text().replace("- [ ] Polish", "")
    assert told(folder, "db", "check").startswith("sound")
    assert told(folder, "audit", "verify").startswith("whole")


def test_an_idempotency_key_still_stands_for_its_task(folder: Path, store: Path) -> None:
    number = rows(store, "SELECT count(*) FROM tasks")
    argv = ["task", "add", "The task later", "--key", "later", "--idempotency-key", "once", "--json"]
    again = json.loads(told(folder, *argv))
    (kept_as,) = rows(store, "SELECT task_id FROM idempotency WHERE key = 'once'")
    assert str(kept_as[0]) in json.dumps(again)
    assert rows(store, "SELECT count(*) FROM tasks") == number


def test_its_folder_is_its_own(folder: Path, store: Path, tmp_path: Path) -> None:
    """Builds of then kept no record of that; a copy that is made after the upgrade is one."""
    assert not look(Project(folder)).copied, "all of it is in its WAL"
    told(folder, "task", "pause", "shop/half")
    shutil.copytree(folder, tmp_path / "copy")
    refused = run_muster(tmp_path / "copy", "task", "pause", "tasks/behind")
    assert "muster db adopt" in refused.stderr
    (folder / ".muster" / "identity").unlink()
    assert look(Project(folder)).copied, "it was upgraded: since then there has been a record"


@pytest.mark.promise("S6")
def test_a_kill_at_any_point_leaves_the_old_store_or_the_new_one(tmp_path: Path) -> None:
    first = write_store(tmp_path / "first.db", tmp_path)
    before, outcomes, at = kept(first), [], 0
    while not outcomes or outcomes[-1] != "opened":
        at += 1
        path = write_store(tmp_path / f"{at}" / "state.db", tmp_path) if _made(tmp_path / f"{at}") else first
        child = opening(path, at)
        out, err = child.communicate(timeout=PATIENCE_S)
        outcomes.append(out.strip() or str(rows(path, "PRAGMA user_version")[0][0]))
        assert child.returncode in {0, -signal.SIGKILL}, err
        assert kept(path) == before, f"killed at point {at}"
        SqliteStore.open(path).close()
        assert kept(path) == before and not examine(path).findings
        backup = path.parent / "backups" / "schema-7.db"
        assert kept(backup) == before and rows(backup, "PRAGMA user_version") == [(7,)]
        assert not list(path.parent.glob("*.upgraded*"))
    assert {"7", "1", "opened"} == set(outcomes), "it was killed before, after, and not at all"
    assert outcomes.count("7") > 10


def _made(folder: Path) -> bool:
    folder.mkdir()
    return True


def test_of_two_that_open_it_at_once_one_waits(store: Path) -> None:
    before = kept(store)
    children = [opening(store) for _ in range(4)]
    for child in children:
        out, err = child.communicate(timeout=PATIENCE_S)
        assert out == "opened\n", err
    assert kept(store) == before
    assert rows(store, "SELECT count(*) FROM events WHERE event = 'store_upgraded'") == [(1,)]
    assert [path.name for path in (store.parent / "backups").iterdir()] == ["schema-7.db"]


@pytest.mark.parametrize("settings", ["", '[log]\nformat = "json"\n'])
def test_a_crew_in_the_background_tells_it_too(folder: Path, store: Path, settings: str) -> None:
    with (folder / "muster.toml").open("a") as file:
        file.write(settings)
    try:
        begun = run_muster(folder, "up", "--daemon", "--workers", "1")
        assert begun.returncode == 0, begun.stdout + begun.stderr
        assert f"{store} was upgraded from schema 7; as it was it is kept in" in begun.stderr
    finally:
        told(folder, "down")
    again = run_muster(folder, "up", "--daemon", "--workers", "1")
    told(folder, "down")
    assert again.returncode == 0 and "upgraded" not in again.stdout + again.stderr


def test_a_crew_in_the_foreground_tells_it_too(folder: Path, store: Path) -> None:
    argv = [sys.executable, "-m", "muster.cli.main", "up", "--workers", "1"]
    up = subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert up.stdout is not None
        said = [up.stdout.readline()]
        while said[-1] and not said[-1].startswith("Up "):
            said.append(up.stdout.readline())
        assert f"{store} was upgraded from schema 7" in "".join(said)
    finally:
        told(folder, "down")
        up.communicate(timeout=PATIENCE_S)


def test_two_commands_at_once_both_answer(folder: Path, store: Path) -> None:
    argv = [sys.executable, "-m", "muster.cli.main", "status"]
    both = [
        subprocess.Popen(argv, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(2)
    ]
    said = [one.communicate(timeout=PATIENCE_S) for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert b"".join(err for _, err in said).count(b"was upgraded from schema 7") == 1


@pytest.mark.parametrize(
    "sql", ["ALTER TABLE attempts DROP COLUMN usage", "DROP TRIGGER events_no_update", "DROP INDEX tasks_due"]
)
def test_other_tables_under_that_number_are_refused_and_kept(store: Path, sql: str) -> None:
    other = apsw.Connection(str(store))
    other.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    other.execute(sql)
    other.close()
    files = [store, store.with_name("state.db-wal")]
    before = [path.read_bytes() for path in files]
    with pytest.raises(
        StoreRefused, match=r"schema 7 has another (attempts|events_no_update|tasks_due)"
    ) as refused:
        SqliteStore.open(store)
    assert f"mv {store.parent} {store.parent}.old" in refused.value.hint
    assert [path.read_bytes() for path in files] == before
    assert not (store.parent / "backups").exists()


def test_what_a_person_has_added_to_the_store_is_no_other_build(store: Path) -> None:
    other = apsw.Connection(str(store))
    other.execute("CREATE VIEW mine AS SELECT id FROM tasks; ANALYZE")
    other.close()
    SqliteStore.open(store).close()
    assert rows(store, "PRAGMA user_version") == [(1,)]


def test_rows_that_break_a_promise_are_refused_and_kept(store: Path) -> None:
    other = apsw.Connection(str(store))
    other.execute("UPDATE tasks SET unmet = 3 WHERE key = 'order'")
    other.close()
    with pytest.raises(StoreRefused, match="counts 3 unmet dependencies, there are 1; it is as it was"):
        SqliteStore.open(store)
    assert rows(store, "PRAGMA user_version") == [(7,)]
    assert rows(store, "SELECT count(*) FROM tasks") == [(21,)]


def test_a_program_that_reads_the_store_is_waited_for(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("muster.stores.sqlite.upgrade.CLOSED_S", 0.05)
    foreign = apsw.Connection(str(store))
    foreign.execute("BEGIN; SELECT count(*) FROM tasks").fetchall()
    with pytest.raises(Unavailable, match="another program has"):
        SqliteStore.open(store)
    foreign.close()
    SqliteStore.open(store).close()
    assert rows(store, "PRAGMA user_version") == [(1,)]


def test_without_second_names_the_backup_is_a_copy(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    before = kept(store)
    monkeypatch.setattr(Path, "hardlink_to", no_links)
    SqliteStore.open(store).close()
    assert kept(store) == before == kept(store.parent / "backups" / "schema-7.db")


def test_an_older_copy_that_is_put_back_is_no_beginning(folder: Path, store: Path) -> None:
    told(folder, "task", "pause", "shop/half")
    shutil.copy(store.parent / "backups" / "schema-7.db", store)
    refused = run_muster(folder, "task", "pause", "tasks/behind")
    assert "commits are missing" in refused.stderr, refused.stderr
    assert "muster db restored" in refused.stderr
    told(folder, "db", "restored")
    told(folder, "task", "pause", "tasks/behind")
    assert min(path.name for path in (store.parent / "backups").iterdir()).startswith("schema-7-")


def test_a_backup_that_was_made_before_is_put_back_and_upgraded(folder: Path, store: Path) -> None:
    copy = folder / "before.db"
    assert "21 tasks" in told(folder, "db", "backup", str(copy))
    assert told(folder, "db", "check", str(copy)).startswith("sound")
    told(folder, "task", "pause", "shop/half")
    shutil.copy(copy, store)
    assert "is a backup that was put in place" in run_muster(folder, "task", "pause", "tasks/behind").stderr
    told(folder, "db", "restored")
    (base,) = rows(store, "SELECT value FROM meta WHERE name = 'epoch_base'")
    assert int(str(base[0])) > 1_000_000
    assert rows(store, "SELECT status FROM tasks WHERE key = 'half'") == [("RUNNING",)]
    assert told(folder, "db", "check").startswith("sound")


def test_migrate_says_it_before_and_does_it(folder: Path, store: Path) -> None:
    assert f"sound: {store}, schema 7 (muster db migrate: 1), 21 tasks" in told(folder, "db", "check")
    assert "would go from schema 7 to 1" in told(folder, "db", "migrate", "--dry-run")
    assert rows(store, "PRAGMA user_version") == [(7,)]
    assert "went from schema 7 to 1" in told(folder, "db", "migrate")
    assert told(folder, "db", "check").startswith("sound")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of half a megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nothing can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_leaves_the_old_store(small: Path, tmp_path: Path) -> None:
    path = write_store(small / "state.db", tmp_path)
    before = kept(path)
    filler = small / "filler"
    with pytest.raises(OSError, match="No space"), filler.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 1024)
    with filler.open("rb+") as file:  # room for the old store's WAL, not for a new store
        file.truncate(filler.stat().st_size - (240 << 10))
    with pytest.raises(StoreFull, match="was not upgraded, and is as it was"):
        SqliteStore.open(path)
    assert kept(path) == before
    filler.unlink()
    SqliteStore.open(path).close()
    assert kept(path) == before and rows(path, "PRAGMA user_version") == [(1,)]
