"""Answers to what agents ask for, and those of them that stand for a whole plan."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from muster.engine.view import View, moved
from muster.model import breaker
from muster.model import commands as c
from muster.model.answers import Answer, Done
from muster.model.errors import NotFound
from muster.model.permissions import Permission, permissions_of
from muster.model.states import PauseReason
from muster.model.task import Task

PERMISSIONS = "permissions"
"""The row of `meta`: as many as people have typed."""


async def standing(view: View) -> tuple[Permission, ...]:
    return permissions_of(await view.tx.meta(PERMISSIONS))


async def _standing_to_set(view: View) -> tuple[Permission, ...]:
    return permissions_of(await view.tx.meta_to_set(PERMISSIONS))


async def answer(view: View, command: c.AnswerQuestion) -> Answer:
    asked = view.task(command.task_id)
    answered = moved(view.run(command.task_id, command))
    attempt = view.attempt(command.task_id)
    if command.always and command.allow is not None and attempt is not None:
        known = await _standing_to_set(view)
        same = (asked.plan_id, attempt.agent, asked.wish)
        added = Permission(
            number=max((one.number for one in known), default=0) + 1,
            plan_id=asked.plan_id or 0,
            agent=attempt.agent,
            command=asked.wish,
            allow=command.allow,
            by=command.actor,
            at_ms=view.now.wall_ms,
        )
        await _put(view, [*(one for one in known if (one.plan_id, one.agent, one.command) != same), added])
        await _answer_others(view, command, asked, attempt.agent)
    return answered


async def _answer_others(view: View, command: c.AnswerQuestion, asked: Task, agent: str) -> None:
    """Those who wait for an answer to the same question have it too."""
    await view.flush()
    ids = await view.tx.wishing(asked.plan_id, asked.wish)
    await view.load(ids)
    for task_id in ids:
        attempt = view.attempt(task_id)
        if (
            view.task(task_id).paused_reason is PauseReason.QUESTION
            and attempt is not None
            and attempt.agent == agent
        ):
            view.run(task_id, replace(command, task_id=task_id))


async def park(view: View, command: c.Park) -> Answer:
    """It began before a person has said what stands by now: then nobody is asked again."""
    task = view.run(command.task_id, command)
    attempt = view.attempt(task.id)
    stands = await standing(view) if task.wish and attempt is not None else []
    for one in stands:
        if attempt and (one.plan_id, one.agent, one.command) == (task.plan_id, attempt.agent, task.wish):
            said = c.AnswerQuestion(task_id=task.id, actor=one.by, allow=one.allow, always=True)
            task = view.run(task.id, said)
    return moved(task)


async def revoke(view: View, command: c.RevokePermission) -> Done:
    """Raises NotFound."""
    known = await _standing_to_set(view)
    gone = next((one for one in known if one.number == command.number), None)
    if gone is None:
        raise NotFound(
            f"there is no permission {command.number}; nothing was changed", "muster agent allowed"
        )
    await _put(view, [one for one in known if one is not gone])
    plan = await view.tx.plan(gone.plan_id)
    if plan is not None:
        said = f"agent {gone.agent} is asked about again: {gone.command}, by {command.actor}"
        decision = breaker.noted(plan, "permission_revoked", said, command.actor, view.now)
        await view.tx.update_plan(decision.plan)
        if decision.event is not None:
            view.record(decision.event)
    return Done()


async def _put(view: View, permissions: Iterable[Permission]) -> None:
    await view.tx.set_meta(PERMISSIONS, msgspec.json.encode([*permissions]).decode())
