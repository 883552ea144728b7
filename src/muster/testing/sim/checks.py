"""Looks at every commit: commands, answers, events and rows, against the promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from muster.engine.batch import drive
from muster.engine.commands import Applied, Outcome
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.answers import Claimed, Enqueued, HeartbeatAnswer, Moved, TookOver
from muster.model.errors import MusterError
from muster.model.retry import SPENDS, Spend
from muster.model.states import HELD, TaskStatus
from muster.model.task import Attempt, Now, Task
from muster.model.views import EventView
from muster.ports.store import Store, Tx
from muster.testing.sim.events import EventChecks, Said
from muster.testing.sim.reference import TaskTruth, Truth
from muster.testing.sim.world import Violation, World

EVENTS_MAX = 100_000
FULL_CHECK_COMMITS = 100
STALL_SLACK_MS = 2_600
"""A stall of the owner that is shorter than this goes unnoticed; leases must allow for it."""

Gone = Callable[[str], bool]


class Checker:
    def __init__(
        self,
        world: World,
        store: Store,
        policy: Policy,
        sweep_s: float,
        gone: Gone,
        freed: Callable[[int, int], None],
    ) -> None:
        self.world = world
        self.truth = Truth()
        self.events: list[EventView] = []
        self.attempts: dict[tuple[int, int], Attempt] = {}
        self.commits = 0
        self._store = store
        self._policy = policy
        self._slack_ms = STALL_SLACK_MS + int(sweep_s * 1000)
        self._gone = gone
        self._freed = freed
        self._event_checks = EventChecks(world, self.truth, policy)
        self._commands: list[c.Command] = []

    def before(self, commands: list[c.Command]) -> None:
        self._commands = commands

    def blind(self) -> None:
        """Up to now nobody could be heard."""
        self.truth.blind_until_ms = self.world.now().mono_ms

    def committed(self, result: object) -> None:
        assert isinstance(result, Applied)
        self.commits += 1
        now = self.world.now()
        pairs = list(zip(self._commands, result.outcomes, strict=True))
        ordered = [p for p in pairs if type(p[0]) is not c.Claim] + [
            p for p in pairs if type(p[0]) is c.Claim
        ]
        said = Said()
        for command, outcome in ordered:
            if isinstance(outcome, MusterError):
                self._refused(command, outcome)
            else:
                self._command(command, outcome, said, now)
        last_id = self.events[-1].id if self.events else 0
        fresh = drive(self._store.reads.events(after_id=last_id, task_id=None, limit=EVENTS_MAX))
        for event in fresh:
            self.world.trace(f"{event.key} {event.event} #{event.epoch} {event.new_status} by {event.actor}")
            self._event_checks.follow(event, said, now)
            if event.event == "claimed":
                self._freed(event.task_id, event.epoch - 1)
        self.events += fresh
        self._meetings(fresh)
        if fresh or self.commits % FULL_CHECK_COMMITS == 0:
            self._rows(fresh, now)
        for command, outcome in ordered:
            self._answer(command, outcome)

    def _meetings(self, fresh: list[EventView]) -> None:
        done = {event.task_id for event in fresh if event.event == "completed"}
        for event in fresh:
            if event.event == "unblocked":
                parents = [parent for parent, child in self.truth.edges if child == event.task_id]
                if len(done.intersection(parents)) > 1:
                    self.world.mark("child unblocked by two parents in one batch")

    # -- commands

    def _refused(self, command: c.Command, error: MusterError) -> None:
        self.world.trace(f"{type(command).__name__} refused: {error.code}")
        if error.code == "stale_epoch":
            self.world.mark("stale write refused")
        if error.code == "store_rewound":
            raise Violation("S2", f"{command}: {error.message}")
        if error.code == "term_over":
            self.world.mark("old term refused")
        if type(command) is c.Reap and error.code in {"illegal_move", "stale_epoch"}:
            self.world.mark("reap refused: heard again, or ended")

    def _command(self, command: c.Command, outcome: Outcome, said: Said, now: Now) -> None:
        self._check_term(command)
        if isinstance(command, c.Reap):
            self._reap(command, now)
        elif isinstance(command, c.Promote) and command.term is None:
            said.by_people.add(("promoted", command.task_id))
        handler = getattr(self, f"_{type(command).__name__}", None)
        if handler is not None:
            handler(command, outcome, said, now)
        if isinstance(command, c.AttemptCommand):
            said.attempts.add((command.task_id, command.epoch))

    def _check_term(self, command: c.Command) -> None:
        term = getattr(command, "term", None)
        if term is not None and term != self.truth.term:
            raise Violation(
                "S10", f"{type(command).__name__} of term {term} was accepted in term {self.truth.term}"
            )

    def _Enqueue(self, command: c.Enqueue, outcome: Enqueued, said: Said, now: Now) -> None:  # noqa: N802
        for spec in command.tasks:
            assert spec.key is not None
            self.truth.specs.setdefault((outcome.plan, spec.key), spec)
            if spec.done:
                said.ticked.add((outcome.plan, spec.key))
        if outcome.existing:
            self.world.mark("same plan taken in again")

    def _Claim(self, command: c.Claim, outcome: Claimed, said: Said, now: Now) -> None:  # noqa: N802
        said.claims[command.worker_id] = said.claims.get(command.worker_id, 0) + 1

    def _Cancel(self, command: c.Cancel, outcome: Moved, said: Said, now: Now) -> None:  # noqa: N802
        said.by_people.add(("cancelled", command.task_id))

    def _Retry(self, command: c.Retry, outcome: Moved, said: Said, now: Now) -> None:  # noqa: N802
        said.by_people.add(("retried", command.task_id))

    def _CompleteByPerson(self, command: c.CompleteByPerson, outcome: Moved, said: Said, now: Now) -> None:  # noqa: N802
        said.by_people.add(("completed", command.task_id))

    def _StopCrew(self, command: c.StopCrew, outcome: Any, said: Said, now: Now) -> None:  # noqa: N802
        said.all_stop = True
        stop_by_ms = now.mono_ms + int(command.stop_by_s * 1000)
        for task in self.truth.tasks.values():
            if task.open is not None:
                task.open.stop_by_ms = min(stop_by_ms, task.open.stop_by_ms or stop_by_ms)

    def _Register(self, command: c.Register, outcome: Any, said: Said, now: Now) -> None:  # noqa: N802
        known = self.truth.workers.get(command.worker_id)
        if known is None:
            self.truth.worker(command.worker_id, command.slots)
        elif known.ended:
            raise Violation("S10", f"{command.worker_id} was registered again after its end")
        self.truth.hears(command.worker_id, now.mono_ms, command.boot_id)

    def _Heartbeat(self, command: c.Heartbeat, outcome: HeartbeatAnswer, said: Said, now: Now) -> None:  # noqa: N802
        if outcome.known:
            self.truth.hears(command.worker_id, now.mono_ms, now.boot_id)
        for order in outcome.attempts:
            held = self.truth.tasks[order.task_id].open
            if not order.current:
                self.world.mark("holder told that its attempt is over")
            elif held is None or (held.epoch, held.worker_id) != (order.epoch, command.worker_id):
                raise Violation(
                    "S3", f"{command.worker_id} was told that {order.task_id}#{order.epoch} is current"
                )
            else:
                self._renew(held, now)

    def _renew(self, held: Any, now: Now, *, fresh: bool = False) -> None:
        held.lease_until_ms = now.mono_ms + int(self._policy.lease_s * 1000)
        held.boot_id = now.boot_id
        if fresh and held.stop_by_ms is not None:
            held.stop_by_ms = max(held.stop_by_ms, held.lease_until_ms)

    def _Start(self, command: c.Start, outcome: Moved, said: Said, now: Now) -> None:  # noqa: N802
        held = self.truth.tasks[command.task_id].open
        if held is not None and held.epoch == command.epoch and not held.started:
            held.lease_until_ms = now.mono_ms + int(self._policy.lease_s * 1000)

    def _SaveCheckpoint(self, command: c.SaveCheckpoint, outcome: Moved, said: Said, now: Now) -> None:  # noqa: N802
        self.truth.tasks[command.task_id].checkpoint = command.data

    def _Deregister(self, command: c.Deregister, outcome: Any, said: Said, now: Now) -> None:  # noqa: N802
        said.left.add(command.worker_id)
        self.truth.end(command.worker_id)

    def _NewBoot(self, command: c.NewBoot, outcome: TookOver, said: Said, now: Now) -> None:  # noqa: N802
        if outcome.term != self.truth.term + 1:
            raise Violation("S10", f"term {outcome.term} follows term {self.truth.term}")
        self.truth.term = outcome.term
        if outcome.adopted:
            self.world.mark("running attempts adopted by a new owner")
        self._fresh_leases(now)
        self.blind()

    def _FreshLeases(self, command: c.FreshLeases, outcome: Any, said: Said, now: Now) -> None:  # noqa: N802
        self.world.mark("leases begun anew after a stall")
        self._fresh_leases(now)

    def _fresh_leases(self, now: Now) -> None:
        for worker in self.truth.workers.values():
            if not worker.ended and worker.boot_id == now.boot_id:
                worker.heard_ms = now.mono_ms
        for task in self.truth.tasks.values():
            worker_id = task.open.worker_id if task.open else ""
            worker_or_none = self.truth.workers.get(worker_id)
            if worker_or_none and not worker_or_none.ended and worker_or_none.boot_id == now.boot_id:
                self._renew(task.open, now, fresh=True)

    def _unheard_ms(self, heard_ms: int, now: Now) -> int:
        return now.mono_ms - max(heard_ms, self.truth.blind_until_ms)

    def _reap(self, command: c.Reap, now: Now) -> None:
        held = self.truth.tasks[command.task_id].open
        name = f"attempt {command.task_id}#{command.epoch}"
        if held is None or held.epoch != command.epoch:
            return  # the events say whether it did harm
        worker = self.truth.workers[held.worker_id]
        if command.proven:
            if not worker.ended and not self._gone(held.worker_id):
                raise Violation("S15", f"{name} was reaped as proven, but {held.worker_id} lives")
            return
        overdue = held.stop_by_ms is not None and held.stop_by_ms <= now.mono_ms
        if held.boot_id != now.boot_id or overdue:
            return
        if held.lease_until_ms > now.mono_ms:
            left_ms = held.lease_until_ms - now.mono_ms
            raise Violation("S15", f"{name} was reaped {left_ms} ms before the end of its lease")
        lease_ms = int(self._policy.lease_s * 1000)
        if self._unheard_ms(held.lease_until_ms - lease_ms, now) < lease_ms - self._slack_ms:
            raise Violation("S15", f"{name} was reaped by the owner's own stall")
        self.world.mark("silent holder reaped")

    def _BuryWorker(self, command: c.BuryWorker, outcome: Any, said: Said, now: Now) -> None:  # noqa: N802
        worker = self.truth.workers[command.worker_id]
        if worker.ended:
            return
        if command.heard_mono_ms is None:
            if not self._gone(worker.id):
                raise Violation("S15", f"{worker.id} was buried as proven dead, but it lives")
        elif command.heard_mono_ms != worker.heard_ms:
            return
        elif self._unheard_ms(worker.heard_ms, now) < int(self._policy.lease_s * 1000) - self._slack_ms:
            raise Violation("S15", f"{worker.id} was buried by the owner's own stall")
        self.truth.end(worker.id)

    # -- answers

    def _answer(self, command: c.Command, outcome: Outcome) -> None:
        """What is acknowledged is there (S6), and a claim hands over the newest checkpoint (S16)."""
        if isinstance(outcome, Moved):
            state = (outcome.task_id, outcome.status, outcome.generation, outcome.epoch)
            if state not in self.truth.seen:
                raise Violation("S6", f"{type(command).__name__} was answered with {state}, which never was")
        elif isinstance(outcome, Enqueued) and isinstance(command, c.Enqueue):
            lost = [s.key for s in command.tasks if (outcome.plan, s.key or "") not in self.truth.ids]
            if lost:
                raise Violation("S6", f"tasks {lost} of {outcome.plan} were acknowledged and are not there")
        elif isinstance(outcome, Claimed) and isinstance(command, c.Claim):
            self._handed_over(command, outcome)

    def _handed_over(self, command: c.Claim, outcome: Claimed) -> None:
        for job in outcome.jobs:
            task = self.truth.tasks[job.task_id]
            if self.truth.granted.get((job.task_id, job.epoch)) != command.worker_id or task.open is None:
                raise Violation(
                    "S1", f"{command.worker_id} was given {job.task_id}#{job.epoch}, which it does not hold"
                )
            if job.checkpoint != task.checkpoint:
                raise Violation(
                    "S16",
                    f"attempt {job.task_id}#{job.epoch} begins from {job.checkpoint!r}, not {task.checkpoint!r}",
                )
            if job.checkpoint is not None:
                self.world.mark("attempt resumed from a checkpoint")
        if len(outcome.jobs) > command.slots:
            raise Violation("S12", f"a claim for {command.slots} was given {len(outcome.jobs)} attempts")
        if outcome.jobs and (command.worker_id, command.request_id) in self.truth.requests:
            self.world.mark("lost answer repeated")
        self.truth.requests.add((command.worker_id, command.request_id))

    # -- rows

    def _rows(self, fresh: Iterable[EventView], now: Now) -> None:
        failed = {event.task_id for event in fresh if event.event in {"failed", "lost"}}
        touched = {event.task_id for event in fresh}
        for parent, child in self.truth.edges:
            if parent in touched:
                touched.add(child)
        if self.commits % FULL_CHECK_COMMITS == 0:
            touched = set(self.truth.tasks)
        rows, attempts = self.read(touched)
        if len(rows) != len(touched):
            raise Violation("S6", f"{len(touched) - len(rows)} tasks have gone")
        for row in rows:
            truth = self.truth.tasks[row.id]
            self._row(row, truth, attempts.get(row.id))
            if row.id in failed and row.next_attempt_at_ms is not None:
                wait_ms, cap_ms = row.next_attempt_at_ms - now.wall_ms, self._policy.retry.cap_s * 1000
                if not 0 <= wait_ms <= cap_ms:
                    raise Violation("S9", f"task {row.id} waits {wait_ms} ms after {row.retries} retries")
            truth.due_ms, truth.perhaps_due = row.next_attempt_at_ms, False

    def read(self, ids: Iterable[int]) -> tuple[list[Task], dict[int, Attempt]]:
        wanted = sorted(ids)

        async def work(tx: Tx) -> tuple[list[Task], list[Attempt]]:
            return await tx.tasks(wanted), await tx.newest_attempts(wanted)

        rows, attempts = drive(self._store.transact(work))
        self.attempts |= {(attempt.task_id, attempt.epoch): attempt for attempt in attempts}
        return rows, {attempt.task_id: attempt for attempt in attempts}

    def _row(self, row: Task, truth: TaskTruth, attempt: Attempt | None) -> None:
        seen = (row.status, row.generation, row.epoch, row.event_seq, row.retries, row.losses)
        wanted = (truth.status, truth.generation, truth.epoch, truth.seq, truth.retries, truth.losses)
        if seen != wanted:
            raise Violation("S7", f"task {row.id} is {seen}, its events say {wanted}")
        if row.unmet != len(truth.unmet):
            raise Violation(
                "S8", f"task {row.id} waits for {row.unmet} tasks, it should for {sorted(truth.unmet)}"
            )
        is_open = attempt is not None and attempt.open and attempt.epoch == row.epoch
        if is_open is not (truth.open is not None) or is_open is not (row.status in HELD):
            raise Violation("S1", f"task {row.id} is {row.status}, its attempt open: {is_open}")
        waits = row.unmet or row.next_attempt_at_ms is not None
        if not (row.final or is_open or row.ready or waits) or (
            row.final and row.next_attempt_at_ms is not None
        ):
            raise Violation("L3", f"task {row.id} is {row.status} and waits for nothing")
        if row.status is TaskStatus.FAILED and row.error_kind is not None:
            spend = SPENDS[row.error_kind]
            spared = (spend is Spend.RETRY and row.retries < row.max_retries) or (
                spend is Spend.LOSS and row.losses < self._policy.retry.losses_max
            )
            if spared or spend is Spend.NOTHING:
                raise Violation("L4", f"task {row.id} FAILED by {row.error_kind} with budget left")
