"""One task under random commands, stale epochs, clock jumps and restarts: what DESIGN part 3 promises."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from machine_makers import LEASE_MS, NOW, OTHER_TOKEN, TOKEN, make_task
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.errors import MusterError, StoreRewound
from muster.model.events import Event, fold
from muster.model.machine import decide
from muster.model.moves.decision import Decision, Facts, lapsed
from muster.model.moves.waiting import enqueued
from muster.model.retry import RetryPolicy
from muster.model.states import (
    ATTEMPT_MOVES,
    FINAL,
    HELD,
    TASK_MOVES,
    AttemptStatus,
    ErrorKind,
    StopAction,
    TaskStatus,
)
from muster.model.task import Attempt, Now, Task
from muster.model.usage import Usage
from searches import properties

POLICY = RetryPolicy()
STEERING = ["pause", "resume", "answer", "tell", "transfer", "skip", "expire", "drop pin", "depend"]
EPOCH_OFFSETS = st.sampled_from([0, 0, 0, 0, -1, -2, 1])
KINDS = st.sampled_from([*ErrorKind, ErrorKind.CRASH, ErrorKind.CRASH, ErrorKind.LOST, ErrorKind.LOST])


class OneTask(RuleBasedStateMachine):
    """Keeps what a store would keep, and checks every accepted command against the promises."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        spec = c.Spec(title="t", max_retries=1, expires_at_ms=NOW.wall_ms + 3_600_000)
        made = enqueued(spec, task_id=7, workspace_id=1, plan_id=3, lane_id=5, unmet=2, actor="ada", now=NOW)
        self.task: Task = made.task
        self.attempt: Attempt | None = None
        self.events: list[Event] = list(made.events)
        self.granted: list[int] = []
        self.completed_in: list[int] = []
        self.cancelled_in: set[int] = set()
        self.numbers: dict[int, int] = {}

    @initialize(ready=st.booleans())
    def begin(self, ready: bool) -> None:
        if ready:
            self.give(c.Unblock(task_id=7, count=2))

    # -- what happens to it

    def give(self, command: c.Command, jitter: float = 0.5) -> str:
        """Applies the command as the engine would; the code of its refusal, empty where it was accepted."""
        try:
            decision = decide(self.task, Facts(self.attempt, jitter, POLICY), command, self.now)
        except MusterError as error:
            return error.code
        self.check(command, decision)
        before, self.task = self.task, decision.task
        self.attempt = decision.attempt or self.attempt
        self.events += decision.events
        self.count(command, before)
        for follow_up in decision.follow_ups:
            assert self.give(follow_up) == ""
        return ""

    def epoch(self, offset: int) -> int:
        return max(1, self.task.epoch + offset)

    @rule(seconds=st.integers(0, 400))
    def time_passes(self, seconds: int) -> None:
        self.now = replace(
            self.now, wall_ms=self.now.wall_ms + seconds * 1000, mono_ms=self.now.mono_ms + seconds * 1000
        )

    @rule(seconds=st.integers(-(10**6), 10**6))
    def the_wall_clock_jumps(self, seconds: int) -> None:
        self.now = replace(self.now, wall_ms=self.now.wall_ms + seconds * 1000)

    @rule(mono_ms=st.integers(0, 100_000))
    def the_machine_restarts(self, mono_ms: int) -> None:
        self.now = replace(self.now, mono_ms=mono_ms, boot_id=self.now.boot_id + "'")

    @rule()
    def grant(self) -> None:
        ready = self.task.ready
        refused = self.give(
            c.Grant(task_id=7, worker_id="w", agent="claude", request_id="r", lease_ms=LEASE_MS)
        )
        assert ready == (refused == "")

    @rule(offset=EPOCH_OFFSETS, token=st.sampled_from([TOKEN, OTHER_TOKEN]))
    def start(self, offset: int, token: str) -> None:
        self.give(c.Start(task_id=7, epoch=self.epoch(offset), token_hash=token))

    @rule(from_the_end=st.booleans())
    def comes_to_work(self, from_the_end: bool) -> None:
        """The usual way, in one step: random steps alone would rarely get far."""
        if from_the_end:
            self.give(c.Retry(task_id=7, actor="ada"))
        self.give(c.Unblock(task_id=7, count=2))
        self.give(c.Promote(task_id=7))
        self.give(c.ProcessesExited(task_id=7, epoch=self.epoch(0)))
        self.grant()
        self.start(0, TOKEN)

    @rule(kind=KINDS, jitter=st.floats(0, 1))
    def comes_to_work_and_breaks_down(self, kind: ErrorKind, jitter: float) -> None:
        self.comes_to_work(False)
        self.give(c.Fail(task_id=7, epoch=self.epoch(0), kind=kind, message="no"), jitter)

    @rule(offset=EPOCH_OFFSETS, percent=st.integers(0, 100))
    def progress(self, offset: int, percent: int) -> None:
        self.give(c.Progress(task_id=7, epoch=self.epoch(offset), percent=percent))

    @rule(offset=EPOCH_OFFSETS, fresh=st.booleans())
    def renew(self, offset: int, fresh: bool) -> None:
        self.give(c.Renew(task_id=7, epoch=self.epoch(offset), fresh=fresh))

    @rule(offset=EPOCH_OFFSETS)
    def checkpoint(self, offset: int) -> None:
        self.give(c.SaveCheckpoint(task_id=7, epoch=self.epoch(offset), data=b"x"))

    @rule(offset=EPOCH_OFFSETS, kind=st.none() | KINDS)
    def declare(self, offset: int, kind: ErrorKind | None) -> None:
        self.give(c.Declare(task_id=7, epoch=self.epoch(offset), kind=kind, text='"said"'))

    @rule(offset=EPOCH_OFFSETS)
    def log(self, offset: int) -> None:
        self.give(c.AppendLog(task_id=7, epoch=self.epoch(offset), stream="stdout", offset=0, data=b"x"))

    @rule(offset=EPOCH_OFFSETS)
    def account(self, offset: int) -> None:
        usage = Usage(input_tokens=7)
        self.give(c.Account(task_id=7, epoch=self.epoch(offset), session_key="s", usage=usage))

    @rule(offset=EPOCH_OFFSETS, twice=st.booleans())
    def complete(self, offset: int, twice: bool) -> None:
        command = c.Complete(task_id=7, epoch=self.epoch(offset), result="1")
        if self.give(command) == "" and twice:
            self.repeat(command)

    @rule(offset=EPOCH_OFFSETS, kind=KINDS, jitter=st.floats(0, 1), twice=st.booleans())
    def fail(self, offset: int, kind: ErrorKind, jitter: float, twice: bool) -> None:
        command = c.Fail(task_id=7, epoch=self.epoch(offset), kind=kind, message="no")
        if self.give(command, jitter) == "" and twice and kind is not ErrorKind.LOST:
            self.repeat(command)

    @rule(offset=EPOCH_OFFSETS, twice=st.booleans())
    def release(self, offset: int, twice: bool) -> None:
        command = c.Release(task_id=7, epoch=self.epoch(offset), reason="drain")
        if self.give(command) == "" and twice:
            self.repeat(command)

    def repeat(self, command: c.Command) -> None:
        """The first answer was lost: the same is said again, and nothing is written (S4)."""
        before = (self.task, self.attempt, len(self.events))
        assert self.give(command) == ""
        assert (self.task, self.attempt, len(self.events)) == before

    @rule(offset=EPOCH_OFFSETS, stop_by_s=st.floats(-10, 10**9), action=st.sampled_from(StopAction))
    def request_stop(self, offset: int, stop_by_s: float, action: StopAction) -> None:
        stop = c.RequestStop(
            task_id=7, epoch=self.epoch(offset), action=action, stop_by_s=stop_by_s, actor="ada"
        )
        paused = self.attempt is not None and self.attempt.stop_action is StopAction.PAUSE
        if self.give(stop) == "" and paused and self.task.status in HELD:
            assert self.attempt is not None and self.attempt.stop_action is StopAction.PAUSE

    @rule(offset=EPOCH_OFFSETS, proven=st.booleans(), killed=st.booleans(), jitter=st.floats(0, 1))
    def reap(self, offset: int, proven: bool, killed: bool, jitter: float) -> None:
        trusted = self.attempt is not None and not lapsed(self.attempt, self.now)
        command = c.Reap(
            task_id=7, epoch=self.epoch(offset), term=1, reason="gone", proven=proven, tree_killed=killed
        )
        refused = self.give(command, jitter)
        assert proven or not trusted or refused

    @rule(offset=EPOCH_OFFSETS, twice=st.booleans())
    def ask(self, offset: int, twice: bool) -> None:
        command = c.Ask(task_id=7, epoch=self.epoch(offset), question="which?")
        if self.give(command) == "" and twice:
            self.repeat(command)

    @rule(offset=EPOCH_OFFSETS)
    def readopt(self, offset: int) -> None:
        before = self.attempt
        if self.give(c.Readopt(task_id=7, epoch=self.epoch(offset))) == "":
            assert before is not None and before.status is AttemptStatus.LOST and not before.tree_killed

    @rule(
        action=st.sampled_from(
            ["pause", "resume", "answer", "transfer", "skip", "expire", "drop pin", "depend"]
        )
    )
    def steer(self, action: str) -> None:
        commands: dict[str, c.Command] = {
            "pause": c.Pause(task_id=7, actor="ada"),
            "resume": c.Resume(task_id=7, actor="ada"),
            "answer": c.AnswerQuestion(task_id=7, actor="ada", text="this one"),
            "tell": c.Tell(task_id=7, actor="ada", text="use tabs"),
            "transfer": c.Transfer(task_id=7, actor="ada", agent="codex", lane_id=6),
            "skip": c.Skip(task_id=7, actor="ada"),
            "expire": c.Expire(task_id=7, term=1),
            "depend": c.Depend(task_id=7, actor="ada", depends_on=(9,), unmet=1),
            "drop pin": c.DropPin(task_id=7, term=1, lane_id=5),
        }
        refused = self.give(commands[action])
        if action == "pause" and refused == "":
            self.repeat(commands[action])
            assert self.task.status is TaskStatus.PAUSED or self.task.status in HELD

    @rule(offset=EPOCH_OFFSETS, twice=st.booleans())
    def gone(self, offset: int, twice: bool) -> None:
        command = c.ProcessesExited(task_id=7, epoch=self.epoch(offset))
        if self.give(command) == "" and twice:
            self.repeat(command)

    @rule(really=st.integers(0, 9))
    def archive(self, really: int) -> None:
        if really == 0:  # nothing happens to it afterwards
            self.give(c.Archive(task_id=7, actor="ada"))

    @rule(by_coordinator=st.booleans())
    def promote(self, by_coordinator: bool) -> None:
        due_ms = self.task.next_attempt_at_ms
        refused = self.give(c.Promote(task_id=7, term=1 if by_coordinator else None))
        early = due_ms is not None and due_ms > self.now.wall_ms
        assert not (by_coordinator and early and refused == "")

    @rule(name=st.sampled_from(["cancel", "retry", "person", "unblock"]))
    def from_outside(self, name: str) -> None:
        commands: dict[str, c.Command] = {
            "cancel": c.Cancel(task_id=7, actor="ada"),
            "retry": c.Retry(task_id=7, actor="ada", note="again", fresh=len(self.events) % 2 == 0),
            "person": c.CompleteByPerson(task_id=7, actor="ada"),
            "unblock": c.Unblock(task_id=7, count=1),
        }
        self.give(commands[name])

    # -- what must hold of every accepted command

    def check(self, command: c.Command, decision: Decision) -> None:
        task, after, attempt = self.task, decision.task, decision.attempt
        known = self.attempt
        stale = isinstance(command, c.AttemptCommand) and (
            known is None or command.epoch != known.epoch or not known.open
        )
        if stale and not isinstance(command, c.AppendLog | c.Account | c.Readopt | c.ProcessesExited):
            assert (after, attempt, decision.events, decision.follow_ups) == (task, None, (), ())
            assert command.epoch == task.epoch, "only the newest attempt's last word is a repetition"
        assert after.status in TASK_MOVES[task.status] | {task.status}
        if task.status in FINAL and after.status is not task.status:
            assert isinstance(command, c.Retry | c.CompleteByPerson | c.Skip | c.Archive)
        assert after.epoch == task.epoch + isinstance(command, c.Grant)
        opened = isinstance(command, c.Retry) and task.status in FINAL
        assert after.generation == task.generation + opened
        assert len(decision.events) == after.event_seq - task.event_seq <= 1
        moved = (after.status, after.epoch, after.generation) != (task.status, task.epoch, task.generation)
        if attempt is not None and known is not None and attempt.epoch == known.epoch:
            assert attempt.status in ATTEMPT_MOVES[known.status] | {known.status}
            moved = moved or attempt.status is not known.status
        assert not moved or decision.events
        if isinstance(command, c.Grant):
            assert task.lingering_epoch is None, "its last attempt may still be at work"
        over = isinstance(command, c.Skip) and after.status is not task.status
        assert (over or after.status is TaskStatus.COMPLETED is not task.status) == decision.unblocks

    def count(self, command: c.Command, before: Task) -> None:
        after = self.task
        if isinstance(command, c.Grant):
            self.granted.append(after.epoch)
        if after.status is TaskStatus.COMPLETED is not before.status:
            self.completed_in.append(after.generation)
        if after.status is TaskStatus.CANCELLED:
            self.cancelled_in.add(after.generation)
        if after.next_attempt_at_ms is not None and after.next_attempt_at_ms != before.next_attempt_at_ms:
            assert 0 <= after.next_attempt_at_ms - self.now.wall_ms <= POLICY.cap_s * 1000
        if isinstance(command, c.SaveCheckpoint):
            assert self.attempt is not None
            assert self.attempt.checkpoints == self.numbers.get(after.epoch, 0) + 1
            self.numbers[after.epoch] = self.attempt.checkpoints

    @invariant()
    def it_is_held_exactly_while_an_attempt_is_open(self) -> None:
        assert (self.task.status in HELD) == (self.attempt is not None and self.attempt.open)
        if self.task.status is TaskStatus.RUNNING:
            assert self.attempt is not None
            assert self.attempt.status in {AttemptStatus.RUNNING, AttemptStatus.STOPPING}

    @invariant()
    def its_events_fold_to_its_state(self) -> None:
        state = fold(self.events)
        assert (state.status, state.generation, state.epoch, state.seq) == (
            self.task.status,
            self.task.generation,
            self.task.epoch,
            self.task.event_seq,
        )

    @invariant()
    def each_epoch_is_granted_once(self) -> None:
        assert self.granted == list(range(1, len(self.granted) + 1))

    @invariant()
    def a_generation_ends_once(self) -> None:
        assert len(self.completed_in) == len(set(self.completed_in))
        assert not self.cancelled_in & set(self.completed_in)

    @invariant()
    def what_it_has_spent_is_bounded(self) -> None:
        assert self.task.retries <= self.task.max_retries
        assert self.task.losses <= POLICY.losses_max
        assert self.task.timeout_factor in (1, 2, 4)

    @invariant()
    def it_waits_for_something_named(self) -> None:
        """L3: what is not final is held, ready, blocked, paused or has a due time."""
        task = self.task
        waits = task.unmet > 0 or task.next_attempt_at_ms is not None or task.status is TaskStatus.PAUSED
        assert task.final or task.status in HELD or task.ready or waits or task.lingering_epoch


OneTask.TestCase.settings = properties(300, stateful_step_count=60)
TestOneTask = OneTask.TestCase


@pytest.mark.promise("S2")
def test_a_rewound_store_is_named_and_nothing_moves() -> None:
    task = make_task(TaskStatus.PENDING, epoch=3)
    command = c.Renew(task_id=7, epoch=4)
    try:
        decide(task, Facts(None), command, Now(0, 0, "b"))
    except StoreRewound as error:
        assert "restored" in error.hint
    else:
        raise AssertionError("an epoch that was never granted was accepted")
