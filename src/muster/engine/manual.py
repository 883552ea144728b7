"""Tasks taken by hand: granted like a claim, to somebody who is no worker."""

from __future__ import annotations

from muster.engine.claims import Claims
from muster.engine.view import View, moved
from muster.model import commands as c
from muster.model.answers import Held, Moved, Taken
from muster.model.errors import BadInput, Conflict, IllegalMove, StaleEpoch
from muster.model.moves.manual import is_lost, refuse_stranger
from muster.model.task import BY_HAND, Attempt


class Manual:
    def __init__(self, claims: Claims, lease_s: float) -> None:
        self._claims = claims
        self._lease_s = lease_s

    async def take(self, view: View, command: c.Take) -> Taken:
        """Raises IllegalMove where no agent could have it now either, NotFound, BadInput.

        Repeating it with the same token gives the same attempt: its answer may have been lost.
        """
        if command.actor.startswith("worker-"):
            raise BadInput(
                f"{command.actor} is a worker's name: workers claim for themselves", "name a person"
            )
        await view.flush()
        await view.load([command.task_id])
        held = view.attempt(command.task_id)
        if held is None or not held.open or held.request_id != command.token_hash:
            held = await self._grant(view, command)
        (job,) = await self._claims.jobs(view, [held])
        return Taken(job=job, holder=held.worker_id, lease_ends_at_ms=_lease_end(view, held))

    async def _grant(self, view: View, command: c.Take) -> Attempt:
        task = view.task(command.task_id)
        plan = await view.tx.plan(task.plan_id) if task.plan_id is not None else None
        if plan is not None and plan.paused_reason is not None:
            raise IllegalMove(f"plan {plan.name} is paused", f"muster plan resume {plan.name}")
        if not await self._claims.has_room(view, task.limit_key):
            raise IllegalMove(f"limit {task.limit_key} has no place left")
        lease_s = self._lease_s if command.lease_s is None else command.lease_s
        granted = c.Grant(
            task_id=task.id,
            worker_id=command.actor,
            agent=BY_HAND,
            request_id=command.token_hash,
            lease_ms=int(lease_s * 1000),
            holder=command.holder,
            base=view.incarnation.base,
        )
        epoch = view.run(task.id, granted).epoch
        view.run(task.id, c.Start(task_id=task.id, epoch=epoch, token_hash=command.token_hash))
        # Never longer than the task may take, as with every renewal.
        view.run(task.id, c.Extend(task_id=task.id, epoch=epoch, actor=command.actor))
        await view.flush()
        attempt = view.attempt(task.id)
        assert attempt is not None
        return attempt

    async def extend(self, view: View, command: c.Extend) -> Held:
        await view.load([command.task_id])
        held = view.attempt(command.task_id)
        if held is not None and is_lost(held, command.epoch):
            key = view.task(command.task_id).limit_key
            if not await self._claims.has_room(view, key):
                raise StaleEpoch(f"the claim is over, and limit {key} has no place left for it any more")
        task = view.run(command.task_id, command)
        attempt = view.attempt(task.id)
        assert attempt is not None
        return Held(
            task_id=task.id,
            epoch=attempt.epoch,
            lease_ends_at_ms=_lease_end(view, attempt),
            stop=attempt.stop_action,
            notice=attempt.notice,
        )

    async def give_back(self, view: View, command: c.GiveBack) -> Moved:
        """Ends an attempt by hand: done, failed, or back to the queue at no cost.

        Also one whose lease is over, as long as nobody has taken the task since.
        """
        await view.load([command.task_id])
        attempt = view.attempt(command.task_id)
        if view.task(command.task_id).epoch == 0 or attempt is None:
            raise Conflict(f"task {command.task_id} was never taken", f"muster claim take {command.task_id}")
        if attempt.epoch == command.epoch:  # any other is refused by its epoch
            refuse_stranger(attempt, command.actor)
        if is_lost(attempt, command.epoch):
            view.run(command.task_id, c.Readopt(task_id=command.task_id, epoch=command.epoch))
        return moved(view.run(command.task_id, _end(command)))


def _end(command: c.GiveBack) -> c.AttemptCommand:
    task_id, epoch, text = command.task_id, command.epoch, command.text
    if command.failed is not None:
        return c.Fail(task_id=task_id, epoch=epoch, kind=command.failed, message=text)
    if command.done:
        result = text if text not in ("", "null") else None
        return c.Complete(task_id=task_id, epoch=epoch, result=result, summary=command.summary)
    return c.Release(task_id=task_id, epoch=epoch, reason=f"by {command.actor}")


def _lease_end(view: View, attempt: Attempt) -> int:
    """On the wall clock."""
    return view.now.wall_ms + attempt.lease_until_ms - view.now.mono_ms
