"""Frees what dead or silent workers hold.

Its brake waits where most agents fall silent at once: it is seldom they who are gone then (S15).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from muster.engine.service import PAGE_ROWS, LeaderService
from muster.model.commands import FreshLeases, MarkWorkerDead, ProcessesExited, Reap
from muster.model.errors import Conflict, TermOver
from muster.model.marks import attempt_mark, worker_mark
from muster.model.moves.decision import lapsed
from muster.model.rows import WorkerRow
from muster.model.states import AttemptStatus
from muster.model.task import Attempt, Now
from muster.ports.engine import ExecuteForAll
from muster.ports.host import Host, ProcessId
from muster.ports.runtime import Clock
from muster.ports.store import Reads

AGENTS_MIN = 10
SHARE = 0.55
"""Of the leases, that run out within one lease time without a proof of death."""
LATE = 0.5
"""Whoever lives is heard every third of its lease.  Those who are silent for this part of it count when the first
lease runs out: all who were cut off at one moment do, whatever the moments of their last words."""


class Brake:
    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._given_up_ms: list[int] = []
        self._until_ms: int | None = None
        """Waited for once, until nobody's lease is over any more.  Somebody is always late in a large crew."""

    def given_up(self, at_ms: int) -> None:
        """An attempt was reaped for its silence alone."""
        self._given_up_ms.append(at_ms)

    def holds(self, held: int, silent: Sequence[Attempt], now_ms: int) -> bool:
        """Whether those of `held` attempts that are late are to be waited for, once the first lease is over."""
        self._given_up_ms = [at_ms for at_ms in self._given_up_ms if now_ms - at_ms < self._lease_ms]
        lapsing, agents = len(silent) + len(self._given_up_ms), held + len(self._given_up_ms)
        over = any(now_ms >= attempt.lease_until_ms for attempt in silent)
        if not over and not self._given_up_ms:
            self._until_ms = None
        elif self._until_ms is None and over and agents >= AGENTS_MIN and lapsing > SHARE * agents:
            wait_ms = max((attempt.lease_ms for attempt in silent), default=0)
            self._until_ms = now_ms + wait_ms
            log.warning(
                "%d of %d agents fell silent within one lease: the cause may be here; they get %d s more",
                lapsing,
                agents,
                wait_ms // 1000,
            )
        return self._until_ms is not None and now_ms < self._until_ms


log = logging.getLogger(__name__)

OWN_STALL_MS_MAX = 2_000


def own_stall_ms(lease_s: float) -> int:
    """A tick that comes this much later than planned shows that the owner itself stood still."""
    return min(OWN_STALL_MS_MAX, int(lease_s * 1000 / 3))


async def at_once(work: Callable[[], object]) -> None:
    work()


async def not_known(attempt: Attempt) -> bool:  # noqa: ARG001
    return False


class Reaper(LeaderService):
    """`sweep` kills the recorded processes of workers that are gone: those that shed their mark.

    `aside` runs what looks through all processes of the host: with `asyncio.to_thread` callers are answered
    meanwhile.

    `led_since_ms` is when the term was taken: a slow start after that is a stall like any other.  `absences`
    counts how often the store was away, which is nobody's silence either.  `was_published` ends an attempt whose
    worker died after it had moved its plan's branch, and says so.

    A worker is dead by proof (its process is gone) or by silence (its lease is over; on another host
    `remote_lease_s`, where that is longer).

    Its processes on this host are killed before its tasks are freed: two agents must never work on one task.
    """

    name = "reaper"

    def __init__(
        self,
        clock: Clock,
        reads: Reads,
        engine: ExecuteForAll,
        host: Host,
        *,
        sweep: Callable[[], int],
        term: int,
        lease_s: float,
        interval_s: float,
        remote_lease_s: float = 0.0,
        led_since_ms: int | None = None,
        detached_call: Callable[[Callable[[], object]], Awaitable[object]] = at_once,
        absences: Callable[[], int] = lambda: 0,
        was_published: Callable[[Attempt], Awaitable[bool]] = not_known,
    ) -> None:
        super().__init__(clock, reads, engine, term)
        self._host = host
        self._sweep = sweep
        self._aside = detached_call
        self._was_published = was_published
        self._stall_ms = interval_s * 1000 + own_stall_ms(lease_s)
        self._absences = absences
        self._absences_seen = absences()
        self._lease_ms = int(lease_s * 1000)
        self._remote_lease_ms = max(self._lease_ms, int(remote_lease_s * 1000))
        self._brake = Brake(self._lease_ms)
        self._braked, self._braked_at_ms = False, 0
        self.interval_s = interval_s
        self._ticked_ms = led_since_ms
        self._ahead_ms: tuple[int, int] | None = None
        """How far the clock of leases was ahead of this process's at the last look: at least, at most."""
        self._set_ms = own_stall_ms(lease_s)
        self._first_ms: int | None = None
        self._unwell = False
        """The last tick did not come to its end: the store may have been away for everybody."""
        self._well_ms: int | None = None
        """When the last one began that did, by the clock of leases."""

        self._busy = asyncio.Lock()
        self.buried = 0
        self.reaped = 0
        self.looked_at_ms: int | None = None
        """Wall time of the last look that came to its end."""

    async def run_once(self) -> None:
        async with self._busy:  # a person may ask for a look while the loop has one
            await self._look()

    async def _look(self) -> None:
        here = self.clock.now()
        absences = self._absences()
        if self._unwell or self._stalled(here) or absences != self._absences_seen:
            # Nobody was silent but us: whoever called meanwhile could not be heard (S15).
            self._unwell = True
            self._absences_seen = absences
            await self._engine.execute(FreshLeases(term=self._term, heard_until_ms=self._well_ms))
        self._ticked_ms, self._unwell = here.mono_ms, True
        now = await self._reads.now(here)
        if set_ms := self._set_by_ms(now, here):
            log.warning("the store's clock was set by %.1f s: all leases begin anew", set_ms / 1000)
            self._brake, self._well_ms = Brake(self._lease_ms), None
            await self._engine.execute(FreshLeases(term=self._term))
            now = await self._reads.now(here)
        self._first_ms = now.mono_ms if self._first_ms is None else self._first_ms
        await self._tick(now)
        self._unwell, self.looked_at_ms = False, now.wall_ms
        if self._absences() == self._absences_seen:
            self._well_ms = now.mono_ms

    async def _tick(self, now: Now) -> None:
        workers = {worker.id: worker for worker in await self._reads.living_workers()}
        gone = {w.id: self._proof(w, now) for w in workers.values()}
        # Descendants die before anything is freed, in one scan of the host's processes.
        dead_marks = [worker_mark(worker_id) for worker_id, proof in gone.items() if proof]
        if dead_marks:
            await self._kill(dead_marks)
            await self._aside(self._sweep)
        await self._look_at_silence(workers, gone)
        trusted: set[str] = set()
        async for page in self._pages():
            newcomers = await self._newcomers(page, workers)
            for attempt in page:
                if attempt.by_hand:
                    await self._consider_by_hand(attempt, now)
                    continue
                if attempt.worker_id in newcomers:
                    continue
                worker = workers.get(attempt.worker_id)
                if self.clock.now().mono_ms - self._braked_at_ms >= self.interval_s * 1000:
                    await self._look_at_silence(workers, gone)  # others have fallen silent while we wrote
                if not await self._consider(attempt, worker, gone, now):
                    trusted.add(attempt.worker_id)
        await self._free_lingering(workers, gone, now)
        for worker in workers.values():
            # While it holds an attempt whose lease is not over, nobody may take it for dead (L1).
            if worker.id not in trusted and (gone[worker.id] or not self._braked):
                await self._bury(worker, gone[worker.id], now)

    async def _pages(self) -> AsyncIterator[Sequence[Attempt]]:
        after = (0, 0)
        while page := await self._reads.open_attempts(after, PAGE_ROWS):
            yield page
            if len(page) < PAGE_ROWS:
                return
            after = (page[-1].task_id, page[-1].epoch)

    async def _look_at_silence(
        self, workers: Mapping[str, WorkerRow], gone: Mapping[str, str | None]
    ) -> None:
        """Counts the attempts of agents, and those that are late without another sign of their end."""
        here, held, silent = self.clock.now(), 0, list[Attempt]()
        now = await self._reads.now(here)
        async for page in self._pages():
            agents = [attempt for attempt in page if not attempt.by_hand]
            held += len(agents)
            silent += [
                attempt
                for attempt in agents
                if attempt.worker_id in workers
                and not gone[attempt.worker_id]
                and self._is_late(attempt, now)
            ]
        self._braked, self._braked_at_ms = self._brake.holds(held, silent, now.mono_ms), here.mono_ms

    @staticmethod
    def _is_late(attempt: Attempt, now: Now) -> bool:
        heard_ms = attempt.lease_until_ms - attempt.lease_ms
        return attempt.boot_id == now.boot_id and now.mono_ms - heard_ms >= LATE * attempt.lease_ms

    @staticmethod
    def _ran_out(attempt: Attempt, now: Now) -> bool:
        return attempt.boot_id == now.boot_id and now.mono_ms >= attempt.lease_until_ms

    async def _kill(self, marks: Sequence[str]) -> None:
        await self._aside(lambda: self._host.kill_marked(marks))

    async def _free_lingering(
        self, workers: Mapping[str, WorkerRow], gone: Mapping[str, str | None], now: Now
    ) -> None:
        """Attempts that a cancel or a question has ended, and whose worker has not said that they are gone."""
        for attempt in await self._reads.lingering(PAGE_ROWS):
            worker = workers.get(attempt.worker_id) or await self._reads.worker(attempt.worker_id)
            here = worker is None or worker.hostname == self._host.hostname
            known_gone = here and (worker is None or worker.ended_at_ms is not None)
            if not (known_gone or gone.get(attempt.worker_id) or self._over(attempt, now, here=here)):
                continue
            await self._kill([attempt_mark(attempt.worker_id, attempt.task_id, attempt.epoch)])
            await self._engine.execute(
                ProcessesExited(task_id=attempt.task_id, epoch=attempt.epoch, term=self._term)
            )

    def _over(self, attempt: Attempt, now: Now, *, here: bool) -> bool:
        """A restart of this host says nothing of processes on another one: they may use up their lease."""
        if here or attempt.boot_id == now.boot_id:
            return lapsed(attempt, now)
        return self._first_ms is not None and now.mono_ms - self._first_ms >= attempt.lease_ms

    def _stalled(self, here: Now) -> bool:
        last_ms = self._ticked_ms
        return last_ms is not None and here.mono_ms - last_ms > self._stall_ms

    def _set_by_ms(self, now: Now, here: Now) -> int:
        """By how much the clock of leases was set since the last look; 0: by no more than the answer may have
        taken on its way, or little more."""
        last = self._ahead_ms
        self._ahead_ms = ahead = (now.mono_ms - self.clock.now().mono_ms, now.mono_ms - here.mono_ms)
        if last is None:
            return 0
        set_ms = max(ahead[0] - last[1], 0) or min(ahead[1] - last[0], 0)
        return set_ms if abs(set_ms) > self._set_ms else 0

    async def _newcomers(self, page: Sequence[Attempt], known: Mapping[str, WorkerRow]) -> set[str]:
        """Workers that have registered and claimed since we looked: not there is not the same as ended."""
        if all(attempt.worker_id in known or attempt.by_hand for attempt in page):
            return set()
        return {worker.id for worker in await self._reads.living_workers()} - known.keys()

    def _proof(self, worker: WorkerRow, now: Now) -> str | None:
        """Why the worker is dead for sure, or None."""
        if worker.hostname != self._host.hostname:
            return None
        if worker.boot_id != now.boot_id:
            return "the machine was restarted"
        if not self._host.alive(ProcessId(worker.pid, worker.pid_start)):
            return f"the process of {worker.id} is gone"
        return None

    async def _consider(
        self, attempt: Attempt, worker: WorkerRow | None, gone: dict[str, str | None], now: Now
    ) -> bool:
        """False where the attempt keeps its lease."""
        if worker is None:
            worker = await self._reads.worker(attempt.worker_id)
        ended = worker is None or worker.ended_at_ms is not None
        proof = f"{attempt.worker_id} has ended" if ended else gone.get(attempt.worker_id)
        if proof is None and (not lapsed(attempt, now) or (self._braked and self._ran_out(attempt, now))):
            return False
        if proof is None or ended:
            fresh = await self._reads.attempt(attempt.task_id, attempt.epoch)
            if fresh is None or not fresh.open:
                return True  # ended while we wrote what came before it in this page
            if proof is None and (not lapsed(fresh, now) or self._absences() != self._absences_seen):
                return False  # heard again meanwhile, or nobody could be: its processes live on
            # A worker that was buried for its silence may have left its agent at work.
            await self._kill([attempt_mark(attempt.worker_id, attempt.task_id, attempt.epoch)])
        reason = proof or self._silence(attempt, now)
        # On another host nobody could kill its processes: if it was only cut off, it may come back.
        here = worker is None or worker.hostname == self._host.hostname
        await self._reap(attempt, reason, proven=proof is not None, here=here)
        if proof is None and self._ran_out(attempt, now):
            self._brake.given_up(now.mono_ms)
        return True

    async def _consider_by_hand(self, attempt: Attempt, now: Now) -> None:
        """Where nobody knows the holder's process only its lease counts, and so it may come back."""
        pid, _, start = attempt.holder.partition(":")
        rebooted = attempt.boot_id != now.boot_id
        if pid and (rebooted or not self._host.alive(ProcessId(int(pid), int(start)))):
            # The CLI that it had opened may have outlived it.
            await self._kill([attempt_mark(attempt.worker_id, attempt.task_id, attempt.epoch)])
            await self._reap(attempt, f"the process of {attempt.worker_id} is gone", proven=True, here=True)
        elif lapsed(attempt, now):
            await self._reap(attempt, self._silence(attempt, now), proven=False, here=False)

    def _silence(self, attempt: Attempt, now: Now) -> str:
        if attempt.status is AttemptStatus.STOPPING and now.mono_ms < attempt.lease_until_ms:
            return "it did not stop in time"
        return f"nothing was heard of {attempt.worker_id} for {attempt.lease_ms // 1000} s"

    async def _reap(self, attempt: Attempt, reason: str, *, proven: bool, here: bool) -> None:
        reap = Reap(
            task_id=attempt.task_id,
            epoch=attempt.epoch,
            term=self._term,
            reason=reason,
            proven=proven,
            tree_killed=here,
        )
        try:
            if attempt.intent and await self._was_published(attempt):
                return
            await self._engine.execute(reap)
            self.reaped += 1
        except TermOver:
            raise
        except Conflict as error:
            # Heard again, or ended by its own word, between our look and our write: nothing is to be done.
            log.debug("attempt %s#%s keeps its lease: %s", attempt.task_id, attempt.epoch, error)

    def silence_of(self, worker: WorkerRow, now: Now) -> str | None:
        if worker.boot_id != now.boot_id:
            return "nothing was heard of it since this machine was restarted"
        silent_ms = now.mono_ms - worker.heard_mono_ms
        far = worker.hostname != self._host.hostname and not worker.by_itself
        lease_ms = max(self._remote_lease_ms if far else self._lease_ms, worker.lease_ms)
        return f"nothing was heard of it for {silent_ms // 1000} s" if silent_ms >= lease_ms else None

    async def _bury(self, worker: WorkerRow, proof: str | None, now: Now) -> None:
        reason = proof or self.silence_of(worker, now)
        if reason is None or (proof is None and self._absences() != self._absences_seen):
            return
        log.warning("%s is dead: %s", worker.id, reason, extra={"worker": worker.id})
        self.buried += 1
        heard_ms = None if proof else worker.heard_mono_ms
        await self._engine.execute(
            MarkWorkerDead(
                worker_id=worker.id,
                term=self._term,
                reason=reason,
                heard_mono_ms=heard_ms,
                permanent=worker.hostname == self._host.hostname,
            )
        )
        if proof is None and worker.id not in {w.id for w in await self._reads.living_workers()}:
            # Attempts that were cancelled while it could not hear of that are not open, and still at work.
            await self._kill([worker_mark(worker.id)])
