"""What the store has committed, noted beside its files: a lost WAL or an older copy in its place shows (S2).

It is noted after each commit, before that is acknowledged; where the note leads, commits are missing.
"""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path
from typing import NamedTuple

import apsw

from muster.stores.note_file import NoteFile, whole_notes
from muster.stores.sqlite.statements import load_sql

_FIELDS = struct.Struct("<16sQQQ")
MADE_SQL = load_sql("store.sql")["made"]


class Made(NamedTuple):
    """How far a store has come."""

    store: bytes
    """The store's own name, given when it was made; copies have the same."""
    commits: int
    epoch: int
    """The highest one that was granted to any attempt."""
    settled: int = 0
    """Commits that the database's main file holds without its WAL; only a witness says that."""


def made_by(connection: apsw.Connection) -> Made:
    name, commits, epoch = connection.execute(MADE_SQL).fetchone()  # type: ignore[misc]
    return Made(str(name).encode(), int(commits), int(epoch))


def made_in(path: Path, *, main_file_only: bool = False) -> Made | None:
    """What the store's files hold; None where they do not say.  Never while this process has them open."""
    with contextlib.suppress(apsw.Error, TypeError):
        # An immutable file is read without its WAL.
        uri = path.absolute().as_uri() + ("?immutable=1" if main_file_only else "")
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        with contextlib.closing(apsw.Connection(uri, flags=flags)) as connection:
            return made_by(connection)
    return None


def witness_of(store: Path) -> Path:
    return store.with_suffix(".witness")


def last_note(store: Path) -> Made | None:
    """The newest whole record; None where there is none."""
    notes = (Made(*_FIELDS.unpack(body)) for body in whole_notes(witness_of(store), _FIELDS.size))
    return max(notes, key=lambda made: made.commits, default=None)


def missing(note: Made | None, store: Made | None) -> str:
    """What was committed and is not in the store, in words; empty where nothing is."""
    if note is None or store is None:
        return ""
    if note.store != store.store:
        return "it is another store than the one that was here"
    count = note.commits - store.commits
    if count <= 0:
        return ""
    epochs = f", attempts were granted up to number {note.epoch}" if note.epoch > store.epoch else ""
    return f"its last {count} of {note.commits} commits are missing{epochs}"


class Witness:
    """The open file; one writer."""

    def __init__(self, store: Path, made: Made) -> None:
        """Makes it say what the store holds."""
        self._file = NoteFile(witness_of(store))
        self.settled = made.settled
        for turn in (0, 1):
            self.note(made, turn)

    def note(self, made: Made, turn: int | None = None) -> None:
        body = _FIELDS.pack(made.store, made.commits, made.epoch, self.settled)
        self._file.write(made.commits if turn is None else turn, body)

    def close(self) -> None:
        self._file.close()
