"""The promises (DESIGN.md part 3) on what the demo has left behind, and what only the demo can know.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from muster.cli.demo.evidence import Evidence, Fault
from muster.model.states import FINAL
from muster.testing.promises import Finding, all_completed, check


class Recovery(NamedTuple):
    """How a task got over the fault of its worker.  Times count from the signal; None: it did not happen."""

    fault: Fault
    noticed_ms: int | None
    restarted_ms: int | None
    done_ms: int | None
    by_worker: str
    of: int
    before: int
    """Pieces that the lost attempt had done, the ones after the signal included."""
    after_signal: int
    """Pieces that it did between the signal and its end."""
    kept: int
    """Pieces that the next attempt did not have to repeat, thanks to the checkpoint."""
    repeated: int


def check_all(evidence: Evidence) -> list[Finding]:
    history = evidence.history
    return [
        all_completed(history),
        _every_piece(evidence),
        *check(history),
        _ended(evidence),
        _late_writes(evidence),
        _unchangeable(evidence),
        _resumed(evidence),
    ]


def _every_piece(evidence: Evidence) -> Finding:
    found = Finding(promise="work", says="every piece is in the ledger", looked_at=len(evidence.ledger))
    for task in evidence.history.tasks:
        lines = [line for line in evidence.ledger if line.task_id == task.id]
        missing = set(range(1, (lines[0].of if lines else 1) + 1)) - {line.piece for line in lines}
        if missing:
            found.violations.append(f"task {task.id}: pieces {sorted(missing)} were never done")
        for epoch in {line.epoch for line in lines}:
            if len({line.pid for line in lines if line.epoch == epoch}) > 1:
                found.violations.append(f"task {task.id}: attempt {epoch} ran in two processes")
    return found


def _ended(evidence: Evidence) -> Finding:
    """S4, stricter than in general: here every task ends, and nobody retries one."""
    tasks, events = evidence.history.tasks, evidence.history.events
    found = Finding(promise="S4", says="each task has exactly one end", looked_at=len(tasks))
    for task in tasks:
        own = (event for event in events if event.task_id == task.id)
        ends = sum(event.new_status in FINAL and event.previous_status not in FINAL for event in own)
        if ends != 1:
            found.violations.append(f"task {task.id} has {ends} ends")
    return found


def _late_writes(evidence: Evidence) -> Finding:
    says = "late writes of superseded attempts are refused"
    found = Finding(promise="S3", says=says, looked_at=len(evidence.late_writes))
    accepted = (write for write in evidence.late_writes if not write.refused)
    found.violations.extend(f"{write.ref}: {write.what} was accepted: {write.answer}" for write in accepted)
    tried = {write.ref for write in evidence.late_writes}
    untried = (fault.ref for fault in evidence.faults if fault.ref not in tried)
    found.violations.extend(f"{ref}: nobody tried a late write" for ref in untried)
    return found


def _unchangeable(evidence: Evidence) -> Finding:
    events = len(evidence.history.events)
    violations = [f"the database allows {word} of an event" for word in evidence.allowed]
    return Finding(promise="S7", says="events cannot be changed", looked_at=events, violations=violations)


def _resumed(evidence: Evidence) -> Finding:
    """S16: what an acknowledged checkpoint holds is not done again.  An agent saves one after each piece."""
    says = "the next attempt starts from the last checkpoint"
    found = Finding(promise="S16", says=says, looked_at=len(evidence.faults))
    for fault in evidence.faults:
        saved_ms = evidence.at_ms(fault.task_id, fault.epoch, "checkpoint")
        new = evidence.pieces(fault.task_id, fault.epoch + 1)
        if saved_ms is None or not new:
            found.violations.append(f"{fault.ref}: no checkpoint, or no attempt after it")
            continue
        saved = {line.piece for line in evidence.pieces(fault.task_id, fault.epoch) if line.at_ms <= saved_ms}
        if again := saved & {line.piece for line in new}:
            found.violations.append(f"{fault.ref}: pieces {sorted(again)} were saved, and done again")
    return found


def recovery(evidence: Evidence, fault: Fault) -> Recovery:
    def since(name: str, epoch: int) -> int | None:
        times = (evidence.at_ms(fault.task_id, later, name) for later in range(epoch, fault.epoch + 9))
        at_ms = next((found for found in times if found is not None), None)
        return None if at_ms is None else at_ms - fault.at_ms

    old = evidence.pieces(fault.task_id, fault.epoch)
    new = [line for line in evidence.ledger if line.task_id == fault.task_id and line.epoch > fault.epoch]
    following = (fault.task_id, fault.epoch + 1)
    by = [a.worker_id for a in evidence.history.attempts if (a.task_id, a.epoch) == following]
    repeated = {line.piece for line in old} & {line.piece for line in new}
    return Recovery(
        fault=fault,
        noticed_ms=since("lost", fault.epoch),
        restarted_ms=since("started", fault.epoch + 1),
        done_ms=since("completed", fault.epoch + 1),
        by_worker=by[0] if by else "",
        of=old[-1].of if old else 0,
        before=len(old),
        after_signal=sum(line.at_ms > fault.at_ms for line in old),
        kept=len(old) - len(repeated),
        repeated=len(repeated),
    )


def came_back(recoveries: Sequence[Recovery]) -> Finding:
    found = Finding(promise="back", says="another worker did what a lost one held", looked_at=len(recoveries))
    for one in recoveries:
        if None in (one.noticed_ms, one.restarted_ms, one.done_ms):
            found.violations.append(f"{one.fault.ref} was not taken up and done by another worker")
        elif one.by_worker == one.fault.worker:
            found.violations.append(f"{one.fault.ref} went back to {one.by_worker}")
    return found


def works(exit_code: int, output: str) -> Finding:
    lines = output.splitlines()
    problems = [] if exit_code == 0 else [f"exit code {exit_code}: {' '.join(lines[-1:])}"]
    return Finding(
        promise="use", says="what the agents built works", looked_at=len(lines), violations=problems
    )
