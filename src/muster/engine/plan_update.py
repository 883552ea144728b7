"""Changing what was taken in: single tasks, a plan whose file was edited, a plan that nobody wants any more."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from muster.engine.dependencies import Node, cycle_with, told_cycle
from muster.engine.enqueue import Enqueuer, lane_key, ticker
from muster.engine.inputs import as_compared
from muster.engine.moved_boxes import namesakes
from muster.engine.new_names import refuse_unfit_tags
from muster.engine.plan_files import join_file, note_edited, note_taken_in
from muster.engine.view import View, moved
from muster.model import breaker
from muster.model import commands as c
from muster.model.answers import Enqueued, Moved
from muster.model.edited_elsewhere import done_again, without_edited
from muster.model.edits import (
    EDITABLE,
    CancelPlan,
    Change,
    Edit,
    EditTask,
    KeptTask,
    PlanAdded,
    PlanCancelled,
    PlanDiff,
    PlanUpdated,
    RenameBox,
    Renamed,
    UpdatePlan,
    compare,
    differences,
    task_fields_of,
    without,
)
from muster.model.errors import BadInput, Conflict, NotFound, PreconditionFailed
from muster.model.identity import NOTHING_KNOWN, Identity, as_known, asked
from muster.model.moved import refusal
from muster.model.moves.decision import refuse_changed
from muster.model.names import free_name
from muster.model.people import ATTEMPT
from muster.model.plan_sync import JoinFile
from muster.model.rows import Plan
from muster.model.states import FINAL, HELD, FailedDependency, TaskStatus
from muster.model.task import Now, Task, TaskFields
from muster.model.wording import counted

KEPT_CHARS_MAX = 2000
"""As much of an old text stands in the audit."""
NAMED_MAX = 3
"""A refusal names no more tasks."""


class _Known(NamedTuple):
    """The plan of a file, by the keys of the tasks that its boxes are."""

    command: c.Enqueue
    kept: Mapping[str, KeptTask] = MappingProxyType({})
    identity: Identity = NOTHING_KNOWN
    boxes: Mapping[str, int] = MappingProxyType({})
    """What boxes are called otherwise now, each with its task."""
    other: Mapping[str, str] = MappingProxyType({})
    """By key, the boxes of new tasks that are not called by it."""
    plan_id: int = 0

    def ids(self, added: Enqueued) -> dict[str, int]:
        """The numbers of all its tasks by key, with those that were added."""
        found = {key: task.id for key, task in self.kept.items()}
        pairs = zip(self.command.tasks, added.task_ids, strict=True)
        return found | {spec.key or "": task_id for spec, task_id in pairs}


class PlanUpdater:
    def __init__(self, enqueuer: Enqueuer) -> None:
        self._enqueuer = enqueuer
        self._policy = enqueuer.policy
        self._inputs = enqueuer.inputs

    async def add(self, view: View, command: c.Enqueue) -> Enqueued:
        """Adds what a plan does not hold yet.  Of a file, boxes that are called otherwise now are still the same
        tasks, and what has not begun of them is what the file says.

        Raises BadInput, and BoxesMoved, and changes nothing where a person has to say which task a box is.
        """
        await view.settle()
        await view.flush()
        whole = command.of_file and all(spec.key for spec in command.tasks)
        plan = await self._enqueuer.find_plan(view, command) if whole else None
        if plan is None:
            if whole:
                await _refuse_moved(view, 0, command, command, [spec.key or "" for spec in command.tasks])
            return await self._enqueuer.enqueue(view, command)
        known = await self._known(view, plan, command)
        filled = tuple(map(self._policy.filled, known.command.tasks))
        shown = as_compared(filled, known.kept)
        order = command.order or plan.task_order
        diff = compare(plan.name, shown, known.kept, known.identity.renamed, order=order)
        await _refuse_moved(view, plan.id, command, known.command, diff.added)
        anew = {one.key for one in diff.renamed if one.anew}
        if anew:
            edges = _edges(known.command, known.kept, known.kept.keys() - anew)
            if await cycle_with(view, edges) is not None:
                anew = set()  # with what others wait for until now it cannot be so: it is told as changed
        added = await self._enqueuer.enqueue(view, known.command)
        await self._note_boxes(view, known, added)
        if anew:
            ids = known.ids(added)
            await view.load([ids[key] for key in anew])
            fresh, sealed = await self._shown(view, (one for one in filled if one.key in anew), known.kept)
            specs = {spec.key or "": spec for spec in fresh}
            for change in diff.changed:
                if (key := change.key) in anew and view.task(ids[key]).status in EDITABLE:
                    fields = _wanted(specs[key], known.kept[key], change)
                    await self._edit(
                        view, known.kept[key], fields, ids, actor=command.actor, sealed=sealed.get(key)
                    )
            await view.flush()
        changed = tuple(change for change in diff.changed if change.key not in anew)
        told = {name: getattr(added, name) for name in Enqueued.__struct_fields__}
        told["changed"] = tuple(change.key for change in changed)
        return PlanAdded(**told, diff=replace(diff, plan=added.plan, changed=changed))

    async def _known(self, view: View, plan: Plan, command: c.Enqueue, leave: Collection[str] = ()) -> _Known:
        """The plan of a file by the keys of its tasks, and its boxes' names.

        Raises BadInput on doubts about tasks that are not to be left as they are.
        """
        tasks = await view.tx.kept_tasks(plan.id)
        known, identity, other = as_known(command, tasks, await view.tx.box_names(plan.id))
        if doubts := [doubt for doubt in identity.doubts if doubt.key not in leave]:
            raise BadInput(*asked(doubts))
        renamed = list(identity.renamed)
        kept = {task.key: task for task in tasks}
        boxes = {one.box: kept[one.key].id for one in renamed}
        taken = {task.box for task in tasks} | {spec.key or "" for spec in command.tasks}
        for task in tasks:
            found = identity.tasks.get(task.box) if task.from_file else None
            if found is not None and found.id != task.id and task.id not in boxes.values():
                # Another task's box has its name now.
                name = free_name(task.box, taken)
                taken.add(name)
                boxes[name] = task.id
                renamed.append(Renamed(key=task.key, was=task.box, box=name))
        await view.load([kept[one.key].id for one in renamed])
        for one in renamed:
            task_id = kept[one.key].id
            view.run(task_id, RenameBox(task_id=task_id, actor=command.actor, was=one.was, box=one.box))
        if joined := tuple(task.id for task in identity.joined):
            await join_file(view, JoinFile(task_ids=joined, actor=command.actor))
        return _Known(known, kept, identity, boxes, other, plan.id)

    async def _note_boxes(self, view: View, known: _Known, added: Enqueued) -> None:
        ids = known.ids(added)
        boxes = {**known.boxes, **{box: ids[key] for key, box in known.other.items() if key in ids}}
        if boxes:
            await view.tx.set_boxes(known.plan_id, boxes)

    async def update(self, view: View, command: UpdatePlan) -> PlanUpdated:
        """Adds, edits and takes out until the plan is what its file says; one event for each task.

        What runs or is done stays as it is, and the answer's diff says so.  Raises BadInput and changes nothing
        where the tasks do not fit, and as `add`.
        """
        if not all(spec.key for spec in command.tasks):
            raise BadInput("a task without a key cannot be told from the others; nothing was changed")
        await view.settle()
        await view.flush()
        plan, given = await self._enqueuer.find_plan(view, command), command
        known = await self._known(view, plan, command, command.leave) if plan else _Known(command)
        kept, asked = known.kept, known.command
        tasks = tuple(self._policy.filled(t) for t in known.command.tasks if t.key not in command.leave)
        known = known._replace(command=replace(known.command, tasks=tasks))
        command = replace(command, tasks=tasks)
        filled, sealed = await self._shown(view, tasks, kept)
        order = command.order or (plan.task_order if plan else "")
        name = plan.name if plan else command.plan
        whole = compare(name, filled, kept, known.identity.renamed, order=order)
        again = [key for key in command.again if key in kept and kept[key].status is TaskStatus.COMPLETED]
        again.sort(key=lambda key: kept[key].is_group)  # a group ends with what is below it
        diff = whole = done_again(without(whole, command.leave), again)
        if plan and command.own:
            diff = without_edited(diff, (await view.tx.sync_state(plan.id)).edited, filled, kept)
        await _refuse_moved(view, plan.id if plan else 0, given, asked, (*diff.added, *diff.restored))
        await self._refuse_cycle(view, _edges(command, kept, _waiting_as_before(whole, diff)))
        added = await self._enqueuer.enqueue(view, command)
        await view.flush()
        await self._note_boxes(view, known, added)
        ids = known.ids(added)
        specs = {spec.key or "": spec for spec in filled}
        await view.load([task.id for task in kept.values()])
        anew = [specs[key] for key in (*diff.restored, *again) if key in specs]
        done, unproved = await self._restore(view, command, anew, ids)
        for change in diff.changed:
            if not change.kept and view.task(ids[change.key]).status in EDITABLE:
                fields = _wanted(specs[change.key], kept[change.key], change)
                await self._edit(
                    view, kept[change.key], fields, ids, actor=command.actor, sealed=sealed.get(change.key)
                )
        for change in diff.removed:
            if not change.kept:
                self._take_out(view, view.task(ids[change.key]), command.actor)
        if plan and not command.own:
            keys = {spec.key or "" for spec in tasks}
            await note_taken_in(view, plan.id, keys, kept=kept, diff=diff, leave=command.leave)
        await view.flush()
        return PlanUpdated(
            plan=added.plan,
            plan_id=added.plan_id,
            added=added.added,
            existing=added.existing,
            completed=(*added.completed, *done),
            unproved=(*added.unproved, *unproved),
            diff=replace(diff, plan=added.plan),
        )

    async def _restore(
        self, view: View, command: UpdatePlan, specs: Iterable[c.Spec], ids: Mapping[str, int]
    ) -> tuple[list[str], list[str]]:
        """Of tasks that come back, by key: those that are done, and those that are ticked and are not."""
        by_key = {spec.key or "": spec for spec in specs}
        ticked = {key: ids[key] for key, spec in by_key.items() if spec.done}
        groups = {key for key in ticked if by_key[key].is_group}
        tasks = {key: number for key, number in ticked.items() if key not in groups}
        done = await self._done(view, command, tasks)
        for key in by_key:
            if key in done or key not in tasks:  # nobody is to do what may be done
                view.run(ids[key], c.Retry(task_id=ids[key], actor=command.actor))
        for key in done:
            view.run(ids[key], c.CompleteByPerson(task_id=ids[key], actor=ticker(command)))
        if groups:
            await view.settle()  # a group ends with what is below it, whatever its box says
            done += [key for key in groups if view.task(ids[key]).final]
        return done, [key for key in ticked if key not in done]

    async def _done(self, view: View, command: UpdatePlan, ticked: Mapping[str, int]) -> list[str]:
        """Of tasks that come back ticked: those that are done by a person's word."""
        if command.vouched and not command.actor.startswith(ATTEMPT):
            return list(ticked)
        proves = self._enqueuer.proves
        return [key for key, number in ticked.items() if await proves(view, command, view.task(number))]

    def _take_out(self, view: View, task: Task, actor: str) -> None:
        if task.status in FINAL:
            view.run(task.id, c.Archive(task_id=task.id, actor=actor, removed=True))
        else:
            reason = "it is no longer in the plan file"
            view.run(task.id, c.Cancel(task_id=task.id, actor=actor, reason=reason, removed=True))

    async def edit(self, view: View, command: EditTask) -> Moved:
        """Raises NotFound, BadInput for a dependency that is not there or makes a cycle, IllegalMove."""
        await view.settle()
        await view.flush()
        kept = await view.tx.kept_task(command.task_id)
        if kept is None:
            raise NotFound(f"there is no task {command.task_id}", "muster task list")
        await view.load([kept.id])
        refuse_changed(view.task(kept.id), command.if_seen)
        given = self._absolute(command.given, view.now)
        ids = {name: number for number, name, _ in kept.dependencies}
        if "depends_on" in given:
            named = await self._named(view, kept, given["depends_on"])
            ids |= named
            given["depends_on"] = tuple(named)
            edges: dict[Node, tuple[Node, ...]] = {kept.id: tuple(named.values())}
            await self._refuse_cycle(view, edges)
        refuse_unfit_tags((tag for tag in given.get("tags") or () if tag not in kept.tags), "/tags")
        sealed = None
        if (context := given.get("input_context")) is not None:
            given["input_context"], sealed = await self._inputs.edited(view, kept, context)
        before = task_fields_of(kept)
        fields = self._policy.filled(task_fields_of(replace(before, **given)))
        plan_id = view.task(kept.id).plan_id
        if kept.from_file and plan_id and (names := differences(before, fields)):
            await note_edited(view, plan_id, kept, names)
        await self._edit(view, kept, fields, ids, actor=command.actor, sealed=sealed)
        await view.flush()
        return moved(await view.settled(view.task(kept.id)))

    def _absolute(self, given: Mapping[str, Any], now: Now) -> dict[str, Any]:
        """With points in time where durations were given."""
        values = dict(given)
        for span, name in (("delay_s", "not_before_ms"), ("expires_s", "expires_at_ms")):
            if span in values:
                seconds = values.pop(span)
                values[name] = None if seconds is None else now.wall_ms + seconds * 1000
        return values

    async def _named(self, view: View, kept: KeptTask, names: Iterable[str]) -> dict[str, int]:
        """The numbers of tasks by key or number; a task of the same plan goes by its key, also where its number
        was given.  Raises BadInput for one that is not there."""
        task = view.task(kept.id)
        names = list(names)
        found_keys = await view.tx.existing(task.plan_id or 0, names)
        keys = {key: found.id for key, found in found_keys.items()}
        numbers = {int(name) for name in names if name not in keys and name.isascii() and name.isdigit()}
        outside = {found.id for found in await view.tx.existing_ids(numbers)}
        plan = await view.tx.plan(task.plan_id or 0)
        by_id = {
            text.task_id: text.key
            for text in await view.tx.job_texts(outside)
            if plan and text.plan == plan.name
        }
        by_id |= {number: key for key, number in keys.items()}
        ids: dict[str, int] = {}
        for name in names:
            if name not in keys and not (name.isascii() and name.isdigit() and int(name) in outside):
                raise BadInput(
                    f"task {kept.key} would wait for {name}, which does not exist; nothing was changed"
                )
            number = keys[name] if name in keys else int(name)
            ids[by_id.get(number, str(number))] = number
        return ids

    async def _shown(
        self, view: View, specs: Iterable[c.Spec], kept: Mapping[str, KeptTask]
    ) -> tuple[tuple[c.Spec, ...], dict[str, str]]:
        """As they are compared with what is kept: with stars in place of secrets, and these sealed, by key.

        Raises BadInput.
        """
        found, sealed = [], {}
        for spec in specs:
            task, context = kept.get(spec.key or ""), spec.input_context
            if task is not None and context:
                context, sealed[task.key] = await self._inputs.edited(view, task, context)
            found.append(replace(spec, input_context=context) if context is not spec.input_context else spec)
        return tuple(found), sealed

    async def _edit(
        self,
        view: View,
        kept: KeptTask,
        fields: TaskFields,
        ids: Mapping[str, int],
        *,
        actor: str,
        sealed: str | None = None,
    ) -> None:
        """`sealed`: the secrets of its input context, where that is in question."""
        if not fields.is_group:
            self._policy.refuse_bare_script(fields)
        before = task_fields_of(kept)
        changed = differences(before, fields)
        task = view.task(kept.id)
        met = {number: done for number, _, done in kept.dependencies}
        parents = [ids[name] for name in fields.depends_on]
        await view.load(parents)
        edges = {number: met.get(number, False) or view.task(number).done for number in parents}
        anew = "depends_on" in changed
        parent_id = ids.get(fields.parent) if fields.parent is not None else None
        lane = lane_key(task.plan_id or 0, fields, pinned_agent=task.pinned_agent)
        view.run(
            kept.id,
            Edit(
                task_id=kept.id,
                actor=actor,
                task_fields=fields,
                changed={name: _kept_before(name, getattr(before, name)) for name in changed},
                lane_id=await view.tx.lane_id(lane, view.now.wall_ms),
                unmet=sum(not done for done in edges.values()) if anew else task.unmet,
                parent_task_id=parent_id,
                input_sealed=sealed if "input_context" in changed else None,
            ),
        )
        if sealed and "input_context" not in changed:
            # The same values: they heal what cannot be opened any more.
            await view.tx.reseal_input(kept.id, sealed)
        if anew:
            await view.tx.set_dependencies(kept.id, edges)
        if fields.on_failed is not FailedDependency.BLOCK:
            for number, done in edges.items():
                if not done and view.task(number).dead:
                    view.note_failed(number, kept.id)

    async def _refuse_cycle(self, view: View, edges: Mapping[Node, tuple[Node, ...]]) -> None:
        """Raises BadInput where what is to be, with the store's word on all other tasks, has a cycle (S8)."""
        cycle = await cycle_with(view, edges)
        if cycle is not None:
            told = await told_cycle(view, cycle)
            raise BadInput(f"dependencies form a cycle: {told}; nothing was changed")

    async def cancel(self, view: View, command: CancelPlan) -> PlanCancelled:
        """One page of it.  Raises NotFound and PreconditionFailed."""
        await view.settle()
        await view.flush()
        plan = await view.tx.plan_by_name(command.plan)
        if plan is None:
            raise NotFound(f"there is no plan {command.plan!r}", "muster plan list")
        if command.forget and command.below is None:
            await self._forget(view, plan, command.actor)
        ids = await view.tx.unfinished(plan.id, command.below, command.limit, ended=command.forget)
        await view.load(ids)
        if command.seen_event is not None:
            await _refuse_unseen(view, plan, command.seen_event, command.below)
        stopped = sum(view.task(task_id).status in HELD for task_id in ids)
        open_ids = [task_id for task_id in ids if view.task(task_id).status not in FINAL]
        for task_id in open_ids:
            view.run(task_id, c.Cancel(task_id=task_id, actor=command.actor, reason=command.reason))
        for task_id in ids if command.forget else ():
            view.run(task_id, c.Archive(task_id=task_id, actor=command.actor))
        return PlanCancelled(
            plan=plan.name,
            cancelled=sum(not view.task(task_id).is_group for task_id in open_ids),
            stopped=stopped,
            archived=sum(not view.task(task_id).is_group for task_id in ids) if command.forget else 0,
            below=ids[-1] if len(ids) == command.limit else None,
        )

    async def _forget(self, view: View, plan: Plan, actor: str) -> None:
        """Raises Conflict while its agents are at work."""
        if number := await view.tx.at_work(plan.id):
            tasks = "1 task is" if number == 1 else f"{number} tasks are"
            raise Conflict(
                f"{tasks} at work for plan {plan.name}; nothing was changed",
                f"muster plan cancel {plan.name} --wait, then again",
            )
        decision = breaker.forget(plan, actor, view.now)
        await view.tx.update_plan(decision.plan)
        assert decision.event is not None
        view.record(decision.event)


async def _refuse_unseen(view: View, plan: Plan, event_id: int, below: int | None) -> None:
    """Raises PreconditionFailed where more is to end than was seen, or somebody has paused or resumed the plan.

    Looked at after what is to end was read: in a database that servers share, what another transaction has added
    until then is found by this.  A page that follows on another one is only asked about its own part.
    """
    more = await view.tx.more_to_end(plan.id, event_id, below)
    told = [
        f"{counted(len(keys), 'task')} {what} ({_some(keys)})"
        for what, keys in (
            ("added", [key for key, new in more if new]),
            ("opened again", [key for key, new in more if not new]),
        )
        if keys
    ]
    if below is None and await view.tx.steered_since(plan.id, event_id):
        told.append("paused or resumed")
    if told:
        kept = "nothing was changed" if below is None else "what was ended by this before stays so"
        raise PreconditionFailed(
            f"plan {plan.name} has changed since you looked: {', '.join(told)}; {kept}",
            f"muster plan show {plan.name}",
        )


def _some(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - NAMED_MAX} others" if len(keys) > NAMED_MAX else ""
    return f"{', '.join(keys[:NAMED_MAX])}{more}"


async def _refuse_moved(
    view: View, plan_id: int, command: c.Enqueue, known: c.Enqueue, keys: Iterable[str]
) -> None:
    if moved := await namesakes(view.tx, plan_id, command, known, keys=keys, now_ms=view.now.wall_ms):
        raise refusal(moved, command.source)


def _waiting_as_before(whole: PlanDiff, diff: PlanDiff) -> set[str]:
    """Keys of the tasks that differ, and keep what they wait for."""
    anew = {one.key for one in diff.changed if "depends_on" in one.fields and not one.kept}
    return {change.key for change in whole.changed} - anew


def _edges(
    command: c.Enqueue, kept: Mapping[str, KeptTask], staying: Collection[str]
) -> dict[Node, tuple[Node, ...]]:
    """What each task of the file waits for once the update is done; not those that stay as they are."""
    keys = {spec.key for spec in command.tasks}

    def node(name: str) -> Node:
        if name in kept:
            return kept[name].id
        return int(name) if name not in keys and name.isascii() and name.isdigit() else name

    return {
        node(spec.key or ""): tuple(node(name) for name in spec.depends_on)
        for spec in command.tasks
        if spec.key not in staying
    }


def _wanted(spec: c.Spec, kept: KeptTask, change: Change) -> TaskFields:
    """What the file says; where both wait for the same in the end, the kept dependencies know more of it."""
    said = task_fields_of(spec, kept.created_at_ms)
    return replace(task_fields_of(kept), **{name: getattr(said, name) for name in change.fields})


def _kept_before(name: str, value: Any) -> Any:
    if name == "input_context":
        return "(not kept)"  # it may hold secrets, and the audit keeps all it is told
    if isinstance(value, str) and len(value) > KEPT_CHARS_MAX:
        return f"{value[:KEPT_CHARS_MAX]}... ({len(value)} characters)"
    return value
