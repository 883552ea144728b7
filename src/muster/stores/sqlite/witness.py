"""What the store has committed, noted beside its files: a lost WAL or an older copy in its place shows (S2).

It is noted after each commit, before that is acknowledged, and not synced: the note may lag behind the store, and
never leads.  Where it does, commits are missing.  Two slots take turns, so that a torn one leaves the other.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import apsw

from muster.stores.sqlite.statements import load_sql

log = logging.getLogger(__name__)

_SLOT_BYTES = 512
"""A disk writes so much at once."""
_FIELDS = struct.Struct("<16sQQQ")
_RECORD_BYTES = _FIELDS.size + 4
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
    try:
        content = witness_of(store).read_bytes()
    except OSError:
        return None
    slots = (content[at : at + _RECORD_BYTES] for at in (0, _SLOT_BYTES))
    return max(_whole(slots), key=lambda made: made.commits, default=None)


def _whole(slots: Iterable[bytes]) -> Iterable[Made]:
    for slot in slots:
        body = slot[: _FIELDS.size]
        if len(slot) == _RECORD_BYTES and slot[_FIELDS.size :] == _sum(body):
            yield Made(*_FIELDS.unpack(body))


def _sum(body: bytes) -> bytes:
    return zlib.crc32(body).to_bytes(4)


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
        self._fd = os.open(witness_of(store), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.settled = made.settled
        for turn in (0, 1):
            self.note(made, turn)

    def note(self, made: Made, turn: int | None = None) -> None:
        body = _FIELDS.pack(made.store, made.commits, made.epoch, self.settled)
        at = _SLOT_BYTES * (made.commits % 2 if turn is None else turn)
        try:
            os.pwrite(self._fd, body + _sum(body), at)
        except OSError as error:
            # It lags then, as it may.
            log.debug("the witness could not be written: %s", error)

    def close(self) -> None:
        os.close(self._fd)
