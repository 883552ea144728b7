"""The promises (DESIGN.md part 3), each checked on what a run has left behind.  Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from muster.cli.demo.evidence import Evidence, Fault, Line
from muster.model.events import BrokenAudit, Folded, fold
from muster.model.states import FINAL, TaskStatus


class Check(NamedTuple):
    id: str
    promise: str
    looked_at: str
    """The numbers behind the verdict."""
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


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


_WORK = frozenset({"started", "progress", "checkpoint", "artifact", "declared"})
_END = frozenset({"completed", "failed", "lost", "released", "cancelled"})


def check_all(evidence: Evidence) -> list[Check]:
    return [check(evidence) for check in CHECKS]


def all_done(evidence: Evidence) -> Check:
    """Not a promise, but without it the others would mean little."""
    problems = [f"{t.key} is {t.status}" for t in evidence.tasks if t.status is not TaskStatus.COMPLETED]
    pieces: dict[int, set[int]] = {}
    for line in evidence.ledger:
        pieces.setdefault(line.task_id, set()).add(line.piece)
    for task in evidence.tasks:
        of = next((line.of for line in evidence.ledger if line.task_id == task.id), 0)
        if missing := set(range(1, of + 1)) - pieces.get(task.id, set()):
            problems.append(f"{task.key}: pieces {sorted(missing)} were never done")
        elif not of:
            problems.append(f"{task.key}: nothing of it stands in the ledger")
    total = sum(map(len, pieces.values()))
    numbers = f"{len(evidence.tasks)} tasks COMPLETED, {total} pieces in the ledger, none missing"
    return Check("all", "every task is done, and so is each piece of it", numbers, tuple(problems))


def s1(evidence: Evidence) -> Check:
    problems = []
    grants = Counter((row.event.task_id, row.event.epoch) for row in evidence.named("claimed"))
    kept = Counter((attempt.task_id, attempt.epoch) for attempt in evidence.attempts)
    for (task_id, epoch), times in (grants | kept).items():
        if times > 1:
            problems.append(f"{evidence.key(task_id)}#{epoch} was granted {times} times")
    if grants.keys() != kept.keys():
        problems.append(f"{len(grants)} grants in the events, {len(kept)} attempts in the store")
    for task in evidence.tasks:
        runs = sorted((a for a in evidence.attempts if a.task_id == task.id), key=lambda a: a.epoch)
        for first, second in pairwise(runs):
            if first.ended_at_ms is None or first.ended_at_ms > second.assigned_at_ms:
                problems.append(f"{task.key}: attempts {first.epoch} and {second.epoch} were open together")
    pids: dict[tuple[int, int], set[int]] = {}
    for line in evidence.ledger:
        pids.setdefault((line.task_id, line.epoch), set()).add(line.pid)
    for (task_id, epoch), found in pids.items():
        if len(found) > 1:
            problems.append(f"{evidence.key(task_id)}#{epoch} ran in {len(found)} processes")
    numbers = f"{len(evidence.attempts)} attempts of {len(evidence.tasks)} tasks: no epoch twice, no overlap"
    return Check("S1", "one open attempt per task", numbers, tuple(problems))


def s3(evidence: Evidence) -> Check:
    problems = [*_late_lines(evidence), *_late_events(evidence)]
    accepted = [write for write in evidence.late_writes if not write.refused]
    problems += [f"{w.ref}: {w.what} after its end was accepted: {w.answer}" for w in accepted]
    untried = {fault.ref for fault in evidence.faults} - {write.ref for write in evidence.late_writes}
    problems += [f"{ref}: nobody tried a late write" for ref in sorted(untried)]
    numbers = (
        f"{len(evidence.late_writes)} late writes refused; none of {len(evidence.ledger)} ledger lines "
        f"and {len(evidence.events)} events is late"
    )
    return Check("S3", "who was superseded changes nothing", numbers, tuple(problems))


def _late_lines(evidence: Evidence) -> list[str]:
    problems = []
    granted = {(r.event.task_id, r.event.epoch): r.event.at_ms for r in evidence.named("claimed")}
    newest: dict[int, int] = {}
    for line in evidence.ledger:
        newest[line.task_id] = max(line.epoch, newest.get(line.task_id, 0))
        superseded_ms = granted.get((line.task_id, line.epoch + 1))
        if line.epoch < newest[line.task_id] or (superseded_ms is not None and line.at_ms > superseded_ms):
            problems.append(
                f"{line.key}#{line.epoch} did piece {line.piece} after a newer attempt was granted"
            )
    return problems


def _late_events(evidence: Evidence) -> list[str]:
    problems = []
    holders = {(attempt.task_id, attempt.epoch): attempt.worker for attempt in evidence.attempts}
    for task in evidence.tasks:
        epoch, ended = 0, False
        for _, event in evidence.events_of(task.id):
            at = f"{task.key}#{event.epoch}: event {event.seq} ({event.event})"
            if event.epoch < epoch:
                problems.append(f"{at} after attempt {epoch} was granted")
            if event.event in _WORK:
                if ended:
                    problems.append(f"{at} after the attempt's end")
                if event.actor != holders.get((task.id, event.epoch)):
                    problems.append(f"{at} by {event.actor}, who does not hold it")
            epoch = max(epoch, event.epoch)
            ended = event.event in _END or (ended and event.event != "claimed")
    return problems


def s4(evidence: Evidence) -> Check:
    problems = []
    ends = Counter(
        (row.event.task_id, row.event.generation)
        for row in evidence.events
        if row.event.new_status in FINAL and row.event.previous_status not in FINAL
    )
    for task in evidence.tasks:
        for generation in range(1, task.generation + 1):
            times = ends[task.id, generation]
            if times != 1:
                problems.append(f"{task.key}: {times} final events in generation {generation}")
    numbers = f"{ends.total()} final events for {len(evidence.tasks)} tasks"
    return Check("S4", "a task ends once", numbers, tuple(problems))


def s7(evidence: Evidence) -> Check:
    problems = []
    for task in evidence.tasks:
        try:
            state = fold(row.event for row in evidence.events_of(task.id))
        except BrokenAudit as error:
            problems.append(f"{task.key}: {error}")
            continue
        row = Folded(task.status, task.generation, task.epoch, task.seq)
        if state != row:
            problems.append(f"{task.key}: its events lead to {state}, its row says {row}")
    allowed = [word for word in ("UPDATE", "DELETE") if not evidence.denials.get(word)]
    problems += [f"the database allows to {word} an event" for word in allowed]
    numbers = f"{len(evidence.events)} events fold to {len(evidence.tasks)} rows; UPDATE and DELETE refused"
    return Check("S7", "the audit is whole", numbers, tuple(problems))


def s8(evidence: Evidence) -> Check:
    problems = []
    done = {row.event.task_id: row.id for row in evidence.named("completed")}
    ready = Counter(row.event.task_id for row in evidence.named("unblocked"))
    for task in evidence.tasks:
        parents = evidence.parents.get(task.id, ())
        begun = [r.id for r in evidence.events_of(task.id) if r.event.event in ("claimed", "started")]
        early = [parent for parent in parents if begun and done.get(parent, begun[0]) >= begun[0]]
        problems += [f"{task.key} began before {evidence.key(parent)} was done" for parent in early]
        if ready[task.id] != bool(parents):
            problems.append(
                f"{task.key} has {len(parents)} dependencies and became ready {ready[task.id]} times"
            )
    edges = sum(map(len, evidence.parents.values()))
    numbers = f"{edges} dependencies done first; {ready.total()} tasks unblocked, each once"
    return Check("S8", "a task starts after its dependencies", numbers, tuple(problems))


def s16(evidence: Evidence) -> Check:
    problems, resumed = [], 0
    granted = {(r.event.task_id, r.event.epoch): r.event.at_ms for r in evidence.named("claimed")}
    for fault in evidence.faults:
        own = _pieces(evidence, fault.task_id, fault.epoch + 1)
        until_ms = granted.get((fault.task_id, fault.epoch + 1))
        saved = [
            point
            for point in evidence.checkpoints
            if (point.task_id, point.epoch) == (fault.task_id, fault.epoch)
            and until_ms is not None
            and point.created_at_ms <= until_ms
        ]
        if not saved or not own:
            problems.append(f"{fault.key}: no checkpoint, or no attempt after #{fault.epoch}")
        elif own[0].piece != saved[-1].done + 1:
            first, done = own[0].piece, saved[-1].done
            problems.append(f"{fault.ref}: the next began with piece {first}, the checkpoint said {done}")
        else:
            resumed += 1
    numbers = (
        f"{resumed} resumed right after their last checkpoint; {len(evidence.checkpoints)} were saved in all"
    )
    return Check("S16", "the next attempt sees the last checkpoint", numbers, tuple(problems))


CHECKS: Sequence[Callable[[Evidence], Check]] = (all_done, s1, s3, s4, s7, s8, s16)


def _pieces(evidence: Evidence, task_id: int, epoch: int) -> list[Line]:
    return [line for line in evidence.ledger if (line.task_id, line.epoch) == (task_id, epoch)]


def recovery(evidence: Evidence, fault: Fault) -> Recovery:
    def since(name: str, epoch: int) -> int | None:
        for row in evidence.events_of(fault.task_id):
            if row.event.event == name and row.event.epoch >= epoch:
                return row.event.at_ms - fault.at_ms
        return None

    old = _pieces(evidence, fault.task_id, fault.epoch)
    new = [line for line in evidence.ledger if line.task_id == fault.task_id and line.epoch > fault.epoch]
    by = [a.worker for a in evidence.attempts if (a.task_id, a.epoch) == (fault.task_id, fault.epoch + 1)]
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


def came_back(recoveries: Sequence[Recovery]) -> Check:
    problems = []
    for found in recoveries:
        if None in (found.noticed_ms, found.restarted_ms, found.done_ms):
            problems.append(f"{found.fault.ref} was not taken up and done by another worker")
        elif found.by_worker == found.fault.worker:
            problems.append(f"{found.fault.ref} went back to {found.by_worker}")
    kept, repeated = sum(r.kept for r in recoveries), sum(r.repeated for r in recoveries)
    numbers = f"{len(recoveries)} tasks went to other workers; {kept} pieces kept, {repeated} repeated"
    return Check("back", "what a hurt worker held was done by another", numbers, tuple(problems))


def works(exit_code: int, output: str) -> Check:
    lines = output.splitlines()
    problems = [] if exit_code == 0 else [f"exit code {exit_code}: {' '.join(lines[-1:])}"]
    numbers = f"it ran with exit code {exit_code} and printed {len(lines)} lines"
    return Check("use", "what the agents have built works", numbers, tuple(problems))
