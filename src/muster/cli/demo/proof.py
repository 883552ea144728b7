"""What the demo did and what its agents wrote down, held against the promises (DESIGN.md part 3)."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from muster.cli.output import BOLD, GREEN, RED, Screen
from muster.testing.promises import Deed, Finding, History, all_completed, check

PROBLEMS_SHOWN = 10


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
    pid: int
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


class Recovery(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a task got over the fault of its worker.  Times count from the signal; None: it did not happen."""

    signal: str
    task: str
    from_worker: str = msgspec.field(name="from")
    to_worker: str = msgspec.field(name="to")
    noticed_ms: int | None
    restarted_ms: int | None
    done_ms: int | None
    before: int
    """Pieces that the lost attempt had done."""
    after_signal: int
    """Those that it did between the signal and its end."""
    kept: int
    repeated: int
    """Those that the next attempt did again."""
    saved_again: int
    """Those of them that a checkpoint held."""

    @property
    def came_back(self) -> bool:
        return None not in (self.noticed_ms, self.restarted_ms, self.done_ms) and (
            self.from_worker != self.to_worker
        )


def read_ledger(path: Path) -> list[Line]:
    """In the order in which the lines were written; one that is just being written is left out."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [Line(*json.loads(row)) for row in whole.splitlines()]


def recovery(history: History, ledger: Iterable[Line], fault: Fault) -> Recovery:
    epoch = fault.epoch + 1
    at_ms = {(e.event, e.epoch): e.at_ms - fault.at_ms for e in history.events if e.task_id == fault.task_id}
    lines = [line for line in ledger if line.task_id == fault.task_id]
    new = {line.piece for line in lines if line.epoch > fault.epoch}
    old_ms = {line.piece: line.at_ms - fault.at_ms for line in lines if line.epoch == fault.epoch}
    saved_ms = at_ms.get(("checkpoint", fault.epoch), -math.inf)
    by = (a.worker_id for a in history.attempts if (a.task_id, a.epoch) == (fault.task_id, epoch))
    return Recovery(
        signal=fault.signal,
        task=fault.key,
        from_worker=fault.worker,
        to_worker=next(by, ""),
        noticed_ms=at_ms.get(("lost", fault.epoch)),
        restarted_ms=at_ms.get(("started", epoch)),
        done_ms=at_ms.get(("completed", epoch)),
        before=len(old_ms),
        after_signal=sum(ms > 0 for ms in old_ms.values()),
        kept=len(old_ms.keys() - new),
        repeated=len(old_ms.keys() & new),
        saved_again=sum(ms <= saved_ms for piece, ms in old_ms.items() if piece in new),
    )


def findings(
    history: History, recoveries: Sequence[Recovery], late: Collection[LateWrite], exit_code: int
) -> list[Finding]:
    """The promises that every store keeps, and those that only the demo can look at."""
    refused = "late writes of superseded attempts are refused"
    resumed = "the next attempt starts from the last checkpoint"
    back = "another worker did what a lost one held"
    return [
        all_completed(history),
        *check(history),
        _finding("S3", refused, late, (f"{w.ref}: {w.what}: {w.answer}" for w in late if not w.refused)),
        _finding("S16", resumed, recoveries, (r.task for r in recoveries if r.saved_again or not r.kept)),
        _finding("back", back, recoveries, (r.task for r in recoveries if not r.came_back)),
        _finding("use", "what the agents built works", "1", [f"exit code {exit_code}"] if exit_code else []),
    ]


def _finding(promise: str, says: str, looked_at: Collection[Any], violations: Iterable[str]) -> Finding:
    return Finding(promise=promise, says=says, looked_at=len(looked_at), violations=list(violations))


def show(screen: Screen, recoveries: Iterable[Recovery], found: Iterable[Finding]) -> None:
    screen.line(f"\n{screen.paint('Recoveries, from the signal', BOLD)}")
    for r in recoveries:
        steps = (("noticed", r.noticed_ms), ("restarted", r.restarted_ms), ("done", r.done_ms))
        times = ", ".join(f"{word} {_seconds(ms)}" for word, ms in steps)
        screen.line(f"  {r.signal}  tally/{r.task}: {times}")
        screen.line(
            f"           from {r.from_worker} to {r.to_worker}: of {r.before} pieces done "
            f"{r.kept} were kept, {r.repeated} repeated"
        )
    screen.line(f"\n{screen.paint('Promises, checked in the store and the ledger', BOLD)}")
    for finding in found:
        good, bad = ("+", "x") if screen.ascii_only else ("✓", "✗")
        glyph = screen.paint(good, GREEN) if finding.holds else screen.paint(bad, RED)
        screen.line(f"  {glyph} {finding.promise:<6}  {finding.says}; {finding.looked_at} checked")
        for problem in finding.violations[:PROBLEMS_SHOWN]:
            screen.line(f"          {screen.paint(problem, RED)}")


def _seconds(ms: int | None) -> str:
    return "never" if ms is None else f"{ms / 1000:.2f} s"


def as_json(finding: Finding) -> dict[str, Any]:
    told = msgspec.to_builtins(finding)
    return {**told, "lookedAt": told.pop("looked_at"), "ok": finding.holds}
