"""What is kept of a plan's file: which boxes are ticked or owed, and which differences wait for a person."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from muster.engine.view import View
from muster.model import breaker
from muster.model import commands as c
from muster.model.answers import Done, Moved
from muster.model.edited_elsewhere import noted, without_agreed
from muster.model.edits import KeptTask, PlanDiff, RenameBox, task_fields_of
from muster.model.people import THE_FILE
from muster.model.plan_sync import JoinFile, SetSync
from muster.model.states import FOR_ITS_FILE, MAY_BEGIN, PauseReason, TaskStatus
from muster.model.task import Task


async def set_ticked(view: View, command: c.SetTicked) -> Done:
    await view.tx.set_ticked(command.plan_id, command.event_id)
    if command.owed is not None:
        state = await view.tx.sync_state(command.plan_id)
        await view.tx.set_sync_state(command.plan_id, replace(state, owed=command.owed))
    return Done()


async def note_edited(view: View, plan_id: int, kept: KeptTask, names: Iterable[str]) -> None:
    """That a person has edited these fields of a task whose box still says what it said."""
    state = await view.tx.sync_state(plan_id)
    edited = noted(state.edited, kept.key, task_fields_of(kept), names)
    await view.tx.set_sync_state(plan_id, replace(state, edited=edited))


async def note_taken_in(
    view: View,
    plan_id: int,
    keys: Collection[str],
    *,
    kept: Mapping[str, KeptTask],
    diff: PlanDiff,
    leave: Collection[str],
) -> None:
    """These tasks are what their boxes say, but for what was left as it is."""
    await _forget_edited(view, plan_id, keys)
    stay = {*leave, *(change.key for change in (*diff.changed, *diff.removed) if change.kept)}
    await free_held(view, plan_id, {kept[key].id for key in stay & kept.keys()})


async def _forget_edited(view: View, plan_id: int, keys: Collection[str]) -> None:
    state = await view.tx.sync_state(plan_id)
    if left := state.edited.keys() & keys:
        edited = {key: fields for key, fields in state.edited.items() if key not in left}
        await view.tx.set_sync_state(plan_id, replace(state, edited=edited))


async def join_file(view: View, command: JoinFile) -> Done:
    """Its box is ticked from now on, and may take it out."""
    await view.load(command.task_ids)
    boxes = {number: kept.box for number in command.task_ids if (kept := await view.tx.kept_task(number))}
    for number, box in boxes.items():
        view.run(number, RenameBox(task_id=number, actor=command.actor, was="", box=box))
    await view.tx.put_in_file(boxes)
    return Done()


async def set_sync(view: View, command: SetSync) -> Done:
    before = await view.tx.sync_state(command.plan_id)
    after = before.otherwise if command.otherwise is None else command.otherwise
    state = command.state
    if state.done_otherwise:
        # What was done when the file was looked at may be to be done again by now.
        await view.load(before.otherwise)
        done = {*state.done_otherwise}
        anew = {
            number: why
            for number, why in before.otherwise.items()
            if number in done and not view.task(number).final
        }
        after = {**after, **anew}
        state = replace(state, done_otherwise=tuple(sorted(done - anew.keys())))
    await _hold(view, before.otherwise, after)
    await view.flush()
    edited = without_agreed(before.edited, command.agreed)
    await view.tx.set_sync_state(command.plan_id, replace(state, edited=edited, otherwise=after))
    plan = await view.tx.plan(command.plan_id)
    if command.said and plan is not None:
        decision = breaker.noted(plan, "plan_synced", command.said, command.actor, view.now)
        await view.tx.update_plan(decision.plan)
        assert decision.event is not None
        view.record(decision.event)
    return Done()


async def free_held(view: View, plan_id: int, stay: Collection[int] = ()) -> None:
    """But for these, its tasks are as its file says, or it has none any more."""
    state = await view.tx.sync_state(plan_id)
    after = {number: why for number, why in state.otherwise.items() if number in stay}
    if after != state.otherwise:
        await _hold(view, state.otherwise, after)
        await view.tx.set_sync_state(plan_id, replace(state, otherwise=after))


async def _hold(view: View, before: Mapping[int, PauseReason], after: Mapping[int, PauseReason]) -> None:
    await view.load([*(before.keys() | after.keys())])
    for number in before.keys() - after.keys():
        if _held(view.task(number)):
            view.run(number, c.Resume(task_id=number, actor=THE_FILE))
    for number, reason in after.items():
        hold(view, number, reason)


def hold(view: View, number: int, reason: PauseReason) -> None:
    """A task that could be begun, or is held for another reason of its file."""
    task = view.task(number)
    begins = task.status in MAY_BEGIN and not task.is_group and not task.accepted  # that is only published
    if _held(task) or begins:
        view.run(number, c.Pause(task_id=number, actor=THE_FILE, reason=reason))


def _held(task: Task) -> bool:
    return task.status is TaskStatus.PAUSED and task.paused_reason in FOR_ITS_FILE


async def hold_back(view: View, outcomes: list[Any]) -> None:
    """What has come back is not begun again as it was, where its box says otherwise by now; `outcomes` say so."""
    back, view.back = view.back, []
    numbers = {task.id for task in back}
    for plan_id in {task.plan_id for task in back if task.plan_id is not None}:
        state = await view.tx.sync_state(plan_id)
        for number in numbers & state.otherwise.keys():
            hold(view, number, state.otherwise[number])
        if anew := numbers.intersection(state.done_otherwise):
            for number in anew:
                hold(view, number, PauseReason.EDIT)
            held = {**state.otherwise, **dict.fromkeys(anew, PauseReason.EDIT)}
            left = tuple(number for number in state.done_otherwise if number not in anew)
            await view.tx.set_sync_state(plan_id, replace(state, otherwise=held, done_otherwise=left))
    held_now = {number for number in numbers if _held(view.task(number))}
    for i, outcome in enumerate(outcomes):
        if isinstance(outcome, Moved) and outcome.task_id in held_now:
            outcomes[i] = replace(outcome, status=TaskStatus.PAUSED)
