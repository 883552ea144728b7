"""A plain model of a task's life, written from the design and not from the engine: events in, objections out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum

import msgspec

from muster.model.commands import Spec
from muster.model.events import Event
from muster.model.states import FailedDependency, TaskStatus
from muster.model.task import BY_HAND
from simulator.world import Broken

_T = TaskStatus
_HELD = {_T.ASSIGNED, _T.RUNNING}
_WAITING = {_T.PENDING, _T.ABORTED}
_OPEN = _HELD | _WAITING | {_T.PAUSED}
_SAME: set[TaskStatus] = set()
"""The event moves nothing."""

MOVES: dict[str, tuple[set[TaskStatus], set[TaskStatus]]] = {
    "claimed": ({_T.PENDING}, {_T.ASSIGNED}),
    "started": ({_T.ASSIGNED}, {_T.RUNNING}),
    "progress": ({_T.RUNNING}, _SAME),
    "checkpoint": ({_T.RUNNING}, _SAME),
    "artifact": ({_T.RUNNING}, _SAME),
    "declared": ({_T.RUNNING}, _SAME),
    "overdue": ({_T.RUNNING}, _SAME),
    "stop_requested": (_HELD, _SAME),
    "completed": (_HELD | {_T.PENDING, _T.PAUSED, _T.FAILED}, {_T.COMPLETED}),
    "failed": (_HELD, {_T.ABORTED, _T.FAILED}),
    "lost": (_HELD, {_T.ABORTED, _T.FAILED}),
    "released": (_HELD, {_T.PENDING}),
    "readopted": (_WAITING, {_T.RUNNING}),
    "asked": ({_T.RUNNING}, {_T.PAUSED}),
    "paused": (_HELD | _WAITING, {_T.PAUSED}),
    "resumed": (_HELD | {_T.PAUSED}, {_T.PENDING} | _HELD),
    "answered": ({_T.PAUSED}, {_T.PENDING}),
    "promoted": (_WAITING, {_T.PENDING}),
    "unblocked": ({_T.PENDING}, _SAME),
    "transferred": (_OPEN, _SAME),
    "aim_dropped": (_WAITING | {_T.PAUSED}, _SAME),
    "expired": (_WAITING, {_T.FAILED}),
    "cancelled": (_OPEN, {_T.CANCELLED}),
    "skipped": (_WAITING | {_T.PAUSED, _T.FAILED}, {_T.CANCELLED}),
    "retried": ({_T.FAILED, _T.CANCELLED, _T.COMPLETED}, {_T.PENDING}),
    "depends": (_WAITING | {_T.PAUSED}, _SAME),
    "process_gone": (set(_T), _SAME),
    "archived": ({_T.FAILED, _T.CANCELLED, _T.COMPLETED}, {_T.ARCHIVED}),
}
OF_AN_ATTEMPT = frozenset({"started", "progress", "checkpoint", "artifact", "declared", "failed", "asked"})
"""Only the holder of the open attempt may cause these."""
FINAL = frozenset({_T.COMPLETED, _T.FAILED, _T.CANCELLED, _T.ARCHIVED})


class Outcome(Enum):
    """What a task means to those that wait for it."""

    OPEN = "open"
    DONE = "done"
    DEAD = "dead"


@dataclass
class TaskModel:
    id: int
    spec: Spec
    parents: tuple[int, ...]
    status: TaskStatus | None = None
    generation: int = 1
    epoch: int = 0
    seq: int = 0
    open_epoch: int | None = None
    holder: str = ""
    by_hand: bool = False
    lingering: int | None = None
    """An attempt that somebody else has ended while it was at work: nobody gets the task before it is gone."""
    reaped_early: bool = False
    """Because it did not stop in time, on a machine where nobody could kill its processes: the next event."""
    may_linger: int | None = None
    """An attempt that ended so when nobody had heard its worker for long: both is right."""
    done: int | None = None
    """The attempt that has said that it is done, until its work is published: attempts after it run no agent."""
    lost_epoch: int | None = None
    """The newest attempt, where it was given up for its silence: it alone may come back."""
    ended: set[int] = field(default_factory=set)
    """Generations that had their final move."""
    outcome: Outcome = Outcome.OPEN
    unmet: set[int] = field(default_factory=set)
    states: set[tuple[TaskStatus, int, int]] = field(default_factory=set)
    """(status, generation, epoch) that the task was in at the end of some event."""
    checkpoints: list[tuple[int, int, bytes]] = field(default_factory=list)
    """(epoch, when its agent took it, what it holds)."""
    fresh_after: int = 0
    due_ms: int | None = None
    in_review: bool = False
    """Resumed, it is its agent's again: what it has done is not published."""
    stop_by_mono_ms: int | None = None
    events: list[Event] = field(default_factory=list)

    @property
    def final(self) -> bool:
        return self.status in FINAL

    def newest_checkpoint(self, before_epoch: float = math.inf) -> bytes | None:
        """What may be resumed from."""
        newest = [saved for saved in self.checkpoints if self.fresh_after < saved[0] < before_epoch]
        return max(newest)[2] if newest else None

    def take(self, event: Event, cap_ms: int) -> None:
        """Raises Broken where the design does not allow this event here."""
        self.events.append(event)
        self._check_audit(event)
        if event.event != "enqueued":
            self._check_move(event)
            self._check_fence(event)
        self._check_end(event)
        self._check_delay(event, cap_ms)
        self._keep(event)

    def _no(self, promise: str, says: str) -> Broken:
        return Broken(promise, f"task {self.id}: {says}", self.id)

    def _check_audit(self, event: Event) -> None:
        if event.seq != self.seq + 1:
            raise self._no("S7", f"event {event.seq} ({event.event}) follows {self.seq}")
        if event.previous_status != self.status:
            raise self._no("S7", f"{event.event} starts from {event.previous_status}, it was {self.status}")

    def _check_move(self, event: Event) -> None:
        before, after = MOVES.get(event.event, (set(), set()))
        if self.status is _T.CANCELLED and event.event == "completed":
            raise self._no("S11", "completed after its cancel was acknowledged")
        if self.status not in before:
            promise = "S5" if self.final else "S3"
            raise self._no(promise, f"{event.event} while it was {self.status}")
        if event.new_status not in (after or {self.status}):
            raise self._no("S7", f"{event.event} left it {event.new_status}")
        grows = event.event == "retried"
        if event.generation != self.generation + grows:
            raise self._no("S5", f"{event.event} made generation {event.generation} of {self.generation}")

    def _check_fence(self, event: Event) -> None:
        if event.event == "claimed":
            if self.open_epoch is not None:
                raise self._no("S1", f"attempt {event.epoch} granted while {self.open_epoch} is open")
            if event.epoch != self.epoch + 1:
                raise self._no("S2", f"epoch {event.epoch} granted after {self.epoch}")
            if self.spec.is_group:
                raise self._no("S8", "a group was given out")
            if self.unmet:
                raise self._no("S8", f"claimed while {sorted(self.unmet)} are not done")
            if self.lingering is not None:
                raise self._no("S1", f"claimed while attempt {self.lingering} may still be at work")
        elif event.event == "process_gone" and self.lingering != event.epoch:
            raise self._no("S7", f"attempt {event.epoch} is gone, and it was not waited for")
        elif event.epoch != self.epoch:
            raise self._no("S2", f"{event.event} of epoch {event.epoch}, the newest is {self.epoch}")
        if event.event in OF_AN_ATTEMPT and (self.open_epoch is None or event.actor != self.holder):
            raise self._no("S3", f"{event.event} by {event.actor}, {self.holder or 'nobody'} holds it")
        if event.event == "readopted" and self.lost_epoch != event.epoch:
            raise self._no("S3", f"attempt {event.epoch} came back and was not lost")

    def _check_end(self, event: Event) -> None:
        if event.new_status not in FINAL or event.new_status in {self.status, _T.ARCHIVED}:
            return
        by_person = self.status is _T.FAILED and event.event in {"completed", "skipped"}
        if event.generation in self.ended and not by_person:
            raise self._no("S4", f"{event.event} is a second end of generation {event.generation}")
        self.ended.add(event.generation)

    def _check_delay(self, event: Event, cap_ms: int) -> None:
        if event.event in {"failed", "lost"} and event.new_status is _T.ABORTED:
            wait_ms = msgspec.json.decode(event.details)["retryInMs"]
            if not 0 <= wait_ms <= cap_ms:
                raise self._no("S9", f"the next attempt waits {wait_ms} ms, the cap is {cap_ms}")
        due_ms = self.due_ms
        if event.event == "promoted" and event.actor == "coordinator" and due_ms and event.at_ms < due_ms:
            zero = self.events[-2].event == "lost"  # the first loss is due at once, in the same transaction
            if not zero:
                raise self._no("S9", f"promoted {due_ms - event.at_ms} ms before it was due")

    def _keep(self, event: Event) -> None:
        name = event.event
        if name == "process_gone":
            self.lingering = None
        elif name in {"asked", "cancelled"} or self.reaped_early:
            if self.status is _T.RUNNING and not self.by_hand:
                self.lingering = self.open_epoch
            self.reaped_early = False
        self._keep_done(event)
        self.status, self.generation = event.new_status, event.generation
        self.epoch, self.seq = event.epoch, event.seq
        self.states.add((event.new_status, event.generation, event.epoch))
        if name in {"claimed", "readopted"}:
            self.open_epoch, self.lost_epoch = event.epoch, None
            if name == "claimed":
                self.holder, self.stop_by_mono_ms = event.actor, None
                self.by_hand = msgspec.json.decode(event.details)["agent"] == BY_HAND
        elif self.status not in _HELD:
            self.lost_epoch = self.open_epoch if name == "lost" else self.lost_epoch
            self.open_epoch = None
        if name in {"completed", "skipped"} or (name == "enqueued" and self.status is _T.COMPLETED):
            self.outcome = Outcome.DONE
        elif name in {"cancelled", "expired"} or self.status is _T.FAILED:
            self.outcome = Outcome.DEAD
        elif name == "retried":
            self.outcome = Outcome.OPEN

    def _keep_done(self, event: Event) -> None:
        name, details = event.event, msgspec.json.decode(event.details)
        if name == "declared":
            self.done = None if details["kind"] else event.epoch
        elif (
            name in {"asked", "cancelled", "skipped", "completed"}
            or (name == "failed" and "done" not in details)
            or (name == "released" and "kind" in details)
            or (name == "retried" and "note" in details)
            or (name == "resumed" and self.in_review)
            or (name == "claimed" and details["agent"] == BY_HAND)
        ):
            self.done = None


class Reference:
    """Every task that the store has, as its events and the accepted commands say it must be."""

    def __init__(self) -> None:
        self.tasks: dict[int, TaskModel] = {}
        self.children: dict[int, list[int]] = {}

    def add(self, task_id: int, spec: Spec, parents: tuple[int, ...]) -> None:
        self.tasks[task_id] = TaskModel(task_id, spec, parents)
        for parent_id in parents:
            self.children.setdefault(parent_id, []).append(task_id)

    def take(self, event: Event, cap_ms: int) -> TaskModel:
        task = self.tasks.get(event.task_id)
        if task is None:
            raise Broken("S7", f"event {event.event} of task {event.task_id}, which nobody has added")
        closed = task.spec.is_group and event.event == "completed" and event.actor == "coordinator"
        if event.event == "unblocked" or closed:
            self._do_not_mind(task)
            if task.unmet:
                says = f"task {task.id} was {event.event} while {sorted(task.unmet)} are not done"
                raise Broken("S8", says, task.id)
        task.take(event, cap_ms)
        if event.event == "enqueued":
            task.unmet = {p for p in task.parents if self.tasks[p].outcome is not Outcome.DONE}
        elif event.event == "depends":
            self._connect(task, tuple(msgspec.json.decode(event.details)["on"]))
        if event.event in {"completed", "skipped"}:
            for child_id in self.children.get(task.id, ()):
                self.tasks[child_id].unmet.discard(task.id)
        return task

    def _connect(self, child: TaskModel, parents: tuple[int, ...]) -> None:
        """Raises Broken where the child would wait for itself."""
        child.parents += parents
        child.unmet |= {p for p in parents if self.tasks[p].outcome is not Outcome.DONE}
        above, edge = set(parents), list(parents)
        while edge:
            fresh = set(self.tasks[edge.pop()].parents) - above
            above |= fresh
            edge += fresh
        if child.id in above:
            raise Broken("S8", f"task {child.id} waits for itself", child.id)
        for parent_id in parents:
            self.children.setdefault(parent_id, []).append(child.id)

    def settle(self, touched: set[int]) -> set[int]:
        """At the end of a transaction: who does not mind a parent's failure goes on.  The children concerned."""
        concerned: set[int] = set()
        for task_id in touched:
            concerned.update(self.children.get(task_id, ()))
        for child_id in concerned | touched:
            self._do_not_mind(self.tasks[child_id])
        return concerned

    def _do_not_mind(self, child: TaskModel) -> None:
        if child.spec.on_failed is FailedDependency.RUN:
            child.unmet -= {p for p in child.unmet if self.tasks[p].outcome is Outcome.DEAD}
