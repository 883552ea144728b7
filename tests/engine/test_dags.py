"""Random plans, worked on by a crew that fails, dies, repeats itself and is heard late."""

from __future__ import annotations

import random
from typing import Any

import pytest
from engine_rig import PATIENT, TOKEN, W1, W2, Rig, complete, enqueue, fail, reap, release
from hypothesis import given
from hypothesis import strategies as st

from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.answers import Claimed, ClaimedJob
from muster.model.states import ErrorKind
from muster.model.views import TaskFilter
from searches import properties

WORKERS = (W1, W2)
SETBACKS = (ErrorKind.CRASH, ErrorKind.TIMEOUT, ErrorKind.QUOTA, ErrorKind.LOST)


@st.composite
def plans(draw: st.DrawFn) -> dict[str, list[str]]:
    size = draw(st.integers(1, 10))
    plan = {}
    for i in range(size):
        parents = draw(st.lists(st.integers(0, i - 1), unique=True, max_size=4)) if i else []
        plan[f"t{i}"] = [f"t{parent}" for parent in parents]
    return {key: plan[key] for key in draw(st.permutations(list(plan)))}


class Crew:
    """Two workers whose every message may be doubled, late, or share a batch with others."""

    def __init__(self, plan: dict[str, list[str]], seed: int) -> None:
        self.plan = plan
        self.dice = random.Random(seed)
        self.rig = Rig(PATIENT)
        for worker_id in WORKERS:
            self.rig.register(worker_id, slots=3)
        self.term = self.rig.new_boot().term
        self.specs = {key: {"max_retries": 10**6} for key in plan}
        self.rig.enqueue(self.first_part(), specs=self.specs)
        self.whole_is_known = False
        self.held: dict[int, ClaimedJob] = {}
        self.granted: set[tuple[int, int]] = set()
        self.said: list[c.Command] = []

    def first_part(self) -> dict[str, list[str]]:
        """Some tasks with all that they wait for; the others are added while the crew is at work."""
        part: set[str] = set()
        wanted = self.dice.sample(list(self.plan), self.dice.randint(0, len(self.plan)))
        while wanted:
            key = wanted.pop()
            part.add(key)
            wanted += [parent for parent in self.plan[key] if parent not in part]
        return {key: after for key, after in self.plan.items() if key in part}

    def work(self, turns: int, trouble: float) -> None:
        for _ in range(turns):
            commands = [self.command(trouble) for _ in range(self.dice.randint(1, 4))]
            self.exchange(commands)
            self.rig.clock.advance(self.dice.choice([0, 1, 40, 400]))
            for task_id in drive(self.rig.reads.due(self.rig.clock.present.wall_ms, 100)):
                self.rig.do(c.Promote(task_id=task_id, term=self.term))

    def command(self, trouble: float) -> c.Command:
        if self.said and self.dice.random() < trouble / 2:
            return self.dice.choice(self.said)
        if not self.whole_is_known and self.dice.random() < 0.2:
            self.whole_is_known = True
            return enqueue(self.plan, specs=self.specs)
        if not self.held or self.dice.random() < 0.4:
            return self.rig.claim_command(self.dice.choice(WORKERS), self.dice.randint(1, 3))
        job = self.dice.choice(list(self.held.values()))
        if self.dice.random() >= trouble:
            return self.dice.choice([self.begin(job), complete(job), complete(job)])
        return self.dice.choice(
            [
                fail(job, self.dice.choice(SETBACKS)),
                release(job),
                reap(job, self.term),
                c.Declare(task_id=job.task_id, epoch=job.epoch, text='"said"'),
                c.StopCrew(stop_by_s=5, actor="ada"),
                c.FreshLeases(term=self.term),
            ]
        )

    def begin(self, job: ClaimedJob) -> c.Start:
        return c.Start(task_id=job.task_id, epoch=job.epoch, token_hash=TOKEN)

    def exchange(self, commands: list[c.Command]) -> None:
        self.said += [command for command in commands if isinstance(command, c.AttemptCommand)]
        outcomes = self.rig.apply(*commands).outcomes
        for command, outcome in zip(commands, outcomes, strict=True):
            if isinstance(command, c.StopCrew | c.FreshLeases | c.Enqueue | c.Claim):
                assert not isinstance(outcome, Exception), outcome
            if isinstance(outcome, Claimed):
                self.take(outcome)
        views = drive(self.rig.reads.task_views(TaskFilter(ids=tuple(self.held) or (0,))))
        for view in views:
            if view.worker is None or view.epoch != self.held[view.id].epoch:
                del self.held[view.id]

    def take(self, claimed: Claimed) -> None:
        statuses = self.rig.statuses()
        for job in claimed.jobs:
            assert (job.task_id, job.epoch) not in self.granted, "granted twice"
            self.granted.add((job.task_id, job.epoch))
            assert all(statuses[parent] == "COMPLETED" for parent in self.plan[job.key]), "out of order"
            self.held[job.task_id] = job

    def turn_to_the_end(self) -> None:
        """No more trouble: everything must come to its end."""
        self.rig.enqueue(self.plan, specs=self.specs)
        for turn in range(500):
            if set(self.rig.statuses().values()) == {"COMPLETED"}:
                return
            self.work(1, 0.0)
            assert turn < 499, self.rig.statuses()


@pytest.mark.promise("S8")
@given(plan=plans(), seed=st.integers(0, 1 << 32), trouble=st.floats(0, 0.9))
@properties(120)
def test_every_task_is_completed_once_and_in_order(
    plan: dict[str, list[str]], seed: int, trouble: float
) -> None:
    crew = Crew(plan, seed)
    try:
        crew.work(12, trouble)
        crew.rig.audit()
        crew.turn_to_the_end()
        crew.rig.audit()
        finished: dict[str, int] = {}
        for event in crew.rig.events():
            if event.event == "completed":
                assert event.key not in finished, "completed twice"
                finished[event.key] = event.id
            if event.event == "unblocked":
                assert all(parent in finished for parent in plan[event.key])
        assert finished.keys() == plan.keys()
        for key, parents in plan.items():
            assert all(finished[parent] < finished[key] for parent in parents)
            assert crew.rig.names(key).count("unblocked") <= 1
    finally:
        crew.rig.store.close()


def unfinished(rig: Rig) -> Any:
    return {key: status for key, status in rig.statuses().items() if status != "COMPLETED"}


def test_a_long_chain_and_a_wide_fan(rig: Rig) -> None:
    plan = {f"c{i}": [f"c{i - 1}"] if i else [] for i in range(30)}
    plan |= {f"f{i}": ["c29"] for i in range(60)} | {"end": [f"f{i}" for i in range(60)]}
    rig.register(slots=1000)
    rig.enqueue(plan)
    for _ in range(32):
        jobs = rig.claim(slots=1000)
        rig.apply(*(complete(job) for job in jobs))
    assert unfinished(rig) == {}
    assert rig.names("end").count("unblocked") == 1
