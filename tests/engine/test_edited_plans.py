"""S19: whatever people do to a plan's file between and during runs, no work is done twice and none is lost."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from edited_plans import Box, Editor
from engine_rig import LEASE_S, Rig, complete
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.edits import KeptTask, UpdatePlan
from muster.plans.markdown import parse, tick
from searches import properties

FILE = "plan.md"
STEPS = 15
told: Counter[str] = Counter()


class Story:
    """A writer, a crew, and who did what."""

    def __init__(self, seed: int) -> None:
        self.editor = Editor(seed)
        self.random = self.editor.random
        self.rig = Rig(Policy(lease_s=LEASE_S, failures_max=0))
        self.rig.register(slots=50)
        self.jobs: list[ClaimedJob] = []
        self.task_of: dict[int, int] = {}
        """By the work that its writer means, the task that has begun or is to do it."""
        self.likes: dict[int, tuple[str, str]] = {}
        """What each work was called when the file was last taken in."""
        self.edits: list[str] = []

    def tell(self) -> None:
        self.save()
        for _ in range(STEPS):
            for _ in range(self.random.choice([0, 1, 1, 2])):
                self.edits.append(self.editor.edit())
            if self.random.random() < 0.8:
                self.save()
            self.work()
            if self.random.random() < 0.7:
                self.tick()
        self.save()
        self.rig.audit()
        self.rig.store.close()
        told["plans"] += 1
        told["edits"] += len(self.edits)

    # -- the crew

    def work(self) -> None:
        self.rig.clock.advance(LEASE_S / 3)
        self.rig.beat("worker-aaaaaaaa", *self.jobs)
        self.jobs += self.rig.started(slots=self.random.randint(0, 3))
        while self.jobs and self.random.random() < 0.6:
            self.rig.do(complete(self.jobs.pop(self.random.randrange(len(self.jobs)))))

    def kept(self) -> dict[str, KeptTask]:
        (plan,) = drive(self.rig.reads.plans())
        return {task.box: task for task in drive(self.rig.reads.kept_tasks(plan.id))}

    def tick(self) -> None:
        """As the Ticker does, of what is done."""
        done = [box for box, task in self.kept().items() if task.status == "COMPLETED"]
        data, _ = tick(self.editor.text.encode(), done, FILE)
        self.editor.tick(data.decode())

    # -- the file

    def save(self) -> None:
        """`plan add`, with or without `--update`; answers what is asked as the writer means it."""
        document = parse(self.editor.text, FILE)
        boxes = dict(zip((task.key for task in document.tasks), self.editor.boxes(), strict=True))
        fields = c.Spec.__struct_fields__
        specs = tuple(c.Spec(**{name: getattr(task, name) for name in fields}) for task in document.tasks)
        command: c.Enqueue = UpdatePlan(plan="plan", source=FILE, tasks=specs, actor="ada")
        before = self.kept() if self.task_of else {}
        by_id = {task.id: task for task in before.values()}
        same: dict[str, str] = {}
        new: tuple[str, ...] = ()
        while doubts := drive(self.rig.queries.diff(self._with(command, same, new))).doubts:
            doubt = doubts[0]
            meant = self.task_of.get(boxes[doubt.box].work)
            told["asked"] += 1
            if meant is not None and by_id[meant].key in {one.key for one in doubt.may_be}:
                same[doubt.box] = by_id[meant].box
            else:
                new += (doubt.box,)
        command = self._with(command, same, new)
        if self.random.random() < 0.5:
            self.rig.do(command)
        else:
            self.rig.do(c.Enqueue(**{n: getattr(command, n) for n in c.Enqueue.__struct_fields__}))
        self.check(boxes, by_id)

    @staticmethod
    def _with(command: Any, same: dict[str, str], new: tuple[str, ...]) -> Any:
        return replace(command, same=same, new_tasks=new)

    def check(self, boxes: dict[str, Box], before: dict[int, KeptTask]) -> None:
        now = self.kept()
        found = {box.work: now[name] for name, box in boxes.items()}
        meant_by = {task_id: work for work, task_id in self.task_of.items()}
        likes = {box.work: (box.title.lower(), box.body) for box in boxes.values()}
        ticked = {box.work: box.done for box in boxes.values()}
        was, self.likes = self.likes, self.likes | likes
        for work, task in found.items():
            meant = self.task_of.get(work)
            if meant == task.id:
                continue
            other = meant_by.get(task.id)
            # Two boxes of the same words are one another's equals, also where one took the other's place.
            twins = other in was and was[other][0] in {was.get(work, likes[work])[0], likes[work][0]}
            # What was put away under these very words is as much this box's as any other's.
            twins = twins or (task.title.lower(), task.description) == likes[work]
            if task.id in before and before[task.id].begun and not (twins or ticked[work]):
                assert not before[task.id].worked, (
                    f"work {work} counts as done by task {task.key}, which is work {other}"
                )
            # A box that took the place of its equal begins nothing where the equal's task has begun.
            goes_on = task.worked or (twins and task.id in before and before[task.id].begun)
            if meant is not None and before[meant].begun and not (ticked[work] or goes_on):
                kept = meant in {one.id for one in found.values()}
                assert kept or before[meant].gone, (
                    f"work {work} of {before[meant].key} ({before[meant].status}) would be done again"
                )
        self.task_of |= {work: task.id for work, task in found.items()}
        mapped = {task.id for task in found.values()}
        left = [task for task in now.values() if task.id not in mapped and task.status == "PENDING"]
        cut = [box for one in self.editor.cut for box in one.all()]
        ids, titles = {self.task_of.get(box.work) for box in cut}, {box.title for box in cut}
        doubled = [task.key for task in left if task.id not in ids and task.title not in titles]
        assert not doubled, f"{doubled} would be done beside what stands in the file"


@pytest.mark.promise("S19")
@properties(40)
@given(st.integers(0, 2**32))
def test_no_work_is_done_twice_or_lost_by_edits(seed: int) -> None:
    """`./run test tests/engine/test_edited_plans.py -s` tells how much of that was tried."""
    Story(seed).tell()
    print(f"plans {told['plans']}, edits {told['edits']}, asked {told['asked']}, done twice 0, lost 0")
