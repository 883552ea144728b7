"""What a run cost: how long until work went on, and how much of it was done again."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from client import Operation

from faults import Fault
from muster.model.states import AttemptStatus
from muster.testing.promises import Finding, History

CUT_OFF = {AttemptStatus.LOST, AttemptStatus.FAILED}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kind of fault.  Seconds."""

    kind: str
    count: int
    recoveries: int
    """Attempts that were cut off and begun anew, or, where none was, how often nobody answered for a while."""
    p50_s: float | None
    p99_s: float | None
    max_s: float | None
    lost_agent_s: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    rows: tuple[Row, ...]
    tasks: int
    attempts: int
    pieces: int
    pieces_again: int
    operations: dict[str, dict[str, int]]
    lost: int
    done_twice: int


def figures(
    history: History, faults: Sequence[Fault], operations: Iterable[Operation], findings: Iterable[Finding]
) -> Figures:
    recoveries = _recoveries(history, faults)
    lost_s = _lost_agent_s(history, faults)
    kinds = sorted({fault.kind for fault in faults})
    counts = Counter(fault.kind for fault in faults)
    rows = [_row(kind, counts[kind], recoveries[kind], lost_s[kind]) for kind in kinds]
    cutting = {fault.kind for fault in faults if fault.victims}
    tasks = [seconds for kind in cutting for seconds in recoveries[kind]]
    others = [seconds for kind in counts.keys() - cutting for seconds in recoveries[kind]]
    of = {True: sum(counts[kind] for kind in cutting), False: len(faults)}
    rows.append(_row("**until a task that was cut off runs again**", of[True], tasks, sum(lost_s.values())))
    rows.append(_row("**until somebody answers again**", of[False] - of[True], others, 0.0))
    if led := [fault.led_s for fault in faults if fault.led_s is not None]:
        rows.append(_row("**until another server leads**", len(led), led, 0.0))
    told: dict[str, dict[str, int]] = defaultdict(lambda: {"ok": 0, "failed": 0, "unknown": 0})
    for operation in operations:
        told[operation.kind][operation.outcome] += 1
    violations = {finding.promise: len(finding.violations) for finding in findings}
    return Figures(
        rows=tuple(rows),
        tasks=len(history.tasks),
        attempts=len(history.attempts),
        pieces=len(history.deeds),
        pieces_again=len(history.deeds) - len({(deed.task_id, deed.what) for deed in history.deeds}),
        operations=dict(sorted(told.items())),
        lost=violations.get("lost 0", 0) + violations.get("S6", 0),
        done_twice=violations.get("done twice 0", 0) + violations.get("S3", 0) + violations.get("S4", 0),
    )


def _struck(history: History, faults: Sequence[Fault]) -> dict[tuple[int, int], Fault]:
    """Which fault cut off which attempt."""
    by_worker = {worker_id: fault for fault in faults for worker_id in fault.workers}
    aimed_at = {victim: fault for fault in faults for victim in fault.victims}
    found = {}
    for attempt in history.attempts:
        place = attempt.task_id, attempt.epoch
        fault = aimed_at.get(place) or by_worker.get(attempt.worker_id)
        cut_off = attempt.status in CUT_OFF | {AttemptStatus.RELEASED}
        if fault is not None and cut_off and (attempt.ended_at_ms or 0) >= fault.at_ms:
            found[place] = fault
    return found


def unexplained(history: History, faults: Sequence[Fault]) -> Finding:
    """No attempt is cut off but by a fault that killed its worker or its agent: owners may die for nothing."""
    found = Finding(
        promise="L5", says="nothing is cut off but what was killed", looked_at=len(history.attempts)
    )
    struck = _struck(history, faults)
    for attempt in history.attempts:
        if attempt.status in CUT_OFF and (attempt.task_id, attempt.epoch) not in struck:
            found.violations.append(f"task {attempt.task_id} attempt {attempt.epoch}: {attempt.error}")
    return found


def _recoveries(history: History, faults: Sequence[Fault]) -> dict[str, list[float]]:
    """Seconds from the kill until the victim's next attempt has started; for faults that cut nothing off,
    until somebody answered again."""
    started: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for event in history.events:
        if event.event == "started":
            started[event.task_id].append((event.epoch, event.at_ms))
    found: dict[str, list[float]] = defaultdict(list)
    for fault in faults:
        if fault.back_s is not None and not fault.victims:
            found[fault.kind].append(fault.back_s)
    for (task_id, epoch), fault in _struck(history, faults).items():
        next_ms = min((at for number, at in started[task_id] if number > epoch), default=None)
        if next_ms is not None:
            found[fault.kind].append((next_ms - fault.at_ms) / 1000)
    return found


def _lost_agent_s(history: History, faults: Sequence[Fault]) -> dict[str, float]:
    """From the last checkpoint (or the start) of each attempt that was cut off until its end."""
    last_ms: dict[tuple[int, int], int] = {}
    for event in history.events:
        if event.event in {"started", "checkpoint"}:
            last_ms[event.task_id, event.epoch] = event.at_ms
    struck = _struck(history, faults)
    found: dict[str, float] = defaultdict(float)
    for attempt in history.attempts:
        place = attempt.task_id, attempt.epoch
        if place in struck and place in last_ms and attempt.ended_at_ms is not None:
            found[struck[place].kind] += (attempt.ended_at_ms - last_ms[place]) / 1000
    return found


def _row(kind: str, count: int, seconds: Iterable[float], lost_agent_s: float) -> Row:
    ordered = sorted(seconds)
    return Row(
        kind=kind,
        count=count,
        recoveries=len(ordered),
        p50_s=_percentile(ordered, 50),
        p99_s=_percentile(ordered, 99),
        max_s=ordered[-1] if ordered else None,
        lost_agent_s=round(lost_agent_s, 2),
    )


def _percentile(ordered: Sequence[float], percent: float) -> float | None:
    """The nearest rank: a value that was really measured."""
    return ordered[math.ceil(len(ordered) * percent / 100) - 1] if ordered else None


def table(found: Figures) -> str:
    """Markdown that can be read as it stands."""
    lines = [
        f"| {'fault':<44} | count | recoveries | p50 s | p99 s | max s | agent-minutes lost |",
        f"|{'-' * 46}|------:|-----------:|------:|------:|------:|-------------------:|",
    ]
    for row in found.rows:
        times = " | ".join(f"{'' if t is None else f'{t:.2f}':>5}" for t in (row.p50_s, row.p99_s, row.max_s))
        lost = f"{row.lost_agent_s / 60:>18.2f}"
        lines.append(f"| {row.kind:<44} | {row.count:>5} | {row.recoveries:>10} | {times} | {lost} |")
    lines += ["", "| operation | ok | failed | unknown |", "|-----------|---:|-------:|--------:|"]
    lines += [
        f"| {kind:<9} | {by['ok']:>2} | {by['failed']:>6} | {by['unknown']:>7} |"
        for kind, by in found.operations.items()
    ]
    lines += [
        "",
        f"lost {found.lost}, done twice {found.done_twice}; {found.tasks} tasks in {found.attempts} attempts; "
        f"{found.pieces} pieces of work, {found.pieces_again} of them again after a crash",
    ]
    return "\n".join(lines)


def as_json(found: Figures, findings: Iterable[Finding], **more: Any) -> dict[str, Any]:
    return {**more, **asdict(found), "findings": [asdict(finding) for finding in findings]}
