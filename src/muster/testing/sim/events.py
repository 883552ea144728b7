"""The promises about what is written, followed event by event."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.engine.policy import Policy
from muster.model.states import FINAL, TASK_MOVES, TaskStatus
from muster.model.task import Now
from muster.model.views import EventView
from muster.testing.sim.reference import Open, TaskTruth, Truth
from muster.testing.sim.world import Violation, World

_T = TaskStatus
ENDING = frozenset({"completed", "failed", "lost", "released"})
OF_ATTEMPT = ENDING | {"started", "progress", "checkpoint", "artifact", "declared", "stop_requested"}


@dataclass
class Said:
    """What one transaction's accepted commands account for."""

    attempts: set[tuple[int, int]] = field(default_factory=set)
    """(task, epoch) that some command spoke for."""
    left: set[str] = field(default_factory=set)
    """Workers that gave everything back."""
    all_stop: bool = False
    by_people: set[tuple[str, int]] = field(default_factory=set)
    """(event, task)."""
    claims: dict[str, int] = field(default_factory=dict)
    """Claims by worker."""
    ticked: set[tuple[str, str]] = field(default_factory=set)
    """(plan, key) whose box was ticked."""
    promoted_by_term: set[int] = field(default_factory=set)


class EventChecks:
    """S1, S2, S3, S4, S5, S7, S8, S11, S12 over the events of one commit, in their order."""

    def __init__(self, world: World, truth: Truth, policy: Policy) -> None:
        self.world = world
        self.truth = truth
        self.policy = policy

    def follow(self, event: EventView, said: Said, now: Now) -> None:
        if event.event == "enqueued":
            self._enqueued(event)
            return
        task = self.truth.tasks.get(event.task_id)
        if task is None:
            raise Violation(
                "S7", f"task {event.task_id} has event {event.seq} ({event.event}), but no first one"
            )
        self._joins(task, event)
        if event.event in OF_ATTEMPT:
            self._of_attempt(task, event, said)
        getattr(self, f"_{event.event}", self._other)(task, event, said, now)
        task.status, task.generation, task.epoch = event.new_status, event.generation, event.epoch
        self.truth.seen.add((task.id, task.status, task.generation, task.epoch))

    # -- what holds for all

    def _joins(self, task: TaskTruth, event: EventView) -> None:
        name = f"task {task.id} event {event.seq} ({event.event})"
        if event.seq != task.seq + 1:
            raise Violation("S7", f"{name} follows event {task.seq}")
        if event.previous_status != task.status:
            raise Violation("S7", f"{name} starts from {event.previous_status}, it was {task.status}")
        if event.epoch < task.epoch:
            raise Violation("S2", f"{name} has epoch {event.epoch} after {task.epoch}")
        task.seq = event.seq
        if event.new_status is event.previous_status:
            return
        if event.new_status not in TASK_MOVES[task.status]:
            raise Violation("S5", f"{name} moves from {task.status} to {event.new_status}")
        by_person = task.status is _T.FAILED and event.event == "completed" and task.open is None
        if task.final and event.event != "retried" and not by_person:
            raise Violation("S5", f"{name} moves a final task from {task.status} to {event.new_status}")
        if event.new_status in FINAL:
            if event.generation in task.ended_in and not by_person:
                raise Violation("S4", f"{name} ends generation {event.generation} again")
            task.ended_in.add(event.generation)

    def _of_attempt(self, task: TaskTruth, event: EventView, said: Said) -> None:
        """S3: only the current attempt writes, by a command that names it."""
        held = task.open
        if held is None:
            if event.event == "completed" and self._completed_by_hand(task, event, said):
                return
            raise Violation("S3", f"task {task.id}: {event.event} by epoch {event.epoch}, which is over")
        if held.epoch != event.epoch:
            raise Violation(
                "S3", f"task {task.id}: {event.event} of epoch {event.epoch}, current is {held.epoch}"
            )
        spoken = (task.id, event.epoch) in said.attempts or held.worker_id in said.left
        if not spoken and not (said.all_stop and event.event == "stop_requested"):
            raise Violation(
                "S3",
                f"task {task.id}: {event.event} of epoch {event.epoch}, but nobody spoke for that attempt",
            )
        if event.event in ENDING:
            self._close(task)

    def _completed_by_hand(self, task: TaskTruth, event: EventView, said: Said) -> bool:
        return ("completed", task.id) in said.by_people or (event.plan, event.key) in said.ticked

    def _close(self, task: TaskTruth) -> None:
        if task.open is not None:
            worker = self.truth.workers.get(task.open.worker_id)
            if worker is not None:
                worker.holds -= 1
            task.open = None

    # -- by event

    def _enqueued(self, event: EventView) -> None:
        truth, key = self.truth, (event.plan, event.key)
        spec = truth.specs.get(key)
        if spec is None:
            raise Violation("S7", f"task {event.key} of {event.plan} was added, but nobody asked for it")
        if key in truth.ids or event.seq != 1 or event.previous_status is not None:
            raise Violation("S6", f"task {event.key} of {event.plan} was added twice")
        task = TaskTruth(event.task_id, event.plan, event.key, event.new_status, spec.max_retries, seq=1)
        if task.final:
            task.ended_in.add(1)
        truth.tasks[task.id] = task
        truth.ids[key] = task.id
        truth.seen.add((task.id, task.status, 1, 0))
        for child_id in truth.late.pop(key, ()):
            self._joined(task, child_id)
        for parent_key in dict.fromkeys((event.plan, name) for name in spec.depends_on):
            if parent_key in truth.ids:
                self._joined(truth.tasks[truth.ids[parent_key]], task.id)
            else:  # added by the same command, after this one
                truth.late.setdefault(parent_key, []).append(task.id)

    def _joined(self, parent: TaskTruth, child_id: int) -> None:
        self.truth.edges.append((parent.id, child_id))
        if parent.status is not _T.COMPLETED:
            self.truth.tasks[child_id].unmet.add(parent.id)
            self.truth.children.setdefault(parent.id, set()).add(child_id)

    def _claimed(self, task: TaskTruth, event: EventView, said: Said, now: Now) -> None:
        name = f"task {task.id} epoch {event.epoch} for {event.actor}"
        if task.open is not None or (task.id, event.epoch) in self.truth.granted:
            raise Violation("S1", f"{name} was granted while another attempt is open, or for the second time")
        if event.epoch != task.epoch + 1:
            raise Violation("S2", f"{name} follows epoch {task.epoch}")
        if task.unmet:
            raise Violation("S8", f"{name} was claimed before {sorted(task.unmet)} were done")
        if not task.ready:
            raise Violation("S1", f"{name} was claimed, but it was not ready")
        worker = self.truth.workers.get(event.actor)
        if worker is None or worker.ended or not said.claims.get(event.actor):
            raise Violation("S1", f"{name}: that worker has ended, or asked for nothing")
        worker.holds += 1
        if worker.holds > worker.slots:
            raise Violation("S12", f"{worker.id} holds {worker.holds} attempts and has {worker.slots} slots")
        lease_ms = int(self.policy.lease_s * 1000)
        task.open = Open(event.epoch, event.actor, now.boot_id, now.mono_ms + lease_ms)
        self.truth.granted[task.id, event.epoch] = event.actor

    def _started(self, task: TaskTruth, event: EventView, said: Said, now: Now) -> None:
        if task.open is not None:
            task.open.started = True

    def _completed(self, task: TaskTruth, event: EventView, said: Said, now: Now) -> None:
        if event.generation in task.cancelled_in:
            raise Violation(
                "S11", f"task {task.id} was completed in generation {event.generation} after a cancel"
            )
        task.due_ms = None
        children = self.truth.children.pop(task.id, set())
        for child_id in children:
            self.truth.tasks[child_id].unmet.discard(task.id)

    def _cancelled(self, task: TaskTruth, event: EventView, said: Said, now: Now) -> None:
        if ("cancelled", task.id) not in said.by_people:
            raise Violation("S7", f"task {task.id} was cancelled, but nobody asked for it")
        task.cancelled_in.add(event.generation)
        task.due_ms = None
        self._close(task)

    def _retried(self, task: TaskTruth, event: EventView, said: Said, now: Now) -> None:
        if event.generation != task.generation + 1 or ("retried", task.id) not in said.by_people:
            raise Violation("S5", f"task {task.id}: generation {event.generation} after {task.generation}")
        task.retries = task.losses = 0
        task.due_ms = None

    def _promoted(self, task: TaskTruth, event: EventView, said: Said, now: Now) -> None:
        if task.due_ms is None and not task.perhaps_due:
            raise Violation("S7", f"task {task.id} was promoted and waited for nothing")
        task.due_ms = None

    def _unblocked(self, task: TaskTruth, event: EventView, said: Said, now: Now) -> None:
        task.unblocked += 1
        if task.unmet or task.unblocked > 1:
            raise Violation(
                "S8", f"task {task.id} unblocked {task.unblocked} times, waits for {sorted(task.unmet)}"
            )

    def _lost(self, task: TaskTruth, event: EventView, said: Said, now: Now) -> None:
        task.losses += 1
        self._waits(task, event, now, must_fail=task.losses >= self.policy.retry.losses_max)

    def _failed(self, task: TaskTruth, event: EventView, said: Said, now: Now) -> None:
        must_fail = task.retries >= task.max_retries
        if event.new_status is _T.ABORTED:
            task.retries += 1
        self._waits(task, event, now, must_fail=must_fail)

    def _waits(self, task: TaskTruth, event: EventView, now: Now, *, must_fail: bool) -> None:
        aborted = event.new_status is _T.ABORTED
        if aborted is must_fail and not (event.event == "failed" and not aborted):
            raise Violation("L4", f"task {task.id} is {event.new_status}; its budget says otherwise")
        task.due_ms = now.wall_ms if aborted else None

    def _released(self, task: TaskTruth, event: EventView, said: Said, now: Now) -> None:
        """Costs nothing; only the row says whether it waits for a provider."""
        task.perhaps_due = True

    def _other(self, task: TaskTruth, event: EventView, said: Said, now: Now) -> None:
        if event.event not in OF_ATTEMPT:
            raise Violation("S7", f"task {task.id}: nobody knows the event {event.event}")
