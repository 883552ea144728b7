"""`muster db`: backup, check, migrate, restored."""

from __future__ import annotations

import json
import stat

import apsw
import pytest

from muster.stores.sqlite import schema
from muster.stores.sqlite.store import SqliteStore


@pytest.fixture
def idle(cli, owner):
    """A project whose owner has ended."""
    owner.close()
    return owner


def test_backup_beside_a_living_owner(cli, owner, root):
    ran = cli("db", "backup", "copy.db")
    assert ran.code == 0, ran.err
    assert f"backed up  {root / 'copy.db'}" in ran.out and "5 tasks" in ran.out and ".muster/key" in ran.out
    assert stat.S_IMODE((root / "copy.db").stat().st_mode) == 0o600
    assert owner.served.backups == 1, "made by the owner itself"
    ran = cli("db", "check", "copy.db")
    assert ran.code == 0 and ran.out.startswith("sound: ")
    kept = (root / "copy.db").read_bytes()
    assert cli("db", "backup", "copy.db").code == 6
    assert (root / "copy.db").read_bytes() == kept
    again = json.loads(cli("db", "backup", "copy.db", "--force", "--json").out)
    assert (
        again["path"] == str(root / "copy.db")
        and again["tasks"] == 5
        and again["schema"] == schema.newest_schema()
    )


def test_backup_without_an_owner_goes_where_backups_are(cli, idle, root):
    made = json.loads(cli("db", "backup", "--json").out)
    folder = root / ".muster" / "backups"
    assert [str(path) for path in folder.iterdir()] == [made["path"]]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert cli("db", "check", made["path"]).code == 0


def test_check(cli, owner, root):
    for argv in (("check",), ("check", "--quick")):
        ran = cli("db", *argv)
        assert ran.code == 0 and "5 tasks" in ran.out
    report = json.loads(cli("db", "check", "--json").out)
    assert (report["ok"], report["findings"], report["halted"], report["tasks"]) == (True, [], None, 5)
    assert report["schema"] == report["newest"]


def test_check_lists_what_it_finds(cli, idle, root):
    store = SqliteStore.open(root / ".muster" / "state.db")
    store._writer.execute("UPDATE tasks SET unmet = 7 WHERE key = 'docs'")
    store.close()
    ran = cli("db", "check")
    assert ran.code == 1 and "broken  S8: " in ran.out and "BROKEN: " in ran.out
    assert "begin anew, as no backup is known" in ran.out
    report = json.loads(cli("db", "check", "--json").out)
    assert report["ok"] is False and len(report["findings"]) == 1
    ran = cli("db", "check", "--resume")
    assert ran.code == 1 and "broken" in ran.out
    for text in ("", "x" * 5000):
        (root / "other").write_text(text)
        ran = cli("db", "check", "other")
        assert ran.code == 1 and "BROKEN" in ran.out


def test_a_row_that_cannot_be_read_is_named(cli, idle, root):
    store = SqliteStore.open(root / ".muster" / "state.db")
    store._writer.execute("UPDATE lanes SET capabilities = '[' WHERE id = (SELECT min(id) FROM lanes)")
    (number,) = store._writer.execute("SELECT min(id) FROM lanes").fetchone()
    store.close()
    ran = cli("db", "check")
    assert (
        ran.code == 1
        and f"broken  the store is damaged: capabilities of lane {number} cannot be read" in ran.out
    )
    assert "begin anew, as no backup is known" in ran.out


def test_resume_where_nothing_is_halted_is_a_check(cli, idle, root):
    before = (root / ".muster" / "state.db").read_bytes()
    assert cli("db", "check", "--resume").out.startswith("sound: ")
    assert (root / ".muster" / "state.db").read_bytes() == before


def test_a_halt_is_lifted_once_the_store_is_sound(cli, idle, root):
    flag = root / ".muster" / "state.halted"
    flag.write_text("damaged: database disk image is malformed")
    (root / ".muster" / "key").write_text("00" * 32)
    assert cli("status").code == 1
    ran = cli("db", "check")
    assert ran.code == 1 and ran.out.startswith("HALTED: ") and "sound: " not in ran.out
    ran = cli("db", "backup")
    assert ran.code == 1 and "is damaged" in ran.err
    assert cli("db", "check", "--resume").code == 0
    assert not flag.exists()
    assert json.loads(cli("status", "--json").out)["tasks"] == 5


def test_migrate(cli, idle, root, monkeypatch):
    path = root / ".muster" / "state.db"
    known = schema._MIGRATIONS
    present = known[-1][0]
    later = [(present + 1, "CREATE TABLE later (x);"), (present + 2, "INSERT INTO later VALUES (7);")]
    monkeypatch.setattr(schema, "_MIGRATIONS", [*known, *later])
    before = path.read_bytes()
    ran = cli("db", "check")
    assert ran.code == 0 and f"schema {present} (muster db migrate: {present + 2})" in ran.out
    ran = cli("db", "migrate", "--dry-run")
    assert ran.code == 0 and f"would go from schema {present} to {present + 2}" in ran.out
    assert path.read_bytes() == before
    done = json.loads(cli("db", "migrate", "--json").out)
    assert done == {"from": present, "to": present + 2, "dryRun": False}
    assert "nothing to do" in cli("db", "migrate").out
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT x FROM later").fetchall() == [(7,)]
    connection.close()
    assert json.loads(cli("status", "--json").out)["tasks"] == 5


@pytest.mark.parametrize("verb", [("migrate",), ("migrate", "--dry-run"), ("check",), ("restored",)])
def test_a_newer_schema_is_refused(cli, idle, root, verb):
    path = root / ".muster" / "state.db"
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA user_version = 1000")
    connection.close()
    before = path.read_bytes()
    ran = cli("db", *verb)
    assert ran.code == 1 and "schema" in ran.out + ran.err and "1000" in ran.out + ran.err
    assert path.read_bytes() == before


def test_a_backup_is_named_wherever_it_was_written(cli, idle, root):
    (root / "else").mkdir()
    assert cli("db", "backup", "else/copy.db").code == 0
    store = SqliteStore.open(root / ".muster" / "state.db")
    store._writer.execute("UPDATE tasks SET unmet = 7 WHERE key = 'docs'")
    store.close()
    assert f"cp {root}/else/copy.db {root}/.muster/state.db" in cli("db", "check").out
    (root / "else" / "copy.db").unlink()
    assert "no backup is known" in cli("db", "check").out


def test_restored_from_a_backup(cli, idle, root):
    path = root / ".muster" / "state.db"
    assert cli("db", "backup", "copy.db").code == 0
    cli("task", "add", "later", "--agent", "shell")
    (root / "copy.db").replace(path)
    for argv in (("task", "add", "x", "--agent", "shell"), ("task", "cancel", "docs")):
        ran = cli(*argv)
        assert ran.code == 1 and "muster db restored" in ran.err
    ran = cli("status", "--json")
    shown = json.loads(ran.out)
    assert ran.code == 1 and json.loads(ran.err)["error"]["code"] == "store_rewound"
    assert shown["halted"]["code"] == "store_rewound" and shown["tasks"] == 5
    assert "store halted" in cli("status").out
    ran = cli("db", "check")
    assert ran.code == 1 and ran.out.startswith("HALTED: ") and "sound: " not in ran.out
    assert cli("db", "check", "--resume").code == 6
    doctor = {check["name"]: check for check in json.loads(cli("doctor", "--json").out)["checks"]}
    assert "muster db restored" in doctor["store"]["fix"]
    base = json.loads(cli("db", "restored", "--json").out)["base"]
    assert base > 1_000_000
    assert cli("db", "check").code == 0
    assert cli("task", "cancel", "docs").code == 0
    (event,) = [e for e in json.loads(cli("audit", "list", "--json").out) if e["event"] == "store_restored"]
    assert event["level"] == "WARN" and event["actor"].startswith("user:")
    assert "numbered above" in cli("db", "restored").out
    cli("task", "retry", "tests")
    assert cli("claim", "take", "tests").code == 0
    assert cli("claim", "release", "tests", "--fail", "no").code == 0
    for argv in (("task", "list", "--status", "failed"), ("dead", "list")):
        assert [line.split()[-2] for line in cli(*argv).out.splitlines()[1:]] == ["2"]


def test_a_damaged_copy_is_not_taken_for_the_present(cli, idle, root):
    path = root / ".muster" / "state.db"
    store = SqliteStore.open(path)
    store._writer.execute("UPDATE tasks SET unmet = 7 WHERE key = 'docs'")
    store.close()
    ran = cli("db", "restored")
    assert ran.code == 1 and "is not sound" in ran.err and "nothing was changed" in ran.err


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        ((), 2, "VERB"),
        (("bakup",), 2, "did you mean 'backup'?"),
        (("backup", "nowhere/copy.db"), 3, "there is no folder"),
        (("backup", ""), 2, "is no file name"),
        (("backup", "."), 2, "is a folder"),
        (("backup", ".muster/state.db"), 2, "is the store itself"),
        (("backup", ".muster/state.db", "--force"), 2, "is the store itself"),
        (("backup", "a", "b"), 2, "knows no argument 'b'"),
        (("check", "nowhere.db"), 3, "there is no file"),
        (("check", "--deep"), 2, "knows no option '--deep'"),
        (("check", "copy.db", "--resume"), 2, "--resume is for the project's own store"),
        (("check", "--quick", "--resume"), 2, "--resume is for the project's own store"),
        (("migrate", "--dry"), 2, "did you mean '--dry-run'?"),
        (("migrate", "3"), 2, "knows no argument '3'"),
        (("restored", "copy.db"), 2, "knows no argument 'copy.db'"),
    ],
)
def test_wrong_input(refused, owner, root, argv, code, message):
    files = sorted(root.rglob("*.db"))
    refused("db", *argv, code=code, message=message)
    assert sorted(root.rglob("*.db")) == files


@pytest.mark.parametrize(
    "verb", [("migrate",), ("migrate", "--dry-run"), ("restored",), ("check", "--resume")]
)
def test_beside_an_owner(cli, owner, root, verb):
    from muster.hosts.file_lock import Lock

    lock = Lock.take(root / ".muster" / "owner.lock")
    ran = cli("db", *verb)
    lock.release()
    assert ran.code == 6 and "has the store open; nothing was changed" in ran.err and "muster down" in ran.err


@pytest.mark.parametrize("verb", ["backup", "check", "migrate", "restored"])
def test_without_a_store(cli, root, verb):
    (root / "muster.toml").touch()
    ran = cli("db", verb)
    assert ran.code == 3 and "there is no" in ran.err
    assert not (root / ".muster" / "state.db").exists()
