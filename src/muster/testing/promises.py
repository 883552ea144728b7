"""Checks a store's history, and a ledger of what agents really did, against the promises of the design.

Pure: rows in, findings out.  Each check names every violation that it finds, and how much it looked at: a check
that looked at nothing proves nothing.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from muster.model.events import BrokenAudit, Event, fold
from muster.model.states import FINAL, FailedDependency, TaskStatus
from muster.model.task import Attempt, Task

R = TypeVar("R", Attempt, Event)


@dataclass(frozen=True, kw_only=True)
class Deed:
    """One line of the ledger: an attempt did something that can be seen from outside."""

    task_id: int
    epoch: int
    what: str
    at_ms: int
    """Wall time of this host."""


@dataclass(frozen=True, kw_only=True)
class History:
    tasks: Sequence[Task]
    attempts: Sequence[Attempt]
    events: Sequence[Event]
    """In the order in which they were written."""
    dependencies: Sequence[tuple[int, int]]
    """(parent, child)."""
    deeds: Sequence[Deed] = ()


@dataclass(frozen=True, kw_only=True)
class Finding:
    promise: str
    says: str
    looked_at: int
    violations: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.violations and self.looked_at > 0


CLOCK_SLACK_MS = 2
"""A deed and the event that fences it are stamped by two processes, each rounding to a millisecond."""


def check(history: History) -> list[Finding]:
    by_task = _by_task(history.events)
    return [
        _one_open_attempt(history),
        _fenced(history, by_task),
        _one_end(by_task),
        _audit(history, by_task),
        _unblocked_once(history, by_task),
    ]


def _one_open_attempt(history: History) -> Finding:
    """S1: attempts of a task do not overlap, and an epoch is granted once."""
    found = Finding(promise="S1", says="one attempt at a time", looked_at=len(history.attempts))
    granted = Counter((event.task_id, event.epoch) for event in history.events if event.event == "claimed")
    found.violations.extend(f"task {t} epoch {e} granted {n} times" for (t, e), n in granted.items() if n > 1)
    for task_id, attempts in _by_task(history.attempts).items():
        ordered = sorted(attempts, key=lambda attempt: attempt.epoch)
        for earlier, later in pairwise(ordered):
            if earlier.ended_at_ms is None or earlier.ended_at_ms > later.assigned_at_ms:
                found.violations.append(
                    f"task {task_id}: attempt {later.epoch} was granted while {earlier.epoch} was open"
                )
    return found


def _fenced(history: History, by_task: Mapping[int, Sequence[Event]]) -> Finding:
    """S3: nothing is written, and nothing done, by an attempt once a newer one was granted."""
    looked_at = len(history.events) + len(history.deeds)
    found = Finding(promise="S3", says="no write by a superseded attempt", looked_at=looked_at)
    granted_at: dict[tuple[int, int], int] = {}
    for task_id, events in by_task.items():
        newest = 0
        for event in events:
            if event.epoch < newest:
                found.violations.append(f"task {task_id}: event {event.seq} is of epoch {event.epoch}")
            newest = max(newest, event.epoch)
            if event.event == "claimed":
                granted_at[task_id, event.epoch] = event.at_ms
    for deed in history.deeds:
        successor_ms = granted_at.get((deed.task_id, deed.epoch + 1))
        if successor_ms is not None and deed.at_ms > successor_ms + CLOCK_SLACK_MS:
            found.violations.append(
                f"task {deed.task_id}: attempt {deed.epoch} did {deed.what} "
                f"{deed.at_ms - successor_ms} ms after attempt {deed.epoch + 1} was granted"
            )
    return found


_AFTERWARDS = {(TaskStatus.FAILED, "completed"), (TaskStatus.FAILED, "skipped")}


def _one_end(by_task: Mapping[int, Sequence[Event]]) -> Finding:
    """S4: at most one final move in each generation; a person may still complete or skip what has failed."""
    found = Finding(promise="S4", says="each task ended once", looked_at=len(by_task))
    final = {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED}
    for task_id, events in by_task.items():
        ends = Counter(
            event.generation
            for event in events
            if event.new_status in final
            and event.previous_status != event.new_status
            and (event.previous_status, event.event) not in _AFTERWARDS
        )
        found.violations.extend(
            f"task {task_id} ended {n} times in generation {generation}"
            for generation, n in ends.items()
            if n > 1
        )
    return found


def _audit(history: History, by_task: Mapping[int, Sequence[Event]]) -> Finding:
    """S7: a task's events have no gap and fold to its row."""
    found = Finding(promise="S7", says="the audit folds to the state", looked_at=len(history.events))
    for task in history.tasks:
        try:
            folded = fold(sorted(by_task.get(task.id, ()), key=lambda event: event.seq))
        except BrokenAudit as error:
            found.violations.append(str(error))
            continue
        row = (task.status, task.generation, task.epoch, task.event_seq)
        if (folded.status, folded.generation, folded.epoch, folded.seq) != row:
            found.violations.append(f"task {task.id}: its events say {folded}, its row {row}")
    return found


def _unblocked_once(history: History, by_task: Mapping[int, Sequence[Event]]) -> Finding:
    """S8: a child becomes ready once, with its last dependency, and starts after all of them.

    An edge that was added later counts from then on.  A skipped parent is done; a failed or cancelled one is,
    for a child that wants to run all the same.
    """
    found = Finding(
        promise="S8", says="children start after their dependencies", looked_at=len(history.dependencies)
    )
    place = {(event.task_id, event.seq): n for n, event in enumerate(history.events)}
    done_at, ended_at = _ends(history.events)
    undaunted = {task.id for task in history.tasks if task.on_failed is FailedDependency.RUN}
    parents: dict[int, list[int]] = defaultdict(list)
    for parent_id, child_id in history.dependencies:
        parents[child_id].append(parent_id)
    for child_id, parent_ids in parents.items():
        events = _since_edited(by_task.get(child_id, ()))
        added_at = {
            parent_id: place[child_id, event.seq]
            for event in events
            if event.event == "depends"
            for parent_id in json.loads(event.details)["on"]
        }
        unblocked = sum(event.event == "unblocked" for event in events)
        if unblocked > 1 + sum(event.event == "depends" for event in events):
            found.violations.append(f"task {child_id} was unblocked {unblocked} times")
        claims = [place[child_id, event.seq] for event in events if event.event == "claimed"]
        met_at = ended_at if child_id in undaunted else done_at
        for parent_id in parent_ids:
            first = next((claim for claim in claims if claim > added_at.get(parent_id, -1)), None)
            if first is not None and met_at.get(parent_id, len(place)) > first:
                found.violations.append(f"task {child_id} was claimed before {parent_id} was done")
    return found


def _ends(events: Sequence[Event]) -> tuple[dict[int, int], dict[int, int]]:
    """(where each task was first completed or skipped, where it first ended in whatever way)."""
    done_at: dict[int, int] = {}
    ended_at: dict[int, int] = {}
    for at, event in enumerate(events):
        if event.new_status is TaskStatus.COMPLETED or event.event == "skipped":
            done_at.setdefault(event.task_id, at)
        if event.new_status in FINAL:
            ended_at.setdefault(event.task_id, at)
    return done_at, ended_at


def _since_edited(events: Sequence[Event]) -> Sequence[Event]:
    """A person may have given the task other dependencies: what it did before is no measure for these."""
    edits = [at for at, event in enumerate(events) if event.event == "edited"]
    return events[edits[-1] + 1 :] if edits else events


def all_completed(history: History) -> Finding:
    """Nothing is lost: every task is completed in the end."""
    found = Finding(promise="lost 0", says="every task completed", looked_at=len(history.tasks))
    found.violations.extend(
        f"task {task.id} is {task.status}"
        for task in history.tasks
        if task.status is not TaskStatus.COMPLETED
    )
    return found


def _by_task(rows: Iterable[R]) -> dict[int, list[R]]:
    found: dict[int, list[R]] = defaultdict(list)
    for row in rows:
        found[row.task_id].append(row)
    return found
