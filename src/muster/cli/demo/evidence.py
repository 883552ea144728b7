"""What the demo did and what its agents wrote down, beside the history of the store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from muster.testing.promises import Deed, History


class Line(NamedTuple):
    """One line of the ledger: a piece of work that was really done."""

    task_id: int
    key: str
    epoch: int
    piece: int
    of: int
    pid: int
    at_ms: int

    def deed(self) -> Deed:
        return Deed(task_id=self.task_id, epoch=self.epoch, what=str(self.piece), at_ms=self.at_ms)


class Fault(NamedTuple):
    """What the demo did to a worker, and which attempt that worker held."""

    signal: str
    worker: str
    worker_pid: int
    task_id: int
    key: str
    epoch: int
    at_ms: int

    @property
    def ref(self) -> str:
        return f"{self.key}#{self.epoch}"


class LateWrite(NamedTuple):
    """A write of an attempt that was over, tried for real."""

    ref: str
    what: str
    refused: bool
    answer: str


@dataclass(frozen=True, kw_only=True)
class Evidence:
    history: History
    ledger: tuple[Line, ...]
    late_writes: tuple[LateWrite, ...] = ()
    faults: tuple[Fault, ...] = ()
    allowed: tuple[str, ...] = ()
    """Ways to change an event that the database did not refuse."""

    def at_ms(self, task_id: int, epoch: int, name: str) -> int | None:
        """When the newest event of that name happened to that attempt."""
        found = [
            event.at_ms
            for event in self.history.events
            if (event.task_id, event.epoch, event.event) == (task_id, epoch, name)
        ]
        return found[-1] if found else None

    def pieces(self, task_id: int, epoch: int) -> list[Line]:
        return [line for line in self.ledger if (line.task_id, line.epoch) == (task_id, epoch)]


def read_ledger(path: Path) -> tuple[Line, ...]:
    """In the order in which the lines were written; one that is just being written is left out."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return tuple(
        Line(row["task"], row["key"], row["epoch"], row["piece"], row["of"], row["pid"], row["atMs"])
        for row in map(json.loads, whole.splitlines())
    )
