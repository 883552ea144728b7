"""Folders as the last build before the first release has left them: `schema_7.sql` is its store."""

from __future__ import annotations

from pathlib import Path

import apsw
import record_schema_7 as recorded

DUMP = Path(__file__).with_name("schema_7.sql")
SETTINGS = """agent = "shell"

[agents.shell]
command = ["sh", "-c", '''
echo "$MUSTER_TASK $MUSTER_EPOCH $(cat "$MUSTER_CHECKPOINT" 2>/dev/null)" >> ledger.txt''']
"""


def lay_out(folder: Path) -> Path:
    """A project that was recorded, at another place; where its store is."""
    state = folder / ".muster"
    state.mkdir(mode=0o700, parents=True)
    (state / "key").write_text(f"{recorded.KEY}\n")
    (folder / "muster.toml").write_text(SETTINGS)
    done = {"hello", "wall", "print", "think"}
    lines = [
        line.replace("[ ]", "[x]") if any(f"{{#{key}" in line for key in done) else line
        for line in recorded.PLAN.splitlines()
    ]
    (folder / "shop.md").write_text("\n".join([*lines, ""]))
    return write_store(state / "state.db", folder)


def write_store(path: Path, folder: Path) -> Path:
    """As it is after a kill: all of it is in the WAL."""
    store = apsw.Connection(str(path))
    store.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    store.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    store.execute("PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0").fetchall()
    store.execute(DUMP.read_text("utf-8").replace(recorded.FOLDER, str(folder)))
    store.close()
    return path


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    store = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return store.execute(sql).fetchall()
    finally:
        store.close()
