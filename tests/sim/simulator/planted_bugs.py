"""Bugs put into the product on purpose, from outside: a simulator that does not find these finds no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from muster.engine import commands as engine_commands
from muster.engine import fence, workers
from muster.engine.audit import add_seal
from muster.engine.batch import Batcher
from muster.engine.claims import Claims
from muster.engine.enqueue import Enqueuer
from muster.engine.known import RememberedRequests
from muster.engine.policy import Policy
from muster.engine.services import reaper as reaper_module
from muster.engine.services.reaper import Brake, Reaper
from muster.engine.services.scheduler import Scheduler
from muster.engine.silence import Silence
from muster.engine.view import View
from muster.engine.workers import Workers
from muster.model import commands as c
from muster.model import machine
from muster.model.moves import decision, ending, publishing, waiting, working
from muster.model.moves.decision import Decision, Facts, moved
from muster.model.states import AttemptStatus, TaskStatus
from muster.model.task import Attempt, Now, Task
from muster.stores.sqlite import known_rows
from muster.stores.sqlite.tx import SqliteTx
from muster.stores.stored_tx import StoredTx
from simulator.hosts import SimHost
from simulator.owner import HostClock, OwnerCrash


class Plant:
    """`says` is what is wrong, `first` the seed from which on it is found soon."""

    def __init__(self, name: str, says: str, first: int, patch: Callable[[Planting], None]) -> None:
        self.name = name
        self.says = says
        self.first = first
        self._patch = patch

    @contextmanager
    def planted(self) -> Iterator[None]:
        planting = Planting()
        try:
            self._patch(planting)
            yield
        finally:
            planting.pull_out()


class Planting:
    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []

    def put(self, where: Any, name: Any, value: Any) -> None:
        """Sets an attribute, or a key of a dictionary, until it is pulled out."""
        if isinstance(where, dict):
            before = where[name]
            where[name] = value
            self._undo.append(lambda: where.__setitem__(name, before))
        else:
            before = where.__dict__[name]
            setattr(where, name, value)
            self._undo.append(lambda: setattr(where, name, before))

    def pull_out(self) -> None:
        for undo in reversed(self._undo):
            undo()


PLANTED_BUGS: dict[str, Plant] = {}


def plant(says: str, first: int = 20) -> Callable[[Callable[[Planting], None]], Callable[[Planting], None]]:
    def keep(patch: Callable[[Planting], None]) -> Callable[[Planting], None]:
        name = patch.__name__.strip("_").replace("_", "-")
        PLANTED_BUGS[name] = Plant(name, says, first, patch)
        return patch

    return keep


@plant("a write is accepted whatever its epoch, as long as some attempt is open", first=28)
def no_epoch_check(planting: Planting) -> None:
    def current(task: Task, facts: Facts, command: c.AttemptCommand) -> Attempt:
        if facts.attempt is None or not facts.attempt.open:
            return real(task, facts, command)
        return facts.attempt

    real = decision.current
    planting.put(working, "current", current)
    planting.put(ending, "current", current)


@plant("events are written by the next transaction, not with the state that they tell of")
def audit_outside_the_transaction(planting: Planting) -> None:
    async def write(self: SqliteTx, writes: Any, now: Now) -> None:
        late, writes.events = writes.events, pending[:]
        pending[:] = late
        await real(self, writes, now)

    real, pending = SqliteTx.write, list[Any]()
    planting.put(SqliteTx, "write", write)


@plant("the reaper's word is not checked against what was heard since it looked", first=77)
def reap_without_status_guard(planting: Planting) -> None:
    planting.put(ending, "lapsed", lambda _attempt, _now: True)


@plant("of several parents that end in one transaction, one is passed on to the children")
def lost_unblock(planting: Planting) -> None:
    async def settle(self: SqliteTx, parent_ids: Sequence[int]) -> list[tuple[int, int]]:
        found = await real(self, parent_ids)
        return [(child_id, 1) for child_id, _ in found][:2]

    real = SqliteTx.settle_dependencies
    planting.put(SqliteTx, "settle_dependencies", settle)


@plant("the backoff grows without its cap and wraps around", first=26)
def backoff_overflow(planting: Planting) -> None:
    def backoff_ms(count: int, policy: Any, jitter: float) -> int:
        ms = int(policy.first_s * 1000 * 2 ** (3 * count) * jitter)
        return (ms + (1 << 15)) % (1 << 16) - (1 << 15)

    planting.put(ending, "backoff_ms", backoff_ms)


@plant("a claim does not count what its worker holds, nor what a limit allows")
def slot_overfill(planting: Planting) -> None:
    async def no_limit(_view: View, _policy: Any) -> None:
        return None

    planting.put(Claims.claim.__globals__, "capacity", no_limit)


@plant("a repeated claim is taken for a new one")
def double_grant_on_repeated_claim(planting: Planting) -> None:
    async def claim(self: Claims, view: View, command: c.Claim) -> Any:
        count[0] += 1
        return await real(self, view, replace(command, request_id=f"{command.request_id}+{count[0]}"))

    real, count = Claims.claim, [0]
    planting.put(Claims, "claim", claim)


@plant("a result that comes after a cancel is still taken", first=100)
def complete_after_cancel(planting: Planting) -> None:
    def complete(task: Task, facts: Facts, command: c.Complete, now: Now) -> Decision:
        attempt = facts.attempt
        late = task.status is TaskStatus.CANCELLED and attempt is not None
        if not late or attempt is None or attempt.epoch != command.epoch:
            return real(task, facts, command, now)
        after, event = moved(task, now, "completed", "late", attempt.worker_id, status=TaskStatus.COMPLETED)
        return Decision(after, None, (event,), unblocks=True)

    real = ending.complete
    planting.put(machine._DECIDERS, c.Complete, complete)


@plant("an attempt resumes from the oldest checkpoint")
def checkpoint_of_an_old_epoch_wins(planting: Planting) -> None:
    before = known_rows.SQL["resumption"]
    text = before.replace("c.epoch DESC, c.number DESC", "c.epoch, c.number")
    if text == before:
        raise RuntimeError("the statement that chooses the checkpoint reads otherwise now")
    planting.put(known_rows.SQL, "resumption", text)


@plant("a cancelled task's attempt stays open, so a retry finds it")
def retry_keeps_stale_epoch(planting: Planting) -> None:
    def cancel(task: Task, facts: Facts, command: c.Cancel, now: Now) -> Decision:
        return replace(real(task, facts, command, now), attempt=None)

    real = waiting.cancel
    planting.put(machine._DECIDERS, c.Cancel, cancel)


@plant("a deposed coordinator's writes are accepted")
def term_not_checked(planting: Planting) -> None:
    async def check_term(_tx: Any, _term: int) -> None:
        return None

    for module in (engine_commands, workers):
        planting.put(module, "check_term", check_term)
    planting.put(add_seal.__globals__, "check_term", check_term)
    planting.put(fence, "check_term", check_term)


@plant("leases are kept on the wall clock", first=23)
def lease_from_the_wall_clock(planting: Planting) -> None:
    def now(self: HostClock) -> Now:
        present = real(self)
        return replace(present, mono_ms=present.wall_ms)

    real = HostClock.now
    planting.put(HostClock, "now", now)


@plant("a task that waits is given out before it is due")
def promote_before_due(planting: Planting) -> None:
    def promote(task: Task, facts: Facts, command: c.Promote, now: Now) -> Decision:
        return real(task, facts, replace(command, term=None), now)

    async def run_once(self: Scheduler) -> None:
        now = self.clock.now()
        due = await self._reads.due(now.wall_ms + 2_000, 10)
        await self._give(c.Promote(task_id=task_id, term=self._term) for task_id in due)
        await real_run_once(self)

    real, real_run_once = waiting.promote, Scheduler.run_once
    planting.put(machine._DECIDERS, c.Promote, promote)
    planting.put(Scheduler, "run_once", run_once)


@plant("what a dead worker held stays with it")
def dead_workers_tasks_not_freed(planting: Planting) -> None:
    async def consider(self: Reaper, attempt: Attempt, worker: Any, gone: dict[str, Any], now: Now) -> bool:
        if worker is None or gone.get(attempt.worker_id):
            return False
        return bool(await real(self, attempt, worker, gone, now))

    real = Reaper._consider
    planting.put(Reaper, "_consider", consider)


@plant("callers are answered before the commit", first=31)
def answer_before_commit(planting: Planting) -> None:
    def commit(self: Any, calls: list[Any]) -> None:
        try:
            real(self, calls)
        except OwnerCrash:
            undecided = self.owner.struck.undecided
            if undecided is not None:
                self._answer(calls, undecided)
            raise

    real = Batcher._commit
    planting.put(Batcher, "_commit", commit)


@plant("an owner that stood still takes everybody else for silent")
def no_fresh_leases_after_a_stall(planting: Planting) -> None:
    planting.put(Reaper, "_stalled", lambda _self, _now: False)


@plant("a heartbeat is answered and renews nothing")
def heartbeat_renews_nothing(planting: Planting) -> None:
    def renew(task: Task, facts: Facts, command: c.Renew, now: Now) -> Decision:
        renewed = real(task, facts, command, now)
        return renewed if command.fresh else Decision(task)

    real = working.renew
    planting.put(machine._DECIDERS, c.Renew, renew)


@plant("a repeated completion is a second end", first=116)
def second_completion(planting: Planting) -> None:
    def complete(task: Task, facts: Facts, command: c.Complete, now: Now) -> Decision:
        attempt = facts.attempt
        if attempt is None or attempt.status is not AttemptStatus.COMPLETED:
            return real(task, facts, command, now)
        after, event = moved(task, now, "completed", "again", attempt.worker_id)
        return Decision(after, None, (event,), unblocks=True)

    real = ending.complete
    planting.put(machine._DECIDERS, c.Complete, complete)


@plant("an attempt that has said that it is done is completed before its work is published", first=71)
def done_before_published(planting: Planting) -> None:
    def reap(task: Task, facts: Facts, command: c.Reap, now: Now) -> Decision:
        attempt = facts.attempt
        said = task.done_epoch is not None and attempt is not None and attempt.open
        if not said or attempt is None or attempt.epoch != command.epoch:
            return real(task, facts, command, now)
        return publishing.completed(task, attempt, attempt.declared, now, exit_code=None)

    real = ending.reap
    planting.put(machine._DECIDERS, c.Reap, reap)


@plant("work that is done and not published is done again by an agent", first=25)
def done_work_is_done_again(planting: Planting) -> None:
    def grant(task: Task, facts: Facts, command: c.Grant, now: Now) -> Decision:
        return real(replace(task, done_epoch=None), facts, command, now)

    real = working.grant
    planting.put(machine._DECIDERS, c.Grant, grant)


@plant("a task is given away before the processes of its lost attempt are killed")
def reaped_before_killed(planting: Planting) -> None:
    planting.put(SimHost, "kill_marked", lambda _self, _marks: 0)


@plant("a worker is told to go on with an attempt that is over")
def dead_attempt_goes_on(planting: Planting) -> None:
    async def renew(
        self: Workers, view: View, command: c.Heartbeat, task_id: int, epoch: int, proof: str
    ) -> Any:
        return replace(await real(self, view, command, task_id, epoch, proof), current=True)

    real = Workers._renew
    planting.put(Workers, "_renew", renew)


@plant("an idempotency key is forgotten", first=35)
def idempotency_key_forgotten(planting: Planting) -> None:
    async def given_before(_self: Enqueuer, _view: View, _command: c.Enqueue) -> dict[int, int]:
        return {}

    async def add_idempotent(_self: StoredTx, *_row: Any) -> None:
        return None

    planting.put(Enqueuer, "_given_before", given_before)
    planting.put(StoredTx, "add_idempotent", add_idempotent)


@plant("a skipped task's children wait for ever", first=22)
def skip_without_unblocking(planting: Planting) -> None:
    def skip(task: Task, facts: Facts, command: c.Skip, now: Now) -> Decision:
        return replace(real(task, facts, command, now), unblocks=False)

    real = machine._DECIDERS[c.Skip]
    planting.put(machine._DECIDERS, c.Skip, skip)


@plant("what expires is not held back after the wall clock has jumped", first=23)
def expiry_right_after_a_jump(planting: Planting) -> None:
    planting.put(Scheduler, "_holds", lambda _self, _now: False)


@plant("a lease is cut short by a second")
def lease_cut_short(planting: Planting) -> None:
    def lapsed(attempt: Attempt, now: Now) -> bool:
        return real(attempt, replace(now, mono_ms=now.mono_ms + 1_000))

    real = decision.lapsed
    planting.put(reaper_module, "lapsed", lapsed)
    planting.put(ending, "lapsed", lapsed)


@plant("a claim that comes late once more is given work that nobody waits for", first=29)
def late_claim_is_a_new_one(planting: Planting) -> None:
    planting.put(RememberedRequests, "note_given", lambda _self, _command: None)


@plant("a cancelled task is given out while its agent is still at work")
def next_attempt_beside_the_last_one(planting: Planting) -> None:
    planting.put(ending, "left_running", lambda _attempt: None)
    planting.put(waiting, "left_running", lambda _attempt: None)


@plant("most agents fall silent at once, and are given up all the same", first=1008)
def no_brake(planting: Planting) -> None:
    planting.put(Brake, "holds", lambda _self, _held, _silent, _now_ms: False)


@plant("what a full store did not take counts as silence", first=35)
def refusals_are_silence(planting: Planting) -> None:
    planting.put(Batcher, "absences", lambda _self: 0)


@plant("each absence of the store gives a dead worker one more fresh lease", first=2010)
def fresh_leases_for_ever(planting: Planting) -> None:
    planting.put(Silence, "given_up", lambda _self, _workers, _now_ms, _lease_ms: frozenset())


@plant("who works by hand gets no fresh lease when nobody could be heard", first=46)
def hands_are_not_renewed(planting: Planting) -> None:
    async def nobody(_self: View) -> list[Attempt]:
        return []

    planting.put(View, "held_by_hand", nobody)


@plant("a restart of the owner's machine ends what others do")
def restart_ends_the_work_of_others(planting: Planting) -> None:
    planting.put(Policy, "elsewhere", lambda _self, _hostname: False)


@plant("a start that is repeated renews nothing, and its worker thinks that it does", first=35)
def repeated_start_renews_nothing(planting: Planting) -> None:
    def start(task: Task, facts: Facts, command: c.Start, now: Now) -> Decision:
        decided = real(task, facts, command, now)
        return decided if decided.events else Decision(task)

    real = working.start
    planting.put(machine._DECIDERS, c.Start, start)


@plant("a claim that starts what it gives writes no event of the start")
def start_with_a_claim_is_not_told(planting: Planting) -> None:
    def grant(task: Task, facts: Facts, command: c.Grant, now: Now) -> Decision:
        granted = real(task, facts, command, now)
        return replace(granted, events=granted.events[:1])

    real = working.grant
    planting.put(machine._DECIDERS, c.Grant, grant)


@plant("what a claim has started counts as not begun: another attempt may begin beside it", first=22)
def start_with_a_claim_is_no_start(planting: Planting) -> None:
    def grant(task: Task, facts: Facts, command: c.Grant, now: Now) -> Decision:
        granted = real(task, facts, command, now)
        attempt = granted.attempt
        return replace(granted, attempt=attempt and replace(attempt, started_at_ms=None))

    real = working.grant
    planting.put(machine._DECIDERS, c.Grant, grant)


@plant("what the end of an attempt has claimed is not told to its worker")
def next_attempt_is_not_told(planting: Planting) -> None:
    planting.put(engine_commands, "_with_next", lambda finished, claimed: finished or claimed)
