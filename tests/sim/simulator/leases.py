"""When each attempt was heard last, and what that allows (S15, L1), without a look at the store's leases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from muster.model import commands as c
from muster.model.answers import AttemptOrder, Claimed, HeartbeatAnswer, Held, Moved, Taken
from muster.model.task import Now
from simulator.hosts import Process, SimHost
from simulator.reference import Reference, TaskModel
from simulator.silence import BrakeWatch, Silence
from simulator.world import Broken, World

FREED_MS = 1_000
"""L1: from the end of a lease, or a death that can be seen, until the task is free."""
SLACK_MS, SLACK_COMMITS = 150, 30
"""One sweep may take this long, and so many commits of a slow disk."""
REFUSALS_APART_MS = 1_000
"""A store that is full refuses somebody at least so often."""
NOTICED_STALL_MS = 3_000
"""An owner that stood still for longer has to give everybody a fresh lease."""

Key = tuple[int, int]


@dataclass(frozen=True)
class Hearing:
    mono_ms: int
    boot_id: str
    lease_ms: int


LOOK_APART_MS = 1_000
"""Between two looks at an owner that was well all the time."""
UNHEARD_LEASES = 3
"""So many lease times of an owner that is well, in pieces, may somebody hold a task without a word of its own."""


class Leases:
    def __init__(self, world: World, reference: Reference) -> None:
        self._world = world
        self._reference = reference
        self._host: SimHost = world.hosts[0]
        self._freed_ms = FREED_MS + SLACK_MS + int(SLACK_COMMITS * world.scenario.disk_s * 1000)
        self._lease_ms = int(world.scenario.policy.lease_s * 1000)
        self._by_hand_ms = int(world.scenario.policy.claim_lease_s * 1000)
        self._heard: dict[Key, Hearing] = {}
        self._well_ms: dict[Key, int] = {}
        """How long the owner was well since the last word of each, whatever leases others gave it."""
        self._lingers: dict[Key, tuple[str, int]] = {}
        """Since when it was seen that it does."""
        self._looked_ms = 0
        self._brake = BrakeWatch(self._lease_ms)
        self.refused_ms: tuple[int, int] = (0, 0)
        """From when to when the store has refused writes last."""
        self.owner: Process | None = None
        self.led_since_ms = 0
        """Monotonic time of the owner's machine."""
        self._boot_id = ""
        self.died_s: Callable[[str], float | None] = lambda _: None
        """When the process of a worker ended on the owner's machine; None while it lives, or is elsewhere."""

        self.elsewhere: Callable[[str], bool] = lambda _: False
        """Whether it is a worker of another machine: a restart of the owner's one does not end it."""

    def owner_leads(self, owner: Process, now: Now) -> None:
        if now.boot_id != self._boot_id:
            self.refused_ms = (0, 0)  # told by the clock of an earlier boot
        self.owner, self.led_since_ms, self._boot_id = owner, now.mono_ms, now.boot_id
        self._brake = BrakeWatch(self._lease_ms)

    def heard(self, key: Key, now: Now, lease_ms: int | None = None, *, by_itself: bool = True) -> None:
        if by_itself:
            self._well_ms.pop(key, None)
        known = self._heard.get(key)
        before_ms = known.lease_ms if known else self._lease_ms
        self._heard[key] = Hearing(now.mono_ms, now.boot_id, lease_ms or before_ms)

    def store_refused(self, now: Now) -> None:
        from_ms, to_ms = self.refused_ms
        goes_on = now.mono_ms - to_ms < REFUSALS_APART_MS
        self.refused_ms = (from_ms if goes_on else now.mono_ms, now.mono_ms)

    def held_by_hand(self, answer: Taken | Held, now: Now) -> None:
        """Whoever holds a task by hand is told how long it is trusted."""
        task_id, epoch = (
            (answer.job.task_id, answer.job.epoch)
            if isinstance(answer, Taken)
            else (answer.task_id, answer.epoch)
        )
        self.heard((task_id, epoch), now, answer.lease_ends_at_ms - now.wall_ms)

    def taken(self, command: c.Command, answer: object, now: Now) -> None:
        """An accepted command, in the order of its batch."""
        if isinstance(command, c.Reap) and isinstance(answer, Moved):
            self._check_reap(command, now)
            hearing = self._heard[command.task_id, command.epoch]
            lasts = hearing.boot_id == now.boot_id and now.mono_ms < hearing.mono_ms + hearing.lease_ms
            early = lasts and not command.tree_killed
            unheard = self._was_unheard((command.task_id, command.epoch), hearing)
            task = self._reference.tasks[command.task_id]
            task.reaped_early = early and not unheard
            task.may_linger = command.epoch if early and unheard else None
        elif isinstance(command, c.Start):
            self.heard((command.task_id, command.epoch), now)
        elif isinstance(command, c.NewBoot | c.FreshLeases):
            for task in self._open():
                if self._heard[task.id, task.epoch].boot_id == now.boot_id or self.elsewhere(task.holder):
                    lease_ms = self._by_hand_ms if task.by_hand else None
                    self.heard((task.id, task.epoch), now, lease_ms, by_itself=False)
        elif isinstance(answer, HeartbeatAnswer):
            assert isinstance(command, c.Heartbeat)
            for order in answer.attempts:
                if order.current:
                    self._check_renewed(command.worker_id, order)
                    self.heard((order.task_id, order.epoch), now)
        elif isinstance(answer, Claimed):
            for job in answer.jobs:
                if (job.task_id, job.epoch) not in self._heard:
                    self.heard((job.task_id, job.epoch), now)

    def _check_renewed(self, worker_id: str, order: AttemptOrder) -> None:
        task = self._reference.tasks[order.task_id]
        back = task.lost_epoch == order.epoch  # the event that it was readopted follows
        if task.holder != worker_id or (task.open_epoch != order.epoch and not back):
            says = (
                f"{worker_id} was told to go on with attempt {order.epoch} of task {task.id}, which is over"
            )
            raise Broken("S3", says, task.id)

    def _open(self) -> list[TaskModel]:
        return [task for task in self._reference.tasks.values() if task.open_epoch is not None]

    def _check_reap(self, command: c.Reap, now: Now) -> None:
        key = (command.task_id, command.epoch)
        task, hearing = self._reference.tasks[command.task_id], self._heard[key]
        if hearing.boot_id != now.boot_id:
            return
        if command.proven:
            self._check_proof(task, now, hearing)
            return
        if task.stop_by_mono_ms is not None and now.mono_ms >= task.stop_by_mono_ms:
            return
        over_ms = hearing.mono_ms + hearing.lease_ms
        stood_from_ms, stood_to_ms = self.owner.stood_ms if self.owner else (0, 0)
        if stood_to_ms - stood_from_ms > NOTICED_STALL_MS and over_ms > stood_from_ms:
            over_ms = max(over_ms, stood_to_ms + hearing.lease_ms)
        refused_from_ms, refused_to_ms = self.refused_ms
        if refused_from_ms < over_ms and hearing.mono_ms < refused_to_ms:
            over_ms = max(over_ms, refused_to_ms + hearing.lease_ms)
        silent_ms = now.mono_ms - hearing.mono_ms
        if now.mono_ms < over_ms and not self._was_unheard(key, hearing):
            raise Broken(
                "S15", f"task {task.id}#{command.epoch} was reaped {silent_ms} ms after it was heard", task.id
            )
        self._world.seen["a silent attempt was reaped"] += 1
        if not task.by_hand:
            seen = self._look_at_silence(now)
            if self._brake.is_on(now.mono_ms):
                says = (
                    f"{seen.silent} of {seen.held} agents fell silent at once, and task {task.id} was reaped"
                )
                raise Broken("S15", says, task.id)
            self._brake.given_up(now.mono_ms)

    def _was_unheard(self, key: Key, hearing: Hearing) -> bool:
        """For a whole lease of an owner that was well, in pieces: it needs no fresh one for the end of each."""
        return self._well_ms.get(key, 0) >= hearing.lease_ms

    def _look_at_silence(self, now: Now) -> Silence:
        agents = [task for task in self._open() if not task.by_hand]
        silent = [task for task in agents if self._is_silent(task, now)]
        over = any(self._is_over(task, now) for task in silent)
        seen = self._brake.look(len(agents), len(silent), now.mono_ms, over=over)
        if seen.surely:
            self._world.seen["most agents were silent at once"] += 1
        return seen

    def _is_over(self, task: TaskModel, now: Now) -> bool:
        hearing = self._heard[task.id, task.epoch]
        return now.mono_ms >= hearing.mono_ms + hearing.lease_ms

    def _is_silent(self, task: TaskModel, now: Now) -> bool:
        hearing = self._heard[task.id, task.epoch]
        late = hearing.boot_id == now.boot_id and now.mono_ms >= hearing.mono_ms + hearing.lease_ms // 2
        return late and self.died_s(task.holder) is None

    def _check_proof(self, task: TaskModel, now: Now, hearing: Hearing) -> None:
        worker = task.holder
        silent = now.mono_ms - hearing.mono_ms >= hearing.lease_ms
        if self.died_s(worker) is None and not silent:
            raise Broken(
                "S15", f"{worker} lives, task {task.id} was reaped as if it were proven dead", task.id
            )
        self._world.seen["a dead worker's attempt was reaped"] += 1

    def _check_lingering(self, now: Now, well_since_ms: int) -> None:
        for task in self._reference.tasks.values():
            if task.lingering is None:
                continue
            key = (task.id, task.lingering)
            hearing = self._heard[key]
            since_ms = (
                max(hearing.mono_ms, well_since_ms) if hearing.boot_id == now.boot_id else well_since_ms
            )
            # A brake may have kept it until somebody ended it.
            boot_id, from_ms = self._lingers.setdefault(key, (now.boot_id, now.mono_ms))
            over_ms = max(since_ms + hearing.lease_ms, from_ms if boot_id == now.boot_id else 0)
            if now.mono_ms - over_ms > self._freed_ms:
                says = f"task {task.id} still waits for the end of attempt {task.lingering}"
                raise Broken("L1", says, task.id)

    def _check_unheard(self, now: Now, well_since_ms: int) -> None:
        """L1 where the owner is well in pieces only: it could hear who lives, and hears the others."""
        passed_ms, self._looked_ms = now.mono_ms - self._looked_ms, now.mono_ms
        if not 0 < passed_ms < LOOK_APART_MS or now.mono_ms - well_since_ms < passed_ms:
            return
        held = [task for task in self._open() if not task.by_hand]
        for task in held:
            key = (task.id, task.epoch)
            self._well_ms[key] = self._well_ms.get(key, 0) + passed_ms
            if self._well_ms[key] <= UNHEARD_LEASES * self._lease_ms + self._freed_ms:
                continue
            workers = {one.holder: self._well_ms.get((one.id, one.epoch), 0) for one in held}
            others = [ms < self._lease_ms for holder, ms in workers.items() if holder != task.holder]
            if 2 * sum(others) > len(others) and task.stop_by_mono_ms is None:
                says = f"task {task.id} is held, and its holder was not heard for {self._well_ms[key]} ms"
                raise Broken("L1", f"{says} in which others were", task.id)

    def check_bounds(self, now: Now) -> None:
        """L1, upper half: nobody who is silent or dead holds a task for longer.  Call while the owner is well."""
        well_since_ms = max(
            self.led_since_ms, self.owner.stood_ms[1] if self.owner else 0, self.refused_ms[1]
        )
        self._check_unheard(now, well_since_ms)
        self._check_lingering(now, well_since_ms)
        self._look_at_silence(now)
        for task in self._open():
            hearing = self._heard[task.id, task.epoch]
            if hearing.boot_id != now.boot_id:
                if now.mono_ms - well_since_ms > self._freed_ms:
                    raise Broken("L1", f"task {task.id} is still held by an attempt of another boot", task.id)
                continue
            since_ms = max(hearing.mono_ms, well_since_ms)
            if now.mono_ms - since_ms > hearing.lease_ms + self._freed_ms + self._brake.longer_ms:
                raise Broken(
                    "L1", f"task {task.id} is held {now.mono_ms - since_ms} ms after a word", task.id
                )
            died_s = self.died_s(task.holder)
            if died_s is None:
                continue
            died_ms = now.mono_ms - int((self._world.time_s - died_s) * 1000)
            waits_ms = now.mono_ms - max(died_ms, well_since_ms)
            if waits_ms > self._freed_ms:
                raise Broken("L1", f"task {task.id} is held {waits_ms} ms after its worker's death", task.id)
