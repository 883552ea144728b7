"""A plan, its file and what keeps them in step: real files, a real store, a clock of the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from engine_rig import Rig
from msgspec import convert, to_builtins

from muster.engine.batch import drive
from muster.engine.moved_boxes import OtherFiles
from muster.engine.services.plan_looks import FileRules
from muster.engine.services.plan_syncer import PlanSyncer
from muster.engine.services.ticker import Ticker
from muster.model.edits import OF_THE_FILE, UpdatePlan
from muster.model.errors import BadPlan
from muster.model.people import THE_FILE
from muster.model.states import FOR_ITS_FILE
from muster.plans import markdown
from muster.plans.files import LocalPlanFiles
from muster.runtimes.local import LocalWakeups

PLAN = "# P\n\n- [ ] A {#a}\n- [ ] B {#b after=a}\n- [ ] C {#c after=a}\n"


class World:
    """A plan, its file, and the services between them; `syncer` and `ticker` are of one owner."""

    def __init__(self, rig: Rig, folder: Path, text: str = PLAN, *, head: str = "h1") -> None:
        """`head` is where the checkout of its file stands; empty: it is in none."""
        self.rig, self.folder, self.path = rig, folder, folder / "plan.md"
        self.head: str | None = head
        self.reachable = False
        self.agent = ""
        """Whom settings give tasks to that name nobody."""
        self.known: Collection[str] = ()
        """That its file was read for the last time."""
        self.path.write_text(text)
        rig.register()
        rig.do(self.wanted("plan.md", "", text.encode()))
        self.restart()
        self.pass_s(3)

    def restart(self, engine: Any = None, looked: Callable[[], None] = lambda: None) -> None:
        """Another owner: it knows what is in the store."""
        rig, files = self.rig, LocalPlanFiles(folder=self.folder, now_s=self.wall_s)
        self.others = others = OtherFiles(engine or rig, self.titles, in_thread=at_once)
        self.ticker = Ticker(rig.clock, rig.reads, others, files, in_thread=at_once)

        async def make() -> PlanSyncer:
            return PlanSyncer(
                *(rig.clock, rig.reads, others, files, self.ticker),
                policy=rig.policy,
                rules=FileRules(debounce_s=2.0, settle_s=30.0, in_reach=self.reachable),
                wanted=self.wanted,
                left=others.left,
                looked=looked,
                head_of=lambda _: self.head,
                follow=lambda _: None,
                wakeups=LocalWakeups(),
                in_thread=at_once,
            )

        self.syncer = asyncio.run(make())

    def wall_s(self) -> float:
        return self.rig.clock.present.wall_ms / 1000

    def wanted(self, source: str, order: str, data: bytes, known: Collection[str] = ()) -> UpdatePlan:
        self.known = known
        document = markdown.parse(markdown.decode(data, source), source)
        bodies = [to_builtins(task) for task in document.tasks]
        tasks = [{name: value for name, value in body.items() if name not in OF_THE_FILE} for body in bodies]
        for task in tasks if self.agent else ():
            task.setdefault("agent", self.agent)
        body = {"plan": document.name, "source": source, "tasks": tasks, "actor": THE_FILE}
        return convert(body | {"inReach": self.reachable}, UpdatePlan)

    def titles(self, source: str) -> dict[str, str] | None:
        try:
            document = markdown.parse((self.folder / source).read_text(), source)
        except (OSError, BadPlan):
            return None
        return {task.key: task.title for task in document.tasks}

    def write(self, *changes: str, text: str | None = None) -> None:
        """As an editor that replaces the file; `changes` are old, new, old, new..."""
        text = self.path.read_text() if text is None else text
        for old, new in zip(changes[::2], changes[1::2], strict=True):
            assert old in text
            text = text.replace(old, new)
        beside = self.folder / "new"
        beside.write_text(text)
        beside.replace(self.path)

    def pass_s(self, seconds: float, step_s: int = 1) -> None:
        """Second by second, as the loops would."""
        for _ in range(round(seconds / step_s)):
            self.rig.clock.advance(step_s)
            asyncio.run(self.syncer.run_once())
            asyncio.run(self.ticker.run_once())

    def claim(self, key: str) -> Any:
        jobs = {job.key: job for job in self.rig.started(slots=9)}
        return jobs[key]

    @property
    def conflicts(self) -> dict[str, str]:
        """By key, what waits for a person."""
        plans = drive(self.rig.reads.plan_sources())
        states = [drive(self.rig.reads.sync_state(plan.id)) for plan in plans]
        return {one.key: f"{one.kind}: {one.why}" for state in states for one in state.waiting}

    @property
    def statuses(self) -> dict[str, str]:
        return self.rig.statuses()

    @property
    def text(self) -> str:
        return self.path.read_text()


def held(world: World) -> set[str]:
    """Keys of what waits for what its plan's file says."""
    views = world.rig.views().values()
    return {view.key for view in views if view.status == "PAUSED" and view.paused_reason in FOR_ITS_FILE}


async def at_once(call: Callable[..., Any], *given: object) -> Any:
    return call(*given)
