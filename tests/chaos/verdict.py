"""The promises, checked after a run: the store's history, what agents really did, and what clients were told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from backends import Backend
from client import Operation
from rig import Rig

from muster.model.events import Event
from muster.model.states import TaskStatus
from muster.testing.promises import CLOCK_SLACK_MS, Deed, Finding, History, all_completed, check

Line = Mapping[str, Any]
Attempted = tuple[int, int]
"""(task, epoch)"""


def history_of(rig: Rig, beside: Collection[Attempted] = ()) -> History:
    """Without what attempts `beside` others did, which nobody could have stopped."""
    rows = rig.backend.history()
    deeds = [
        Deed(task_id=d["task"], epoch=d["epoch"], what=str(d["piece"]), at_ms=int(d["at"] * 1000))
        for d in counted(rig.ledger(), rows.events, beside)
    ]
    return History(
        tasks=rows.tasks,
        attempts=rows.attempts,
        events=rows.events,
        dependencies=rows.dependencies,
        deeds=deeds,
    )


def counted(ledger: Iterable[Line], events: Iterable[Event], beside: Collection[Attempted]) -> list[Line]:
    """Without the deeds of these attempts after their successors were granted."""
    granted_ms = {(event.task_id, event.epoch): event.at_ms for event in events if event.event == "claimed"}

    def counts(line: Line) -> bool:
        successor_ms = granted_ms.get((line["task"], line["epoch"] + 1))
        too_late = successor_ms is not None and line["at"] * 1000 >= successor_ms
        return not (too_late and (line["task"], line["epoch"]) in beside)

    return [line for line in ledger if counts(line)]


def assert_promises(rig: Rig, *, pieces: int) -> History:
    """Every task done, every promise kept, every piece of work in the ledger."""
    history = history_of(rig)
    findings = [
        *check(history),
        all_completed(history),
        nobody_at_once(rig.ledger()),
        nothing_again(rig.ledger(), rig.saved()),
        whole(history, pieces),
    ]
    broken = [finding for finding in findings if not finding.holds]
    assert not broken, "\n".join(f"{f.promise}: {f.looked_at} looked at, {f.violations[:5]}" for f in broken)
    return history


def findings_of(
    rig: Rig,
    history: History,
    operations: Collection[Operation],
    *,
    pieces: int,
    beside: Collection[Attempted] = (),
) -> list[Finding]:
    """All checks of a run whose crew has ended."""
    deeds = counted(rig.ledger(), history.events, beside)
    return [
        *check(history),
        ended(history, operations),
        nobody_at_once(deeds),
        nothing_again(deeds, rig.saved()),
        whole(history, pieces),
        told(history, operations),
        granted_once(history, rig.ledger()),
        sound(rig.backend),
        Finding(
            promise="S7", says="audit verify finds nothing", looked_at=1, violations=rig.backend.unproven()
        ),
        fenced_leaders(rig.backend),
        Finding(
            promise="gone",
            says="no process is left",
            looked_at=1,
            violations=[f"process {pid}" for pid in rig.leftovers],
        ),
    ]


def ended(history: History, operations: Iterable[Operation]) -> Finding:
    """Nothing is lost: every task is completed, or cancelled by somebody who was not refused."""
    found = Finding(promise="lost 0", says="every task ended as it should", looked_at=len(history.tasks))
    may_be = {op.task_id for op in operations if op.kind == "cancel" and op.outcome != "failed"}
    for task in history.tasks:
        cancelled = task.status is TaskStatus.CANCELLED and task.id in may_be
        if task.status is not TaskStatus.COMPLETED and not cancelled:
            found.violations.append(f"task {task.id} is {task.status}")
    return found


def nobody_at_once(deeds: Collection[Line]) -> Finding:
    """Done twice 0: by the ledger alone, whatever the store says, no two attempts worked at the same time."""
    found = Finding(promise="done twice 0", says="no two attempts worked at one time", looked_at=len(deeds))
    spans: dict[int, dict[int, tuple[float, float]]] = defaultdict(dict)
    for deed in deeds:
        first, last = spans[deed["task"]].get(deed["epoch"], (deed["began"], deed["at"]))
        spans[deed["task"]][deed["epoch"]] = (min(first, deed["began"]), max(last, deed["at"]))
    for task_id, by_epoch in spans.items():
        last_s = 0.0
        for epoch, (began_s, at_s) in sorted(by_epoch.items()):
            if began_s < last_s - CLOCK_SLACK_MS / 1000:
                found.violations.append(
                    f"task {task_id}: attempt {epoch} began {last_s - began_s:.3f} s before an older one ended"
                )
            last_s = max(last_s, at_s)
    return found


def nothing_again(deeds: Collection[Line], saved: Collection[Line]) -> Finding:
    """S16: what an acknowledged checkpoint holds is never done again."""
    found = Finding(promise="S16", says="the next attempt starts from the checkpoint", looked_at=len(saved))
    kept: dict[int, dict[int, int]] = defaultdict(dict)
    for line in saved:
        by_epoch = kept[line["task"]]
        by_epoch[line["epoch"]] = max(by_epoch.get(line["epoch"], 0), line["piece"])
    for deed in deeds:
        for epoch, piece in kept[deed["task"]].items():
            if epoch < deed["epoch"] and deed["piece"] <= piece:
                found.violations.append(
                    f"task {deed['task']}: attempt {deed['epoch']} did piece {deed['piece']} again, "
                    f"attempt {epoch} had saved {piece}"
                )
    return found


def whole(history: History, pieces: int) -> Finding:
    """A completed task has all its pieces in the ledger, and nobody did any that no task has."""
    found = Finding(promise="whole", says="completed means done", looked_at=len(history.deeds))
    done = {(deed.task_id, deed.what) for deed in history.deeds}
    names = {str(piece) for piece in range(1, pieces + 1)}
    ids = {task.id for task in history.tasks}
    found.violations.extend(f"unknown {deed}" for deed in done if deed[0] not in ids or deed[1] not in names)
    for task in history.tasks:
        missing = [name for name in sorted(names) if (task.id, name) not in done]
        if task.status is TaskStatus.COMPLETED and missing:
            found.violations.append(f"task {task.id} is completed without its pieces {missing}")
    return found


def told(history: History, operations: Collection[Operation]) -> Finding:
    """S6: what was acknowledged is there, what was refused is not, and nothing was done more than once."""
    found = Finding(promise="S6", says="what clients were told is so", looked_at=len(operations))
    by_actor: dict[str, list[Event]] = defaultdict(list)
    for event in history.events:
        by_actor[event.actor].append(event)
    cancelled = {event.task_id for event in history.events if event.event == "cancelled"}
    for op in operations:
        seen = Counter(event.event for event in by_actor.get(op.actor, ()))
        allowed = _allowed(op, op.task_id in cancelled)
        if seen not in allowed:
            found.violations.append(
                f"{op.actor} {op.kind} of {op.plan or op.task_id} was {op.outcome}: {seen}"
            )
    return found


def _allowed(op: Operation, was_cancelled: bool) -> list[Counter[str]]:
    """What the audit may show of an operation."""
    nothing: Counter[str] = Counter()
    name = {"enqueue": "enqueued", "cancel": "cancelled", "retry": "retried"}[op.kind]
    once = Counter({name: op.tasks if op.kind == "enqueue" else 1})
    if op.outcome == "failed":
        return [nothing]
    if op.outcome == "unknown":
        return [nothing, once]
    # Cancelling what somebody has cancelled already is ok and changes nothing.
    return [once, nothing] if op.kind == "cancel" and was_cancelled else [once]


def granted_once(history: History, deeds: Collection[Line]) -> Finding:
    """S2: by the ledger alone an attempt is one process, and the store knows all that ever were."""
    found = Finding(promise="S2", says="epochs only grow", looked_at=len(deeds))
    known = {(attempt.task_id, attempt.epoch) for attempt in history.attempts}
    pids: dict[tuple[int, int], set[int]] = defaultdict(set)
    for deed in deeds:
        pids[deed["task"], deed["epoch"]].add(deed["pid"])
    for (task_id, epoch), several in pids.items():
        if len(several) > 1:
            found.violations.append(f"task {task_id}: {len(several)} processes had epoch {epoch}")
        if (task_id, epoch) not in known:
            found.violations.append(f"task {task_id}: attempt {epoch} has worked, and is not there")
    return found


def fenced_leaders(backend: Backend) -> Finding:
    looked_at, violations = backend.old_terms()
    return Finding(
        promise="S10", says="no write under an old term", looked_at=looked_at, violations=violations
    )


def sound(backend: Backend) -> Finding:
    return Finding(promise="S17", says="the database is sound", looked_at=1, violations=backend.damage())
