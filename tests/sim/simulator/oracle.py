"""Looks at the store after each commit and objects where it is not what the reference says (DESIGN part 3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from msgspec import json
from msgspec.structs import astuple

from muster.engine.batch import drive
from muster.engine.commands import Applied
from muster.model import commands as c
from muster.model.answers import Answer, Claimed, ClaimedJob, Enqueued, Held, Moved, Taken, TookOver
from muster.model.errors import MusterError, StaleEpoch, TermOver
from muster.model.events import Event
from muster.model.machine import TASK_COMMANDS
from muster.model.states import HELD, STOP_BY_S, PauseReason, StopAction, TaskStatus
from muster.model.task import Now
from muster.stores.sqlite.store import SqliteStore
from muster.testing.promises import History, check
from simulator.leases import Key, Leases
from simulator.reference import Reference
from simulator.snapshot import StoreSnapshot, TaskSnapshot
from simulator.world import Broken, World

T = TypeVar("T")

FULL_CHECK_COMMITS = 400
HOLD_AFTER_JUMP_MS = 60_000
SEEN_JUMP_S = 10
TICKS_MS = 1_500
"""A jump is seen at the next tick; what a tick has begun by then is carried out."""


def _jobs(answer: Claimed | Taken) -> tuple[ClaimedJob, ...]:
    return answer.jobs if isinstance(answer, Claimed) else (answer.job,)


def _with_claim(command: c.Command, outcome: T) -> list[tuple[c.Command, T | Claimed]]:
    """A command with its outcome; an end that has claimed what is next counts as two."""
    if isinstance(command, c.Finish) and command.then and isinstance(outcome, Moved) and outcome.next:
        return [(command, outcome), (command.then, outcome.next)]
    return [(command, outcome)]


@dataclass(frozen=True)
class _Jump:
    """Of the wall clock."""

    owner_pid: int
    mono_ms: int
    commits: int
    seconds: float

    def looks_one_with(self, later: _Jump) -> bool:
        """An owner that stood still between them sees what came of both."""
        soon = later.mono_ms - self.mono_ms < TICKS_MS or later.commits == self.commits
        return self.owner_pid == later.owner_pid and soon


class Oracle:
    def __init__(self, world: World, store: SqliteStore) -> None:
        self.world = world
        self.reference = Reference()
        self.leases = Leases(world, self.reference)
        self.commits = 0
        self._jumps: list[_Jump] = []
        self.quiet_from_s: float | None = None
        """When nobody is to be given up any more (L4)."""
        self.slots: dict[str, int] = {}
        self._drains: dict[str, float] = {}
        """How long each worker that is drained has to stop what it holds, in seconds."""
        self._witness = StoreSnapshot(store)
        self._reads = store.reads
        self._last_event = 0
        self._term = 0
        self._given: dict[tuple[str, str], tuple[int, frozenset[tuple[int, int]]]] = {}
        self._last_cap_ms = int(world.scenario.policy.retry.cap_s * 1000)
        self._acknowledged: list[tuple[c.Command, Answer]] = []

    def clock_jumped(self, seconds: float, now: Now) -> None:
        owner = self.leases.owner
        if owner is None or not owner.alive:
            return
        jump = _Jump(owner.id.pid, now.mono_ms, self.commits, seconds)
        if self._jumps and self._jumps[-1].looks_one_with(jump):
            jump = replace(jump, seconds=seconds + self._jumps.pop().seconds)
        self._jumps.append(jump)

    # -- after each commit

    def committed(self, commands: Sequence[c.Command], applied: Applied, now: Now) -> None:
        """Raises nothing: what it finds ends the simulation."""
        self.commits += 1
        try:
            self._look(commands, applied, now)
            if self.commits % FULL_CHECK_COMMITS == 0:
                self.check_all()
        except Broken as broken:
            self.world.fail(broken)

    def _look(self, commands: Sequence[c.Command], applied: Applied, now: Now) -> None:
        pairs = [
            pair
            for command, outcome in zip(commands, applied.outcomes, strict=True)
            for pair in _with_claim(command, outcome)
        ]
        # A claim sees what its neighbours have done.
        pairs.sort(key=lambda pair: isinstance(pair[0], c.Claim))
        self._trace(pairs)
        touched = self._named(commands)
        for command, outcome in pairs:
            if isinstance(command, c.Enqueue) and isinstance(outcome, Enqueued):
                self._learn(command, outcome)
            self._check_term(command, outcome)
        # Reaps are judged by what was known before this commit moved anything.
        for command, outcome in pairs:
            if not isinstance(outcome, MusterError):
                self._check_quiet(command)
                self._check_current(command)
                self.leases.taken(command, outcome, now)
        names, claimers, granted = set(), set(), set()
        for number, event in self._witness.events_after(self._last_event):
            self._last_event = number
            self.world.trace(f"event {event.task_id} {event.seq} {event.event} {event.new_status}")
            if not event.event.startswith("plan_") and not event.subject:
                self._take(event, now)
                touched.add(event.task_id)
                names.add(event.event)
                if event.event == "claimed":
                    claimers.add(event.actor)
                    granted.add((event.task_id, event.epoch))
        for command, outcome in pairs:
            self._note_accepted(command, outcome, now)
        self._check_told(granted, pairs)
        self._check_checkpoints(pairs)
        known = {task_id for task_id in touched if task_id in self.reference.tasks}
        for look in self._witness.look(sorted(known | self.reference.settle(known))):
            self._check_row(look)
        if names & {"claimed", "readopted"}:
            self._check_slots(claimers)

    def _learn_due_times(self) -> None:
        """The wall clock was set: what waits for a while is due later or earlier, by that clock."""
        for look in self._witness.look(sorted(self.reference.tasks)):
            self.reference.tasks[look.task.id].due_ms = look.task.next_attempt_at_ms

    def _check_published(self, event: Event) -> None:
        """Before the reference takes it.  What a person completes, or has done by hand, is their word."""
        task = self.reference.tasks[event.task_id]
        if task.open_epoch is None or task.by_hand:
            return
        if task.done is None or (task.id, task.done) not in self.world.published:
            says = f"task {task.id} is completed, and the work of attempt {task.done} is not published"
            raise Broken("S18", says, task.id)
        if task.done != event.epoch:
            self.world.seen["a later attempt published the work"] += 1

    def _take(self, event: Event, now: Now) -> None:
        if event.event == "completed":
            self._check_published(event)
        task = self.reference.take(event, self._last_cap_ms)
        self.world.seen[event.event] += 1
        if event.event in {"claimed", "started", "readopted"}:
            self.leases.heard((task.id, task.epoch), now)
        elif event.event == "stop_requested":
            drained = json.decode(event.details)["action"] == StopAction.RELEASE
            stop_by_s = self._drains[task.holder] if drained else STOP_BY_S
            task.stop_by_mono_ms = now.mono_ms + int(stop_by_s * 1000)
        elif event.event == "expired":
            self._check_expiry(task.id, now)

    def _check_current(self, command: c.Command) -> None:
        """Claims come last in a batch, so nothing accepted in it may be of any but the newest epoch."""
        if isinstance(command, c.AttemptCommand):
            newest = self.reference.tasks[command.task_id].epoch
            if command.epoch != newest:
                says = (
                    f"{type(command).__name__} of epoch {command.epoch} was accepted, {newest} is the newest"
                )
                raise Broken("S3", f"task {command.task_id}: {says}", command.task_id)

    def _check_quiet(self, command: c.Command) -> None:
        if isinstance(command, c.Reap) and self.quiet_from_s and self.world.time_s > self.quiet_from_s:
            raise Broken("L4", "still given up, long after the last fault", command.task_id)

    def _trace(self, pairs: Sequence[tuple[c.Command, object]]) -> None:
        for command, outcome in pairs:
            where = getattr(command, "task_id", getattr(command, "worker_id", ""))
            epoch = getattr(command, "epoch", "")
            code = outcome.code if isinstance(outcome, MusterError) else "ok"
            self.world.trace(f"commit {self.commits} {type(command).__name__} {where} {epoch} {code}")
            if isinstance(outcome, StaleEpoch):
                self.world.seen["a stale word was refused"] += 1
            elif isinstance(outcome, TermOver):
                self.world.seen["a stale term was refused"] += 1

    def _named(self, commands: Sequence[c.Command]) -> set[int]:
        found: set[int] = set()
        for command in commands:
            if type(command) in TASK_COMMANDS:
                found.add(command.task_id)  # type: ignore[attr-defined]
            elif isinstance(command, c.Heartbeat):
                found.update(task_id for task_id, _ in command.attempts)
            elif isinstance(command, c.DrainWorker) and command.stop_by_s is not None:
                self._drains[command.worker_id] = command.stop_by_s
        return found

    def _learn(self, command: c.Enqueue, outcome: Enqueued) -> None:
        by_key = {}
        for spec, task_id in zip(command.tasks, outcome.task_ids, strict=True):
            by_key[spec.key] = task_id
        for spec, task_id in zip(command.tasks, outcome.task_ids, strict=True):
            known = self.reference.tasks.get(task_id)
            if known is None:
                parents = tuple(by_key[p] if p in by_key else int(p) for p in dict.fromkeys(spec.depends_on))
                self.reference.add(task_id, spec, parents)
            elif known.spec != spec:
                raise Broken(
                    "S6", f"task {task_id} was given for {spec.key}, it is {known.spec.key}", task_id
                )
        keyed = [spec.idempotency_key for spec in command.tasks]
        same = Counter(t.spec.idempotency_key for t in self.reference.tasks.values())
        for key in keyed:
            if key is not None and same[key] > 1:
                raise Broken("S6", f"idempotency key {key} was used for {same[key]} tasks")

    def _check_term(self, command: c.Command, outcome: object) -> None:
        if isinstance(outcome, TookOver):
            self._term = outcome.term
        term = getattr(command, "term", None)
        if term is not None and term != self._term and not isinstance(outcome, MusterError):
            raise Broken("S10", f"{type(command).__name__} of term {term} was accepted in term {self._term}")

    def _check_expiry(self, task_id: int, now: Now) -> None:
        owner = self.leases.owner
        for jump in self._jumps:
            since_ms = self.leases.led_since_ms
            seen = owner is not None and owner.id.pid == jump.owner_pid and jump.mono_ms > since_ms
            far = abs(jump.seconds) > SEEN_JUMP_S
            if seen and far and TICKS_MS < now.mono_ms - jump.mono_ms < HOLD_AFTER_JUMP_MS:
                raise Broken("S15", f"task {task_id} expired right after the wall clock jumped", task_id)

    def _note_accepted(self, command: c.Command, outcome: object, now: Now) -> None:
        if isinstance(command, c.Claim) and isinstance(outcome, Claimed) and outcome.jobs:
            self._check_claim(command, outcome)
        elif isinstance(command, c.SaveCheckpoint) and isinstance(outcome, Moved):
            saved = (command.epoch, command.taken_us, command.data)
            self.reference.tasks[command.task_id].checkpoints.append(saved)
        elif isinstance(command, c.Retry) and isinstance(outcome, Moved) and command.fresh:
            task = self.reference.tasks[command.task_id]
            task.fresh_after, task.done = outcome.epoch, None
        elif isinstance(command, c.Register) and not isinstance(outcome, MusterError):
            self.slots[command.worker_id] = command.slots
        elif isinstance(outcome, Taken | Held):
            self.leases.held_by_hand(outcome, now)
        elif isinstance(command, c.SetClock) and not isinstance(outcome, MusterError):
            self._learn_due_times()

    def _check_claim(self, command: c.Claim, outcome: Claimed) -> None:
        jobs = frozenset((job.task_id, job.epoch) for job in outcome.jobs)
        # Whoever owns the store remembers what it has given; a late repetition may find another one there.
        owner = self.leases.owner.id.pid if self.leases.owner else 0
        given_by, before = self._given.setdefault((command.worker_id, command.request_id), (owner, jobs))
        still = {key for key in before if self.reference.tasks[key[0]].open_epoch == key[1]}
        if (still or given_by == owner) and jobs not in (before, still):
            raise Broken("S1", f"a repeated claim was given {sorted(jobs)}, before that {sorted(before)}")
        for job in outcome.jobs:
            done = self.reference.tasks[job.task_id].done
            if job.publishes != (None if done == job.epoch else done):
                says = f"attempt {job.epoch} is to publish {job.publishes}, the work of {done} is done"
                raise Broken("S18", f"task {job.task_id}: {says}", job.task_id)
            task = self.reference.tasks[job.task_id]
            expected = task.newest_checkpoint(before_epoch=job.epoch)
            # A repeated claim may come after its own attempt has saved one.
            if job.epoch > 1 and job.checkpoint not in (expected, task.newest_checkpoint()):
                says = f"attempt {job.epoch} resumes from {job.checkpoint!r}, the last one was {expected!r}"
                raise Broken("S16", says, job.task_id)
            if job.checkpoint is not None:
                self.world.seen["an attempt resumed from a checkpoint"] += 1

    def _check_told(self, granted: set[Key], pairs: Sequence[tuple[c.Command, object]]) -> None:
        """What is granted is answered by the same commit, or nobody would work on it."""
        for _, outcome in pairs:
            if isinstance(outcome, Claimed | Taken):
                granted -= {(job.task_id, job.epoch) for job in _jobs(outcome)}
        for task_id, epoch in sorted(granted):
            raise Broken("L3", f"attempt {epoch} of task {task_id} was granted, and nobody was told", task_id)

    def _check_checkpoints(self, pairs: Sequence[tuple[c.Command, object]]) -> None:
        saved = {p.task_id for p, o in pairs if isinstance(p, c.SaveCheckpoint) and isinstance(o, Moved)}
        for task_id in sorted(saved):
            kept, newest = (
                drive(self._reads.checkpoint(task_id)),
                self.reference.tasks[task_id].newest_checkpoint(),
            )
            if (kept.data if kept else None) != newest:
                says = f"{kept} is the newest checkpoint, the one taken last was {newest!r}"
                raise Broken("S16", f"task {task_id}: {says}", task_id)

    def _check_row(self, look: TaskSnapshot) -> None:
        row, task = look.task, self.reference.tasks[look.task.id]
        says = (row.status, row.generation, row.epoch, row.event_seq)
        if says != (task.status, task.generation, task.epoch, task.seq):
            raise Broken("S7", f"task {row.id}: its row says {says}, its events {task.events[-1:]}", row.id)
        open_epochs = [attempt.epoch for attempt in look.attempts if attempt.open]
        if len(open_epochs) > 1:
            raise Broken("S1", f"task {row.id} has open attempts {open_epochs}", row.id)
        if open_epochs != ([task.open_epoch] if row.status in HELD else []):
            raise Broken("S3", f"task {row.id} is {row.status} and has open attempts {open_epochs}", row.id)
        if [attempt.epoch for attempt in look.attempts] != list(range(1, row.epoch + 1)):
            raise Broken("S2", f"task {row.id}, epoch {row.epoch}: its attempts have a hole", row.id)
        if not row.unmet == look.unmet == len(task.unmet):
            counts = f"counts {row.unmet}, has edges {look.unmet}, should have {sorted(task.unmet)}"
            raise Broken("S8", f"task {row.id} {counts}", row.id)
        if look.in_line != row.ready:
            raise Broken("L3", f"task {row.id} is {row.status}, its place in line is {look.in_line}", row.id)
        if task.lingering is None and row.lingering_epoch == task.may_linger:
            task.lingering = row.lingering_epoch
        if row.lingering_epoch != task.lingering:
            lets = f"lets attempt {row.lingering_epoch} linger, it should be {task.lingering}"
            raise Broken("S1", f"task {row.id} {lets}", row.id)
        if row.done_epoch != task.done:
            done = f"says that attempt {row.done_epoch} is done, it should be {task.done}"
            raise Broken("S18", f"task {row.id} {done}", row.id)
        waits = row.unmet or row.next_attempt_at_ms is not None or row.ready or task.lingering is not None
        waits = waits or (row.status is TaskStatus.PAUSED and row.paused_reason is not None)
        if not (row.final or row.status in HELD or waits):
            raise Broken("L3", f"task {row.id} is {row.status} and waits for nothing", row.id)
        task.due_ms = row.next_attempt_at_ms
        task.in_review = row.status is TaskStatus.PAUSED and row.paused_reason is PauseReason.REVIEW

    def _check_slots(self, claimers: set[str]) -> None:
        """A worker's own slots bind its claims: what it holds already when it is heard again is at work."""
        policy = self.world.scenario.policy
        by_worker: Counter[str] = Counter()
        by_agent: Counter[str] = Counter()
        by_limit: Counter[str | None] = Counter()
        for worker, agent, limit, count in self._witness.places():
            by_worker[worker] += count
            by_agent[agent] += count
            by_limit[limit] += count
        for worker, count in by_worker.items():
            if worker in claimers and count > self.slots.get(worker, count):
                raise Broken("S12", f"{worker} holds {count} attempts in {self.slots[worker]} slots")
        for name, most in policy.agent_slots.items():
            if by_agent[name] > most:
                raise Broken("S12", f"agent {name} has {by_agent[name]} attempts, {most} may be")
        for name, most in policy.limits.items():
            if by_limit[name] > most:
                raise Broken("S12", f"limit {name} has {by_limit[name]} attempts, {most} may be")

    # -- what was acknowledged (S6)

    def acknowledged(self, command: c.Command, answer: Answer) -> None:
        """A caller has this answer in hand: what it says must be in the store, now and at the end."""
        for said, heard in _with_claim(command, answer):
            self._acknowledged.append((said, heard))
            self._check_acknowledged(said, heard)

    def _check_acknowledged(self, command: c.Command, answer: Answer) -> None:
        if isinstance(answer, Enqueued):
            missing = [task_id for task_id in answer.task_ids if task_id not in self.reference.tasks]
            if missing:
                raise Broken("S6", f"tasks {missing} were acknowledged and are not there")
        elif isinstance(answer, Moved):
            task = self.reference.tasks[answer.task_id]
            state = (answer.status, answer.generation, answer.epoch)
            if state not in task.states:
                says = (
                    f"task {task.id}: {type(command).__name__} was acknowledged as {state}, which never was"
                )
                raise Broken("S6", says, task.id)
            if (
                isinstance(command, c.SaveCheckpoint)
                and (command.epoch, command.taken_us, command.data) not in task.checkpoints
            ):
                raise Broken("S6", f"task {task.id}: an acknowledged checkpoint is missing", task.id)
        elif isinstance(answer, Claimed | Taken):
            for job in _jobs(answer):
                if self.reference.tasks[job.task_id].epoch < job.epoch:
                    raise Broken("S6", f"attempt {job.task_id}#{job.epoch} was handed out and is not there")

    def check_all(self) -> None:
        """The whole history from the store, without what was learned on the way."""
        rows = self._witness.history()
        # S1 and S8 there go by the wall clock and by completions alone; here clocks jump and tasks are skipped.
        for finding in check(History(**rows._asdict())):
            if finding.violations and finding.promise in {"S3", "S7"}:
                raise Broken(finding.promise, finding.violations[0])
        for command, answer in self._acknowledged:
            self._check_acknowledged(command, answer)
        ids = {row.id for row in rows.tasks}
        if ids != self.reference.tasks.keys():
            raise Broken(
                "S6", f"the store has tasks {sorted(ids ^ self.reference.tasks.keys())} too many or too few"
            )
        for look in self._witness.look(sorted(ids)):
            self._check_row(look)

    def state_digest(self) -> str:
        """For the trace: all that the store holds in the end."""
        rows = self._witness.history()
        return repr([[astuple(row) for row in rows.tasks], [astuple(row) for row in rows.attempts]])
