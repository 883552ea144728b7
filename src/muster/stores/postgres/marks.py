"""How far this server has come, and the others as far as it has seen: a database that is behind that has lost
commits, as after a failover to a standby that lagged, or a backup's return (S2).

What is compared stands in the table `marks`, and beside the server in a note that it makes after each commit,
before that is acknowledged.  A process that begins compares what its predecessor in this folder has noted, under
a new name: a folder may have been copied.
"""

from __future__ import annotations

import secrets
import struct
from pathlib import Path
from typing import NamedTuple

import asyncpg

from muster.model.errors import StoreAway, StoreRefused
from muster.model.wording import counted
from muster.stores.note_file import NoteFile, whole_notes
from muster.stores.postgres.faults import TRIED_AGAIN
from muster.stores.postgres.statements import for_all, load

SLOTS = 5
"""Rows of one server: one for each connection that it writes by, and number 0 for what begins a connection."""
KEPT_DAYS = 30
"""So long a server's marks are kept after its last one."""
_MISSING = " that servers have acknowledged are missing"
LIFE_MISSING = "that it was restored is missing, and all that was committed since"
_DAY_MS = 86_400_000
_FIELDS = struct.Struct(f"<16s16s{3 + SLOTS}Q")
_SQL = for_all(load("engine.sql")).by_name

Slot = tuple[str, int]
"""A server's name, and the number of its row."""


class Note(NamedTuple):
    """What a server has noted of itself."""

    store: str
    server: str
    life: int
    at_ms: int
    epoch: int
    commits: tuple[int, ...]
    """By slot."""

    def packed(self) -> bytes:
        names = (self.store.encode(), self.server.encode())
        return _FIELDS.pack(*names, self.life, self.at_ms, self.epoch, *self.commits)


class Commit(NamedTuple):
    """As servers tell workers, who tell it the next server that they come to."""

    at_ms: int
    """By the database's clock."""
    life: int
    store: str
    server: str
    slot: int
    number: int

    @property
    def text(self) -> str:
        return ".".join(map(str, self))

    @classmethod
    def of(cls, text: str) -> Commit | None:
        try:
            at_ms, life, store, server, slot, number = text.split(".")
            return cls(int(at_ms), int(life), store, server, int(slot), int(number))
        except ValueError:
            return None


class DatabaseState(NamedTuple):
    """What the database says of itself."""

    store: str
    life: int
    halted: str | None
    epoch: int
    """The highest one that it knows to have been granted."""
    wall_ms: int
    marks: dict[Slot, int]
    recent: frozenset[Slot]


def missing_commits(words: str) -> int:
    """How many that are by what a server has found to be missing, in words; 0 where these are of other things."""
    count = words.partition(_MISSING)[0].partition(" ")[0] if _MISSING in words else ""
    return int(count) if count.isascii() and count.isdigit() else 0


def last_note(path: Path) -> Note | None:
    """None where there is none."""
    bodies = map(_FIELDS.unpack, whole_notes(path, _FIELDS.size))
    notes = [
        Note(store.rstrip(b"\0").decode(), server.decode(), life, at_ms, epoch, tuple(commits))
        for store, server, life, at_ms, epoch, *commits in bodies
    ]
    return max(notes, key=lambda note: sum(note.commits), default=None)


class Marks:
    """Of one process.  Without a `witness` nothing outlives it, and without `notes` that one is only read."""

    def __init__(self, witness: Path | None = None, *, notes: bool = True) -> None:
        self.server = secrets.token_hex(8)
        self._witness = witness if notes else None
        self._file: NoteFile | None = None
        self._before = last_note(witness) if witness is not None else None
        self._store = self._before.store if self._before else ""
        self.life = self._before.life if self._before else 0
        self.epoch = self._before.epoch if self._before else 0
        self._known: dict[Slot, int] = {}
        if self._before is not None:
            self._know(self._before)
        self._free = list(range(SLOTS - 1, 0, -1))
        self._tried: dict[int, int] = {}
        """The last number of each slot, also of a commit that nobody knows the outcome of."""
        self._turn = 0
        self._last = Commit(0, 0, "", "", 0, 0)
        self._wall_ms = 0

    @property
    def known(self) -> bool:
        """Whether this folder's server has served a store."""
        return bool(self._store)

    @property
    def last(self) -> str:
        """This process's newest commit, for whoever has seen what it did; empty before there is one."""
        return self._last.text if self._last.number else ""

    def recall(self, text: str) -> bool:
        """Takes another one's word for a commit.  Whether the database is to be asked about it."""
        commit = Commit.of(text)
        too_old_ms = self._wall_ms - (KEPT_DAYS - 1) * _DAY_MS
        if (
            commit is None
            or commit.store != self._store
            or commit.life < self.life
            or commit.at_ms < too_old_ms
        ):
            return False
        slot = (commit.server, commit.slot)
        if commit.life > self.life:
            return True
        if self._known.get(slot, 0) >= commit.number:
            return False
        self._known[slot] = commit.number
        return True

    def later_life(self, text: str) -> bool:
        commit = Commit.of(text)
        return commit is not None and commit.life > self.life

    def _know(self, note: Note) -> None:
        for number, commits in enumerate(note.commits):
            if commits:
                self._known[note.server, number] = commits

    def take_slot(self) -> int:
        """Whoever has it writes alone by it."""
        return self._free.pop()

    def give_back(self, slot: int) -> None:
        self._free.append(slot)

    def fits(self, slot: int, life: int, commits: int) -> bool:
        """Whether the database has come as far as this server by this slot."""
        return life == self.life and commits >= self._known.get((self.server, slot), 0)

    def next_number(self, slot: int, commits: int) -> int:
        """For a commit after the `commits` that the database has; none stands for two of them."""
        number = self._tried[slot] = max(commits, self._tried.get(slot, 0)) + 1
        return number

    def noted(self, slot: int, commits: int, epoch: int, wall_ms: int) -> None:
        """That was committed, and is about to be acknowledged."""
        self._known[self.server, slot] = max(commits, self._known.get((self.server, slot), 0))
        self.epoch = max(self.epoch, epoch)
        if wall_ms >= self._last.at_ms:
            self._last = Commit(wall_ms, self.life, self._store, self.server, slot, commits)
        if self._file is not None:
            self._turn += 1
            self._file.write(self._turn, self._note(wall_ms).packed())

    def _note(self, wall_ms: int) -> Note:
        commits = tuple(self._known.get((self.server, slot), 0) for slot in range(SLOTS))
        return Note(self._store, self.server, self.life, wall_ms, self.epoch, commits)

    async def mark(self, connection: asyncpg.Connection, standing: DatabaseState) -> None:
        """A commit by which all that this connection can see is at a synchronous standby as well: after a crash,
        a server shows what no standby may have yet."""
        commits = self._known.get((self.server, 0), 0) + 1
        await connection.execute(_SQL["mark"], self.server, 0, commits, 0, standing.life)
        self.noted(0, commits, 0, standing.wall_ms)

    def said(self, slot: int, commits: int, epoch: int, life: int) -> tuple[str, int, int, int, int]:
        """What `mark_commit` is told; `life` is the one that was read as the transaction began."""
        return self.server, slot, commits, epoch, life

    def last_words(self, slot: int, commits: int, epoch: int, life: int) -> str:
        """That end a transaction: the mark, and the commit."""
        server, *numbers = self.said(slot, commits, epoch, life)
        return f"SELECT mark_commit('{server}', {', '.join(f'{number:d}' for number in numbers)}); COMMIT"

    async def _read(self, connection: asyncpg.Connection) -> DatabaseState:
        names = list({server for server, _ in self._known})
        rows = await connection.fetch(_SQL["marks"], names)
        standby, store, life, halted, epoch, wall_ms = await connection.fetchrow(_SQL["standing"])
        if standby:
            raise StoreAway(
                "PostgreSQL is a standby, which takes no writes; nothing was written", TRIED_AGAIN
            )
        marks = {(row["server"], row["slot"]): row["commits"] for row in rows}
        recent = frozenset((row["server"], row["slot"]) for row in rows if row["recent"])
        return DatabaseState(store, life, halted, epoch, wall_ms, marks, recent)

    async def look(self, connection: asyncpg.Connection) -> tuple[DatabaseState, str]:
        """What the database says, and what is missing in it, in words.  Raises StoreRefused for another store."""
        # Whoever commits meanwhile is ahead of what is read now.
        known, life = dict(self._known), self.life
        standing = await self._read(connection)
        if self.life != life:
            return standing, ""
        return standing, self._judge(standing, known)

    def _judge(self, standing: DatabaseState, known: dict[Slot, int]) -> str:
        if self._store and standing.store != self._store:
            raise StoreRefused(
                "this is another store than the one that this folder's server has served; nothing was written",
                "name the former one; or serve this one from another folder",
            )
        if standing.life < self.life:
            return LIFE_MISSING
        if standing.life > self.life and self._store:
            known = {}
            self._known.clear()
        self._store, self.life, self._wall_ms = standing.store, standing.life, standing.wall_ms
        if missing := self._missing(standing, known):
            return missing
        for slot in standing.recent:
            self._known[slot] = max(standing.marks[slot], self._known.get(slot, 0))
        for slot in known.keys() - standing.recent:
            if slot[0] != self.server:
                self._known.pop(slot, None)
        self.epoch = max(self.epoch, standing.epoch)
        self._begin(standing.wall_ms)
        return ""

    def _missing(self, standing: DatabaseState, known: dict[Slot, int]) -> str:
        if self._before is not None and standing.wall_ms - self._before.at_ms > (KEPT_DAYS - 1) * _DAY_MS:
            known = {slot: commits for slot, commits in known.items() if slot[0] != self._before.server}
        behind = (commits - standing.marks.get(slot, 0) for slot, commits in known.items())
        count = sum(commits for commits in behind if commits > 0)
        if not count:
            return ""
        epochs = f"; attempts were granted up to number {self.epoch}" if self.epoch > standing.epoch else ""
        return f"{counted(count, 'commit')}{_MISSING}{epochs}"

    def _begin(self, wall_ms: int) -> None:
        """From here on this process's own notes count."""
        self._before = None
        if self._file is None and self._witness is not None:
            self._file = NoteFile(self._witness)
            for turn in (0, 1):
                self._file.write(turn, self._note(wall_ms).packed())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
