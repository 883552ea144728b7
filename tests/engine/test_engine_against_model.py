"""The engine on SQLite against a model in dicts, command by command, with restarts and late, doubled messages.

A longer search: `pytest tests/engine/test_engine_against_model.py --hypothesis-profile=long`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engine_rig import LEASE_S, W1, W2, Rig
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace
from reference_model import LOSSES_MAX, ReferenceModel

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.answers import Claimed, HeartbeatAnswer, Moved
from muster.model.errors import MusterError
from muster.model.retry import RetryPolicy
from muster.model.states import ErrorKind, FailedDependency, StopAction
from muster.stores.sqlite.store import MEMORY
from muster.testing import promises

TASKS_MAX = 6
WORKERS = (W1, W2)
TOKENS = ("a" * 64, "b" * 64)
POLICY = Policy(lease_s=LEASE_S, failures_max=0, retry=RetryPolicy(losses_max=LOSSES_MAX))
PICK = st.integers(0, TASKS_MAX - 1)
EPOCH = st.sampled_from([0] * 8 + [-1, 1])
"""Added to the newest epoch: mostly the holder speaks, sometimes a ghost, or one from before a restore."""
Following = tuple[bool, str]
FOLLOWING = st.tuples(st.booleans(), st.sampled_from(["", "claimed", "started"]))
"""Whether a last word is repeated; what is asked for with it."""
OF_PUBLISHING = {ErrorKind.REWORK, ErrorKind.REVIEW}
"""Kinds that the reference model does not know; `tests/model/test_machine_publishing.py` has them."""
KIND = st.sampled_from(
    [
        *(ErrorKind.CRASH, ErrorKind.CRASH, ErrorKind.LOST, ErrorKind.LOST),
        *(kind for kind in ErrorKind if kind not in OF_PUBLISHING),
    ]
)


class AgainstModel(RuleBasedStateMachine):
    path = MEMORY

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(POLICY, self.path)
        self.reference = ReferenceModel(int(LEASE_S * 1000))
        self.ids: dict[str, int] = {}
        self.requests: list[c.Claim] = []
        self.steps = 0
        self.term = 0

    @initialize(first=st.lists(st.sampled_from(FailedDependency), min_size=2, max_size=4))
    def begin(self, first: list[FailedDependency]) -> None:
        self.tell_time()
        for worker in WORKERS:
            self.rig.register(worker, slots=4, agents=("claude", "codex"))
            self.reference.workers[worker] = self.reference.boot
        self.term = self.rig.new_boot().term
        for n, on_failed in enumerate(first):
            self.add([n - 1] if n % 2 else [], on_failed, 1, False)

    # -- both sides

    def tell_time(self) -> None:
        now = self.rig.clock.now()
        self.reference.wall, self.reference.mono, self.reference.boot = now.wall_ms, now.mono_ms, now.boot_id

    def give(self, command: c.Command, expected: str) -> None:
        (outcome,) = self.rig.apply(command).outcomes
        code = outcome.code if isinstance(outcome, MusterError) else ""
        assert code == expected, f"{command}: the engine says {code or 'yes'}, the model {expected or 'yes'}"

    def key(self, pick: int) -> str:
        return list(self.ids)[pick % len(self.ids)]

    def at(self, pick: int, offset: int = 0) -> tuple[str, int, dict[str, int]]:
        """(key, epoch, the ids of a command)."""
        key = self.key(pick)
        epoch = max(1, self.reference.tasks[key]["epoch"] + offset)
        return key, epoch, {"task_id": self.ids[key], "epoch": epoch}

    # -- time and restarts

    @rule(seconds=st.sampled_from([0, 1, 5, 14, 15, 16, 40, 400, 4000]))
    def time_passes(self, seconds: int) -> None:
        self.rig.clock.advance(seconds)
        self.tell_time()

    @rule()
    def the_owner_is_replaced(self) -> None:
        if self.path is not MEMORY:
            self.rig.reopen()
            self.reference.used.clear()
        self.term = self.rig.new_boot().term
        self.reference.new_boot()

    @rule(really=st.integers(0, 3))
    def the_machine_restarts(self, really: int) -> None:
        if really == 0:
            self.rig.clock.restart()
            self.tell_time()

    # -- intake

    @rule(
        after=st.lists(PICK, max_size=3),
        on_failed=st.sampled_from(FailedDependency),
        max_retries=st.integers(0, 2),
        expires=st.booleans(),
        group=st.booleans(),
    )
    def add(
        self,
        after: list[int],
        on_failed: FailedDependency,
        max_retries: int,
        expires: bool,
        group: bool = False,
    ) -> None:
        if len(self.ids) >= TASKS_MAX:
            return
        key = f"t{len(self.ids)}"
        needs = sorted({self.key(pick) for pick in after}) if self.ids else []
        expires_at = self.reference.wall + 600_000 if expires else None
        spec = c.Spec(
            title=key,
            key=key,
            depends_on=tuple(needs),
            on_failed=on_failed,
            max_retries=max_retries,
            expires_at_ms=expires_at,
            idempotency_key=f"once-{key}",
            is_group=group,
        )
        command = c.Enqueue(plan="p", source=None, tasks=(spec,), actor="ada")
        added = self.rig.do(command)
        again = self.rig.do(command)  # its first answer was lost
        assert (added.added, again.added, again.task_ids) == (not group, 0, added.task_ids)
        (self.ids[key],) = added.task_ids
        self.reference.add(
            key,
            needs,
            on_failed=str(on_failed),
            max_retries=max_retries,
            expires=expires_at,
            group=group,
        )

    @rule(pick=PICK, parent=PICK)
    def depend(self, pick: int, parent: int) -> None:
        key, other = self.key(pick), self.key(parent)
        command = c.Depend(task_id=self.ids[key], actor="ada", depends_on=(self.ids[other],))
        self.give(command, self.reference.depend(key, other))

    # -- workers

    @rule(worker=st.sampled_from(WORKERS), slots=st.integers(1, 4), begin=st.booleans(), start=st.booleans())
    def claim(self, worker: str, slots: int, begin: bool, start: bool) -> None:
        self.requests.append(self.rig.claim_command(worker, slots, start=start))
        for key, epoch in self.ask_for(self.requests[-1]):
            if begin and not start:
                command = c.Start(task_id=self.ids[key], epoch=epoch, token_hash=TOKENS[0])
                self.give(command, self.reference.start(key, epoch, TOKENS[0]))

    @rule(pick=st.integers(0, 5))
    def claim_again(self, pick: int) -> None:
        if self.requests:
            self.ask_for(self.requests[-1 - pick % len(self.requests)])

    def ask_for(self, command: c.Claim) -> list[tuple[str, int]]:
        return self.was_given(command, self.rig.do(command))

    def was_given(self, command: c.Claim, answer: object) -> list[tuple[str, int]]:
        assert isinstance(answer, Claimed)
        jobs = sorted((job.key, job.epoch) for job in answer.jobs)
        expected = self.reference.claim(
            command.worker_id, command.request_id, command.slots, start=command.start
        )
        assert jobs == expected
        for job in answer.jobs:
            done = self.reference.tasks[job.key]["done"]
            assert job.publishes == (None if done == job.epoch else done), "an agent runs again (S18)"
            assert job.checkpoint == self.reference.tasks[job.key]["checkpoint"], (
                "not the last checkpoint (S16)"
            )
        return jobs

    @rule(pick=PICK, offset=EPOCH, token=st.sampled_from(TOKENS))
    def start(self, pick: int, offset: int, token: str) -> None:
        key, epoch, ids = self.at(pick, offset)
        self.give(c.Start(**ids, token_hash=token), self.reference.start(key, epoch, token))

    @rule(worker=st.sampled_from(WORKERS), ghosts=st.booleans())
    def beat(self, worker: str, ghosts: bool) -> None:
        """Of what it has ever held, the newest epoch of each; `ghosts`: also what others hold."""
        attempts = {key: task["attempt"] for key, task in self.reference.tasks.items() if task["attempt"]}
        mine = [
            (key, attempt["epoch"])
            for key, attempt in attempts.items()
            if ghosts or attempt["worker"] == worker
        ]
        pairs = tuple((self.ids[key], epoch) for key, epoch in mine)
        answer = self.rig.do(c.Heartbeat(worker_id=worker, attempts=pairs))
        assert isinstance(answer, HeartbeatAnswer)
        expected = [self.reference.beat(worker, key, epoch) for key, epoch in mine]
        assert [order.current for order in answer.attempts] == expected
        self.reference.workers[worker] = self.reference.boot

    @rule(pick=PICK, offset=EPOCH, percent=st.integers(0, 100))
    def progress(self, pick: int, offset: int, percent: int) -> None:
        key, epoch, ids = self.at(pick, offset)
        self.give(c.Progress(**ids, percent=percent), self.reference.working(key, epoch))

    @rule(pick=PICK, offset=EPOCH, data=st.binary(min_size=1, max_size=4))
    def checkpoint(self, pick: int, offset: int, data: bytes) -> None:
        key, epoch, ids = self.at(pick, offset)
        self.give(c.SaveCheckpoint(**ids, data=data), self.reference.checkpoint(key, epoch, data))

    @rule(pick=PICK, offset=EPOCH)
    def artifact(self, pick: int, offset: int) -> None:
        key, epoch, ids = self.at(pick, offset)
        self.give(c.AddArtifact(**ids, name="report", location="out"), self.reference.working(key, epoch))

    @rule(pick=PICK, offset=EPOCH, kind=st.none() | KIND, by_worker=st.booleans())
    def declare(self, pick: int, offset: int, kind: ErrorKind | None, by_worker: bool) -> None:
        key, epoch, ids = self.at(pick, offset)
        kind = None if by_worker else kind
        command = c.Declare(**ids, kind=kind, text="1", by_worker=by_worker)
        self.give(command, self.reference.declare(key, epoch, kind and str(kind), by_worker=by_worker))

    def finish(self, word: c.Finish, twin_says: Callable[[], str], following: Following) -> None:
        """The word, and what its worker asks for with it; perhaps once more."""
        twice, then = following
        if then:
            attempt = self.reference.tasks[self.name(word.task_id)]["attempt"]
            worker = attempt["worker"] if attempt else W1
            self.requests.append(self.rig.claim_command(worker, 1, start=then == "started"))
            word = replace(word, then=self.requests[-1])
        for _ in range(1 + twice):
            (outcome,) = self.rig.apply(word).outcomes
            code = outcome.code if isinstance(outcome, MusterError) else ""
            assert code == twin_says(), f"{word}: the engine says {code or 'yes'}"
            if word.then is not None and isinstance(outcome, Moved):
                self.was_given(word.then, outcome.next)

    @rule(pick=PICK, offset=EPOCH, following=FOLLOWING)
    def complete(self, pick: int, offset: int, following: Following) -> None:
        key, epoch, ids = self.at(pick, offset)
        self.finish(c.Complete(**ids, result="1"), lambda: self.reference.complete(key, epoch), following)

    @rule(pick=PICK, offset=EPOCH, kind=KIND, after=st.none() | st.floats(0, 100), following=FOLLOWING)
    def fail(
        self, pick: int, offset: int, kind: ErrorKind, after: float | None, following: Following
    ) -> None:
        key, epoch, ids = self.at(pick, offset)
        word = c.Fail(**ids, kind=kind, message="no", retry_after_s=after)
        self.finish(word, lambda: self.reference.fail(key, epoch, str(kind), after), following)

    @rule(pick=PICK, offset=EPOCH, refuses=st.booleans())
    def its_provider_is_heard(self, pick: int, offset: int, refuses: bool) -> None:
        key, epoch, ids = self.at(pick, offset)
        word = c.Provider(**ids, refuses=ErrorKind.RATE_LIMIT if refuses else None, message="no")
        (outcome,) = self.rig.apply(word).outcomes
        gives_way = "gives way" if isinstance(outcome, Moved) and outcome.gives_way else ""
        code = outcome.code if isinstance(outcome, MusterError) else gives_way
        assert code == self.reference.provider(key, epoch, refuses=refuses)

    @rule(pick=PICK, offset=EPOCH, following=FOLLOWING)
    def release(self, pick: int, offset: int, following: Following) -> None:
        key, epoch, ids = self.at(pick, offset)
        self.finish(c.Release(**ids, reason="drain"), lambda: self.reference.release(key, epoch), following)

    @rule(pick=PICK, offset=EPOCH, question=st.sampled_from(["which?", "when?"]))
    def ask(self, pick: int, offset: int, question: str) -> None:
        key, epoch, ids = self.at(pick, offset)
        self.give(c.Ask(**ids, question=question), self.reference.ask(key, epoch, question))

    @rule(pick=PICK, offset=EPOCH)
    def gone(self, pick: int, offset: int) -> None:
        key, epoch, ids = self.at(pick, offset)
        self.give(c.ProcessesExited(**ids), self.reference.gone(key, epoch))

    # -- the coordinator

    @rule(pick=PICK, offset=EPOCH, proven=st.booleans(), killed=st.booleans())
    def reap(self, pick: int, offset: int, proven: bool, killed: bool) -> None:
        key, epoch, ids = self.at(pick, offset)
        command = c.Reap(**ids, term=self.term, reason="gone", proven=proven, tree_killed=killed)
        self.give(command, self.reference.reap(key, epoch, proven=proven, killed=killed))

    @rule()
    def the_scheduler_ticks(self) -> None:
        wall = self.reference.wall
        for task_id in drive(self.rig.reads.due(wall, 100)):
            self.give(
                c.Promote(task_id=task_id, term=self.term),
                self.reference.promote(self.name(task_id), by_hand=False),
            )
        waiting = [task for task in self.reference.tasks.values() if task["status"] in ("PENDING", "ABORTED")]
        assert not any(task["due"] is not None and task["due"] <= wall for task in waiting), "overlooked"
        for task_id in drive(self.rig.reads.expired(wall, 100)):
            self.give(c.Expire(task_id=task_id, term=self.term), self.reference.expire(self.name(task_id)))
        for task_id in drive(self.rig.reads.stale_pins(wall, 100)):
            self.give(c.DropPin(task_id=task_id, term=self.term), self.reference.drop_pin(self.name(task_id)))

    def name(self, task_id: int) -> str:
        return next(key for key, known in self.ids.items() if known == task_id)

    @rule(pick=PICK, which=st.sampled_from(["promote", "expire", "drop"]))
    def the_scheduler_is_wrong(self, pick: int, which: str) -> None:
        key = self.key(pick)
        ids = {"task_id": self.ids[key], "term": self.term}
        if which == "promote":
            self.give(c.Promote(**ids), self.reference.promote(key, by_hand=False))
        elif which == "expire":
            self.give(c.Expire(**ids), self.reference.expire(key))
        else:
            self.give(c.DropPin(**ids), self.reference.drop_pin(key))

    @rule(pick=PICK)
    def a_deposed_coordinator_writes_nothing(self, pick: int) -> None:
        """S10: whatever it still believes, its term is over."""
        _, _, ids = self.at(pick)
        task_id, old = ids["task_id"], self.term - 1
        for command in (
            c.Reap(**ids, term=old, reason="gone", proven=True),
            c.Promote(task_id=task_id, term=old),
            c.Expire(task_id=task_id, term=old),
            c.DropPin(task_id=task_id, term=old),
            c.ProcessesExited(**ids, term=old),
            c.FreshLeases(term=old),
        ):
            self.give(command, "term_over")

    # -- people

    @rule(pick=PICK, action=st.sampled_from(StopAction), offset=EPOCH, seconds=st.sampled_from([0, 5, 100]))
    def request_stop(self, pick: int, action: StopAction, offset: int, seconds: int) -> None:
        key, epoch, ids = self.at(pick, offset)
        command = c.RequestStop(**ids, action=action, stop_by_s=seconds, actor="ada")
        self.give(command, self.reference.request_stop(key, epoch, str(action), seconds * 1000))

    @rule(pick=PICK, verb=st.sampled_from(["pause", "resume", "answer", "cancel", "skip", "by_person"]))
    def a_person_decides(self, pick: int, verb: str) -> None:
        key = self.key(pick)
        ids: dict[str, Any] = {"task_id": self.ids[key], "actor": "ada"}
        command: c.Command = {
            "pause": lambda: c.Pause(**ids),
            "resume": lambda: c.Resume(**ids),
            "answer": lambda: c.AnswerQuestion(**ids, text="this"),
            "cancel": lambda: c.Cancel(**ids),
            "skip": lambda: c.Skip(**ids),
            "by_person": lambda: c.CompleteByPerson(**ids),
        }[verb]()
        self.give(command, getattr(self.reference, verb)(key))

    @rule(pick=PICK, agent=st.sampled_from(["claude", "codex"]), seconds=st.sampled_from([1, 600]))
    def transfer(self, pick: int, agent: str, seconds: int) -> None:
        key = self.key(pick)
        command = c.Transfer(task_id=self.ids[key], actor="ada", agent=agent, timeout_s=seconds)
        self.give(command, self.reference.transfer(key, agent, seconds))

    @rule(pick=PICK, fresh=st.booleans())
    def retry(self, pick: int, fresh: bool) -> None:
        key = self.key(pick)
        self.give(
            c.Retry(task_id=self.ids[key], actor="ada", fresh=fresh), self.reference.retry(key, fresh=fresh)
        )

    @rule(pick=PICK)
    def promote(self, pick: int) -> None:
        key = self.key(pick)
        self.give(c.Promote(task_id=self.ids[key]), self.reference.promote(key, by_hand=True))

    @rule(agent=st.sampled_from(["claude", "codex"]))
    def the_provider_is_seen_to(self, agent: str) -> None:
        closed = self.reference._closed(agent)
        if closed:
            del self.reference.pools[agent]
        self.give(c.OpenPool(pool=agent, actor="ada"), "" if closed else "not_found")

    @rule(pick=PICK, really=st.integers(0, 9))
    def archive(self, pick: int, really: int) -> None:
        if really == 0:  # nothing happens to it afterwards
            key = self.key(pick)
            self.give(c.Archive(task_id=self.ids[key], actor="ada"), self.reference.archive(key))

    # -- what holds after every step

    @invariant()
    def the_store_agrees_with_the_model(self) -> None:
        for key, task_id in self.ids.items():
            task, reference = self.rig.task(task_id), self.reference.tasks[key]
            ours = {
                "status": str(task.status), "generation": task.generation, "epoch": task.epoch,
                "unmet": task.unmet, "due": task.next_attempt_at_ms, "retries": task.retries,
                "losses": task.losses, "pin": task.pinned_agent, "linger": task.lingering_epoch,
                "ready": task.ready, "done": task.done_epoch,
            }  # fmt: skip
            theirs = {name: reference[name] for name in ours if name not in ("unmet", "ready")}
            assert ours == theirs | {"unmet": len(reference["unmet"]), "ready": self.reference.ready(key)}, (
                key
            )

    @invariant()
    def the_promises_hold(self) -> None:
        self.steps += 1
        if self.ids and self.steps % 5 == 0:
            self.check()

    def check(self) -> None:
        self.rig.audit()
        found = promises.check(self.rig.history())
        assert [violation for finding in found for violation in finding.violations] == []
        for view in self.rig.views().values():
            assert view.why, f"{view.key} waits for nothing named (L3)"

    def teardown(self) -> None:
        if self.ids:
            self.check()
        self.rig.store.close()


class InFile(AgainstModel):
    """The same over a file, which every new owner opens again."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="muster-model-")
        self.path = Path(self._folder.name) / "state.db"
        super().__init__()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self._folder.cleanup()


def search(examples: int) -> settings:
    """What one run of the suite spends on it; `--hypothesis-profile=long` searches on."""
    if settings.get_current_profile_name() == "long":
        return settings()
    return settings(
        max_examples=examples,
        stateful_step_count=60,
        deadline=None,
        print_blob=True,
        derandomize="CI" in os.environ,
        suppress_health_check=[HealthCheck.too_slow],
    )


@pytest.mark.promise("S1", "S3", "S4", "S5", "S7", "S8", "S10", "S11", "S16", "L3")
class TestInMemory(AgainstModel.TestCase):  # type: ignore[misc,name-defined]
    settings = search(60)


@pytest.mark.promise("S1", "S2", "S7")
class TestInFile(InFile.TestCase):  # type: ignore[misc,name-defined]
    settings = search(15)
