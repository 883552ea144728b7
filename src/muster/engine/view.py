"""The rows of one workspace that a transaction works on, and what it changes of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from muster.engine.alike import Alike
from muster.engine.fence import Incarnation
from muster.engine.known import Known, Requests
from muster.engine.outbox import Outbox
from muster.model.answers import Moved
from muster.model.commands import (
    AppendLog,
    AttemptCommand,
    CloseGroup,
    Command,
    Depend,
    Finish,
    Skip,
    Unblock,
)
from muster.model.edits import is_barrier
from muster.model.errors import NotFound
from muster.model.events import COORDINATOR, Event
from muster.model.machine import decide
from muster.model.moves.decision import Decision, Facts
from muster.model.pools import CLOSING
from muster.model.retry import RetryPolicy
from muster.model.rows import NewTask
from muster.model.states import (
    FILE_ORDER,
    HELD,
    MAY_BEGIN,
    PHASES,
    AttemptStatus,
    ErrorKind,
    FailedDependency,
    TaskStatus,
)
from muster.model.task import Attempt, Now, Task, waits_for_first
from muster.model.webhooks import Telling
from muster.model.wording import task_name
from muster.ports.runtime import Chance
from muster.ports.store import Tx, Writes

TITLE_SHOWN = 80
"""Characters of a title that stand in another task's reason."""


class Around(NamedTuple):
    """What a transaction knows of its surroundings."""

    here: Now
    """What this host's clocks show."""
    incarnation: Incarnation
    known: Known
    requests: Requests


class View:
    """Commands of a batch are decided in order on this view; `flush` writes all of it set-wise."""

    def __init__(
        self, tx: Tx, clock: Callable[[], Now], chance: Chance, retry: RetryPolicy, around: Around
    ) -> None:
        self.tx = tx
        self.here, self.incarnation, self.known, self.requests = around
        self._clock = clock
        self.chance = chance
        self.retry = retry
        self.alike = Alike()
        self._elsewhere: set[int] = set()
        """Numbers that were asked for and are those of other workspaces' tasks."""
        self._tasks: dict[int, Task] = {}
        self._attempts: dict[int, Attempt] = {}
        self._changed: set[int] = set()
        self._changed_attempts: set[int] = set()
        self._opened: set[int] = set()
        self._completed: list[int] = []
        self._closing: list[int] = []
        """Groups that are done, unless nothing stands below them yet."""
        self.back: list[Task] = []
        """Those that may be begun again, or at last."""
        self._failed: list[tuple[int, int | None]] = []
        """Parents that ended without being done, each with the one child that is to be told; None: all."""
        self._writes = Writes.nothing()
        self._queue_changed = False
        """Some task that waits, or has waited, is not written: who reads what is ready would not see it so."""
        self.outbox: Outbox | None = None
        """Where somebody is to be told what happens here."""
        self.ended: dict[int, list[bool]] = {}
        """By plan, its tasks that ended: True for completed, False for failed for good after a run."""
        self.became_ready = False
        self.freed_files = False
        """An attempt has ended that others had to keep clear of: one that changes the same files may begin."""
        self.freed_place = False
        """An attempt has ended: under a limit, another task may begin now."""
        self.refused: list[tuple[Attempt, float | None]] = []
        """Attempts that their provider has ended, and whose pools are to be closed, each for how long where that
        was stated."""
        self.wrote_events = False
        self.disturbed: set[str] = set()
        """Workers whose attempts were ended or told to stop by somebody else."""

    @property
    def now(self) -> Now:
        """The time that leases are told by; it moves on where the transaction has waited for what it holds."""
        return self._clock()

    async def load(self, ids: Collection[int]) -> None:
        if not ids or not (missing := [i for i in ids if i not in self._tasks]):
            return
        tasks = await self.tx.tasks(missing)
        if len(tasks) < len(missing):
            self._elsewhere |= await self.tx.elsewhere(missing)
        newest = []
        for task in tasks:
            self._tasks[task.id] = task
            if task.epoch:
                newest.append((task.id, task.epoch))
        if newest:
            for attempt in await self.tx.attempts(newest):
                self._attempts[attempt.task_id] = attempt

    async def reload(self) -> None:
        """After statements of the store's own, and a `flush`: the rows as they are now."""
        ids = list(self._tasks)
        self._tasks.clear()
        self._attempts.clear()
        await self.load(ids)

    def check(self, command: AttemptCommand) -> None:
        """Raises where the store does not know the command's epoch, as Origin.judge."""
        known, attempt = self._tasks.get(command.task_id), self._attempts.get(command.task_id)
        self._check(known, attempt, command)

    def _check(self, task: Task | None, attempt: Attempt | None, command: AttemptCommand) -> None:
        """A task of another workspace is not there, which does not tell that this store was rewound."""
        if task is None and command.task_id in self._elsewhere:
            raise _unknown(command.task_id)
        self.incarnation.check(task, attempt, command)

    def task(self, task_id: int) -> Task:
        task = self._tasks.get(task_id)
        if task is None:
            raise _unknown(task_id)
        return task

    def attempt(self, task_id: int) -> Attempt | None:
        return self._attempts.get(task_id)

    async def held(self, worker_id: str) -> list[Attempt]:
        """The worker's open attempts as this transaction leaves them: neighbours may have ended some."""
        return await self._still_open(await self.tx.held(worker_id))

    async def held_by_hand(self) -> list[Attempt]:
        """What people hold, in the same way."""
        return await self._still_open(await self.tx.held_by_hand())

    async def _still_open(self, stored: list[Attempt]) -> list[Attempt]:
        await self.load([attempt.task_id for attempt in stored])
        return [
            now
            for attempt in stored
            if (now := self._attempts[attempt.task_id]).epoch == attempt.epoch and now.open
        ]

    async def logged(self, chunk: AppendLog) -> int:
        """How many bytes are known of the chunk that begins where this one does."""
        place = (chunk.task_id, chunk.epoch, chunk.stream, chunk.offset)
        for known in self._writes.logs:
            if place == (known.task_id, known.epoch, known.stream, known.offset):
                return len(known.data)
        return await self.tx.logged(*place)

    def add(self, decision: Decision) -> None:
        """A decision on a task that is new in this transaction."""
        self._tasks[decision.task.id] = decision.task
        self._queue_changed = True
        self._note(decision)

    def run(self, task_id: int, command: Command) -> Task:
        """Decides one command with its follow-ups and keeps what it changes.  Raises where it is refused."""
        task, attempt = self._tasks.get(task_id), self._attempts.get(task_id)
        if isinstance(command, AttemptCommand):
            self._check(task, attempt, command)
        if task is None:
            raise _unknown(task_id)
        decision = decide(task, Facts(attempt, self.chance.fraction(), self.retry), command, self.now)
        after = decision.task
        if after is not task:
            self._tasks[task_id] = after
            self._changed.add(task_id)
            if TaskStatus.PENDING in (task.status, after.status):
                self._queue_changed = True
        if decision.attempt is not None:
            self._keep_attempt(attempt, decision.attempt, command)
        self._note(decision)
        if not decision.follow_ups:
            return after
        for follow_up in decision.follow_ups:
            if isinstance(follow_up, CloseGroup):
                self._closing.append(
                    task_id
                )  # what stands below it is known once all of the command is written
            else:
                self.run(task_id, follow_up)
        return self._tasks[task_id]

    async def settled(self, task: Task) -> Task:
        """As it is once what follows from its move is done as well."""
        if task.all_below_done:
            await self.settle()
        return self._tasks[task.id]

    def _keep_attempt(self, known: Attempt | None, attempt: Attempt, command: Command) -> None:
        task_id = attempt.task_id
        self._attempts[task_id] = attempt
        if known is None or known.epoch != attempt.epoch:
            self._opened.add(task_id)
            return
        self._changed_attempts.add(task_id)
        if not known.open:
            return
        ended = not attempt.open
        if ended:
            self.freed_place = True
            self.freed_files = self.freed_files or bool(self._tasks[task_id].touches or attempt.live_diff)
            if attempt.status is AttemptStatus.RELEASED and attempt.error_kind in CLOSING:
                self.refused.append((attempt, getattr(command, "retry_after_s", None)))
        told = attempt.stop_action is not known.stop_action or attempt.notice != known.notice
        if told or (ended and not isinstance(command, Finish)):
            self.disturbed.add(attempt.worker_id)

    def _note(self, decision: Decision) -> None:
        writes, task = self._writes, decision.task
        if decision.events:
            writes.events.extend(decision.events)
            self.wrote_events = True
            if task.status is TaskStatus.PENDING and task.ready:
                self.became_ready = True
            before = decision.events[-1].previous_status
            if task.status is not before and before is not None and task.status not in HELD:
                self._note_end(task)
                if task.status in MAY_BEGIN and task.plan_id is not None:
                    self.back.append(task)
        if decision.unblocks:
            self._completed.append(task.id)
        if decision.result is not None or decision.summary:
            writes.results.append((task.id, decision.result, decision.summary))
        if decision.checkpoint is not None:
            writes.checkpoints.append(decision.checkpoint)
        if decision.artifact is not None:
            writes.artifacts.append(decision.artifact)
        if decision.edit is not None:
            writes.edits.append(decision.edit)
        if decision.log is not None:
            writes.logs.append(decision.log)
            self.wrote_events = True

    def _note_end(self, task: Task) -> None:
        completed = task.status is TaskStatus.COMPLETED
        if not completed and task.dead and task.status is not TaskStatus.ARCHIVED:
            self._failed.append((task.id, None))
        if task.plan_id is None or task.is_group:
            return
        if completed or (task.status is TaskStatus.FAILED and task.error_kind is not ErrorKind.EXPIRED):
            self.ended.setdefault(task.plan_id, []).append(completed)

    def record(self, event: Event) -> None:
        """An event whose subject is no task."""
        self._writes.events.append(event)
        self.wrote_events = True

    async def tell(self, telling: Telling) -> None:
        """Webhooks, of what has no event of a task or a plan."""
        if self.outbox is not None:
            await self.outbox.tell(self.tx, [telling], self.now)

    async def settle(self) -> None:
        """Passes on what has ended to its children (S8): done takes one unmet dependency off each, failed and
        cancelled does what the child wants."""
        if (self._completed or self._failed) and self._writes.new_tasks:
            # Their edges to these parents must stand in the store, or nobody ever takes them off.
            await self.flush()
        while self._closing or self._completed or self._failed:
            if self._closing:
                await self._close_groups()
            if self._completed:
                await self._unblock()
            if self._failed:
                await self._cascade()

    async def _close_groups(self) -> None:
        await self.flush()
        closing, self._closing = dict.fromkeys(self._closing), []
        for task_id in closing:
            if not self.task(task_id).all_below_done:
                continue  # closed already, or a neighbour in this batch has moved it on
            kept = await self.tx.kept_task(task_id)
            if kept is not None and not waits_for_first(kept, of_file=kept.from_file):
                self.run(task_id, CloseGroup(task_id=task_id))

    async def _unblock(self) -> None:
        parents, self._completed = self._completed, []
        early: dict[int, list[int]] = {}
        ended = frozenset(parents)
        for number in sorted(one for one in ended if self.task(one).unmet):
            early[number] = await self._undone_before(number, ended, early)
        for parent_id, before in early.items():
            await self._pass_on(parent_id, before)
        if children := await self.tx.settle_dependencies(parents):
            await self._take_off(children)

    async def _pass_on(self, parent_id: int, before: list[int]) -> None:
        """A person has done it, or left it out, before its turn: in a plan with an order what follows it still
        waits for all before it."""
        children = await self.tx.settle_dependencies([parent_id])
        await self.load([child_id for child_id, _ in children])
        keys = {text.task_id: text.key for text in await self.tx.job_texts([i for i, _ in children])}
        for child_id, _ in children if before else ():
            child = self.task(child_id)
            known = {parent for parent, _ in await self.tx.dependencies([child_id])}
            fresh = tuple(number for number in before if number not in known)
            group = child.is_group and not is_barrier(keys[child_id])
            if fresh and not group and child.status in {TaskStatus.PENDING, TaskStatus.PAUSED}:
                wait = Depend(task_id=child_id, actor=COORDINATOR, depends_on=fresh, unmet=len(fresh))
                self.run(child_id, wait)
                for number in fresh:
                    await self.tx.add_dependency(number, child_id, met=False)
        await self._take_off(children)

    async def _undone_before(
        self, task_id: int, ended: Collection[int], early: Mapping[int, list[int]]
    ) -> list[int]:
        """What is still to be done before it; nothing in a plan without an order.

        What was done before its turn has passed that on to what waits for it, but for what has `ended` now;
        `early` has it of some of these.
        """
        plan = await self.tx.plan(self.task(task_id).plan_id or 0)
        if plan is None or plan.task_order not in {FILE_ORDER, PHASES}:
            return []
        found: dict[int, None] = {}
        todo, seen = [task_id], {task_id}
        while todo:
            parents = [parent for parent, _ in await self.tx.dependencies(todo) if parent not in seen]
            seen.update(parents)
            await self.load(parents)
            found |= dict.fromkeys(parent for parent in parents if not self.task(parent).done)
            now = [parent for parent in parents if parent in ended and self.task(parent).unmet]
            found |= dict.fromkeys(one for parent in now for one in early.get(parent, ()))
            todo = [parent for parent in now if parent not in early]
        return list(found)

    async def _take_off(self, children: list[tuple[int, int]]) -> None:
        await self.load([child_id for child_id, _ in children])
        for child_id, count in children:
            self.run(child_id, Unblock(task_id=child_id, count=count))

    async def _cascade(self) -> None:
        failed, self._failed = self._failed, []
        await self.load([parent_id for parent_id, _ in failed])
        for parent_id, only in failed:
            if not self.task(parent_id).dead:
                continue  # a neighbour in this batch has opened it anew
            children = await self.tx.yielding_children(parent_id) if only is None else [only]
            await self.load(children)
            name = await self._name(parent_id) if children else ""
            for child_id in children:
                child = self.task(child_id)
                if child.on_failed is FailedDependency.RUN:
                    if await self.tx.settle_dependency(parent_id, child_id):
                        await self._take_off([(child_id, 1)])
                elif child.status in {TaskStatus.PENDING, TaskStatus.PAUSED}:
                    reason = f"{name} ended as {self.task(parent_id).status}"
                    self.run(child_id, Skip(task_id=child_id, actor=COORDINATOR, reason=reason))

    async def _name(self, task_id: int) -> str:
        """As people know it: `plan/key (title)`."""
        for text in await self.tx.job_texts([task_id]):
            title = text.title if len(text.title) <= TITLE_SHOWN else f"{text.title[:TITLE_SHOWN]}..."
            return f"{task_name(text.plan, text.key)} ({title})"
        return f"task {task_id}"

    def note_failed(self, parent_id: int, child_id: int) -> None:
        """A new edge leads to what has failed already.  Other children are left as people have left them."""
        self._failed.append((parent_id, child_id))

    def insert(self, new: NewTask, task: Task) -> None:
        self._writes.new_tasks.append((new, task))

    async def flush_queue(self) -> None:
        """Writes what a claim would miss otherwise; all else is written with what the claim changes."""
        if self._queue_changed or self.outbox is not None:
            await self.flush()

    async def flush(self) -> None:
        """Writes everything that changed; the view stays usable for more commands."""
        writes, tasks, attempts = self._writes, self._tasks, self._attempts
        if self._changed:
            writes.tasks = [tasks[i] for i in self._changed]
        if self._opened:
            writes.opened = [attempts[i] for i in self._opened]
        if self._changed_attempts:
            writes.attempts = [attempts[i] for i in self._changed_attempts - self._opened]
        if not writes:
            return
        await self.tx.write(writes, self.now)
        if self.outbox is not None:
            await self.outbox.take(self.tx, writes.events, tasks, self.now)
        self._writes = Writes.nothing()
        self._queue_changed = False
        self._changed.clear()
        self._opened.clear()
        self._changed_attempts.clear()


def _unknown(task_id: int) -> NotFound:
    return NotFound(f"there is no task {task_id}", "muster task list")


def moved(task: Task) -> Moved:
    return Moved(task_id=task.id, status=task.status, epoch=task.epoch, generation=task.generation)
