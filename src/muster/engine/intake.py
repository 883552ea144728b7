"""Taking work in: plans and their tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.engine.ids import Ids
from muster.engine.view import View
from muster.model import commands as c
from muster.model.answers import Done, Enqueued
from muster.model.errors import BadInput, IllegalMove
from muster.model.graph import find_cycle
from muster.model.moves.waiting import enqueued
from muster.model.rows import WORKSPACE_ID, Lane, NewTask, Plan
from muster.ports.store import Existing


class Intake:
    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self.lanes: dict[int, Lane] = {}
        self._lane_ids: dict[tuple[int, str, tuple[str, ...]], int] = {}

    def forget_lanes(self) -> None:
        self.lanes.clear()
        self._lane_ids.clear()

    def know_lanes(self, lanes: Iterable[Lane]) -> None:
        """Lanes are kept in memory: they are few, and every claim looks through them."""
        for lane in lanes:
            self.lanes[lane.id] = lane
            self._lane_ids[lane.plan_id, lane.agent, lane.capabilities] = lane.id

    async def set_ticked(self, view: View, command: c.SetTicked) -> Done:
        await view.tx.set_ticked(command.plan_id, command.event_id)
        return Done()

    async def enqueue(self, view: View, command: c.Enqueue) -> Enqueued:
        """Adds what the plan does not hold yet.  Raises BadInput and adds nothing where the tasks do not fit.

        A box that was ticked in the file since completes its task, by a person's word.
        """
        await view.flush()  # what a neighbour in this batch has added or completed is to be seen
        found = await self._find_plan(view, command)
        known = await view.tx.existing(found.id) if found else {}
        self._check(command, known)
        plan = found or await self._new_plan(view, command)
        changed, completed = [], []
        fresh: dict[str, int] = {}
        done = {key for key, task in known.items() if task.done}
        for spec in command.tasks:
            key = spec.key
            if key is None or key not in known:
                task_id = self._ids.next(view.now.wall_ms)
                fresh[key or str(task_id)] = task_id
                if spec.done and key is not None:
                    done.add(key)
                continue
            task = known[key]
            if spec.done and not task.done and await self._tick(view, command, task.id):
                completed.append(key)
                done.add(key)
            if (task.title, task.description, task.agent) != (spec.title, spec.description, spec.agent):
                changed.append(key)
        ids = {key: task.id for key, task in known.items()} | fresh
        numbers = iter(fresh.values())
        for spec in command.tasks:
            if spec.key is None or spec.key not in known:
                await self._add(view, command, plan, spec, task_id=next(numbers), ids=ids, done=done)
        return Enqueued(
            plan=plan.name,
            plan_id=plan.id,
            added=len(fresh),
            existing=len(command.tasks) - len(fresh),
            changed=tuple(changed),
            completed=tuple(completed),
        )

    async def _find_plan(self, view: View, command: c.Enqueue) -> Plan | None:
        if command.source is not None:
            return await view.tx.plan_by_source(WORKSPACE_ID, command.source)
        return await view.tx.plan_by_name(WORKSPACE_ID, command.plan)

    async def _new_plan(self, view: View, command: c.Enqueue) -> Plan:
        taken = await view.tx.plan_names(WORKSPACE_ID)
        name, number = command.plan, 2
        while name in taken:
            name, number = f"{command.plan}-{number}", number + 1
        plan = Plan(
            id=self._ids.next(view.now.wall_ms),
            workspace_id=WORKSPACE_ID,
            name=name,
            source=command.source,
            created_at_ms=view.now.wall_ms,
            ticked_event_id=0,
        )
        await view.tx.add_plan(plan)
        return plan

    def _check(self, command: c.Enqueue, known: Mapping[str, Existing]) -> None:
        edges: dict[str, tuple[str, ...]] = {}
        for spec in command.tasks:
            if spec.key is None:
                continue
            if spec.key in edges:
                raise BadInput(f"task {spec.key} is given twice; nothing was added")
            edges[spec.key] = spec.depends_on
        for spec in command.tasks:
            for parent in spec.depends_on:
                if parent not in edges and parent not in known:
                    raise BadInput(
                        f"task {spec.key or spec.title} depends on {parent}, which does not exist; "
                        "nothing was added"
                    )
        cycle = find_cycle(edges)
        if cycle is not None:
            raise BadInput(f"dependencies form a cycle: {' -> '.join(cycle)}; nothing was added")

    async def _tick(self, view: View, command: c.Enqueue, task_id: int) -> bool:
        await view.load([task_id])
        if view.task(task_id).generation > 1:
            # A retry came after the tick: the box is from the life before.
            return False
        try:
            view.run(task_id, c.CompleteByPerson(task_id=task_id, actor=command.actor))
        except IllegalMove:
            # An agent holds it right now: its own word will come.
            return False
        return True

    async def _add(
        self,
        view: View,
        command: c.Enqueue,
        plan: Plan,
        spec: c.Spec,
        *,
        task_id: int,
        ids: Mapping[str, int],
        done: set[str],
    ) -> None:
        parents = [(ids[parent], parent in done) for parent in dict.fromkeys(spec.depends_on)]
        decision = enqueued(
            spec,
            task_id=task_id,
            workspace_id=WORKSPACE_ID,
            plan_id=plan.id,
            lane_id=await self._lane(view, plan.id, spec),
            unmet=sum(not met for _, met in parents),
            actor=command.actor,
            now=view.now,
        )
        view.add(decision)
        view.insert(
            NewTask(
                task_id=task_id,
                key=spec.key,
                title=spec.title,
                description=spec.description,
                agent=spec.agent,
                epic=spec.epic,
                feature=spec.feature,
                created_by=spec.created_by or command.actor,
                created_at_ms=view.now.wall_ms,
                dependencies=tuple(parents),
            ),
            decision.task,
        )

    async def _lane(self, view: View, plan_id: int, spec: c.Spec) -> int:
        identity = (plan_id, spec.agent or "", tuple(sorted(spec.capabilities)))
        lane_id = self._lane_ids.get(identity)
        if lane_id is None:
            lane_id = self._ids.next(view.now.wall_ms)
            lane = Lane(lane_id, WORKSPACE_ID, *identity)
            await view.tx.add_lane(lane)
            self.know_lanes([lane])
        return lane_id
