"""Tells people what waits for them, by the channels that settings name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from muster.engine.outbox import settled_key
from muster.engine.pools import POOLS
from muster.engine.service import PAGE_ROWS
from muster.engine.services.outbox_sender import OutboxSender
from muster.model.commands import GatherMessages, SetChannels
from muster.model.notify import Matter, line_of, note_of, nothing_new, of_status, put_away
from muster.model.pools import pools_of
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.states import TaskStatus, asks_a_person
from muster.model.views import PlanView, TaskFilter, TaskView
from muster.model.webhooks import HookKind, HookMessage, WebhookRow
from muster.model.wording import task_name
from muster.ports.engine import ExecuteForAll
from muster.ports.hooks import Channel
from muster.ports.runtime import Clock
from muster.ports.store import Reads


class _World(NamedTuple):
    """How what was written of is now."""

    tasks: Mapping[int, TaskView]
    plans: Mapping[int, PlanView]
    settled: frozenset[int]
    closed: frozenset[str]
    """Providers that take nothing."""

    def name(self, told: Mapping[str, Any]) -> str:
        if "taskId" in told:
            task = self.tasks.get(told["taskId"])
            return f"task {told['taskId']}" if task is None else task_name(task.plan, task.key)
        plan = self.plans.get(told.get("planId", 0))
        return "" if plan is None else plan.name

    def still(self, message: HookMessage) -> bool:
        """Whether a person would still want to know it."""
        told = msgspec.json.decode(message.body)
        if "taskId" in told:
            task = self.tasks.get(told["taskId"])
            if task is None or not asks_a_person(task.status, task.paused_reason):
                return False
            return of_status(task.status, task.paused_reason) is Matter(told["matter"])
        if "planId" in told:
            plan = self.plans.get(told["planId"])
            if plan is None or told["matter"] != Matter.SETTLED:
                return plan is not None and plan.paused is not None
            # One that is paused with nothing at work is settled too: why it is paused says more.
            rests = plan.paused is None and plan.id in self.settled
            return rests and not put_away(told["counts"], plan.counts)
        return told.get("pool") in self.closed


def _about(message: HookMessage) -> object:
    """Of several messages about one thing the last one says how it is: what a task asks, how a plan rests, until
    when a provider takes nothing."""
    return message.kind, message.subject


def _is_due(message: HookMessage, now_ms: int) -> bool:
    return (message.next_at_ms or 0) <= now_ms


def _counts_in(message: HookMessage) -> dict[str, int]:
    counts: dict[str, int] = msgspec.json.decode(message.body).get("counts", {})
    return counts


class Notifier(OutboxSender):
    """Those of the workspace whose folder has the settings."""

    name = "notifications"

    def __init__(
        self,
        clock: Clock,
        reads: Reads,
        engine: ExecuteForAll,
        channels: Sequence[Channel],
        *,
        base: str,
        term: int,
    ) -> None:
        """`base` is the address of the pages, for links; empty: nobody knows it."""
        super().__init__(clock, reads, engine, term)
        self._channels = {channel.plan.name: channel for channel in channels}
        self._base = base.rstrip("/")
        self._own = reads.of(DEFAULT_WORKSPACE)
        self._set = False

    async def served(self) -> Sequence[WebhookRow]:
        rows = [] if self._set and not self._channels else await self._rows()
        if not self._set:
            if self._channels or rows:
                wanted = {name: channel.plan.tells for name, channel in self._channels.items()}
                await self._engine.of(DEFAULT_WORKSPACE).execute(
                    SetChannels(term=self._term, channels=wanted)
                )
                rows = await self._rows()
            self._set = True
        return [row for row in rows if row.channel in self._channels]

    async def _rows(self) -> list[WebhookRow]:
        return [row for row in await self._own.webhooks() if row.channel]

    async def due(self, receiver: WebhookRow) -> list[HookMessage]:
        """What is to be sent now: gathered, so that a message says the same however often it is sent, but for
        what is over by then."""
        channel, now_ms = self._channels[receiver.channel], (await self.now()).wall_ms
        waiting = self._awake(channel, await self._own.waiting_messages(receiver.id, PAGE_ROWS), now_ms)
        looked_at = any(not one.gathered or _is_due(one, now_ms) for one in waiting)
        if looked_at and (command := await self._gathering(receiver, channel, waiting, now_ms)):
            await self._engine.of(DEFAULT_WORKSPACE).execute(command)
            found = await self._own.waiting_messages(receiver.id, PAGE_ROWS)
            waiting = self._awake(channel, found, now_ms)
        return [one for one in waiting if one.gathered and _is_due(one, now_ms)]

    def _awake(self, channel: Channel, waiting: list[HookMessage], now_ms: int) -> list[HookMessage]:
        """In quiet hours only what somebody has asked for at this moment."""
        if channel.quiet is None or not channel.quiet.holds(now_ms, channel.zone):
            return waiting
        return [message for message in waiting if message.kind is HookKind.TEST]

    async def _gathering(
        self, receiver: WebhookRow, channel: Channel, waiting: list[HookMessage], now_ms: int
    ) -> GatherMessages | None:
        """Which of these are to be one message now, and which of them nobody needs any more, whether they were
        tried before or not; None: nothing changes."""
        matters = [one for one in waiting if one.kind is not HookKind.TEST]
        tests = [(one.id,) for one in waiting if one.kind is HookKind.TEST and not one.gathered]
        fresh = [one for one in matters if not one.gathered]
        collects = bool(fresh) and now_ms < fresh[0].created_at_ms + round(channel.plan.digest_s * 1000)
        if collects and not any(one.gathered and _is_due(one, now_ms) for one in matters):
            matters = []
        still, over = await self._worth_telling(receiver, matters)
        told = [one for one in still if not one.gathered and not collects]
        over = [one for one in over if one.gathered or not collects]
        if channel.plan.digest_s:
            held = told
        else:
            quiet, zone = channel.quiet, channel.zone
            held = [one for one in told if quiet is not None and quiet.holds(one.created_at_ms, zone)]
        single = [(one.id,) for one in told if one not in held]
        groups = (*tests, *([tuple(one.id for one in held)] if held else []), *single)
        if not groups and not over:
            return None
        return GatherMessages(
            term=self._term, webhook_id=receiver.id, groups=groups, over=tuple(one.id for one in over)
        )

    async def _worth_telling(
        self, receiver: WebhookRow, matters: list[HookMessage]
    ) -> tuple[list[HookMessage], list[HookMessage]]:
        """Those that people would still want to know, and those that they would not."""
        if not matters:
            return [], []
        world = await self._world(matters)
        kept = (await self._own.messages(receiver.id, PAGE_ROWS))[::-1]
        delivered = [one for one in kept if one.delivered_at_ms is not None]
        # What was over may wait once more, by a person's wish: what was told since says how it is now.
        standing = [one for one in kept if one.delivered_at_ms is not None or one.next_at_ms is not None]
        newest = {_about(one): one.id for one in [*matters, *standing]}
        before = {one.subject: _counts_in(one) for one in delivered if one.kind is HookKind.PLAN_SETTLED}
        stopped = await self._stopped_by_what_was_told(receiver, matters, standing, world)
        told: list[HookMessage] = []
        over: list[HookMessage] = []
        for message in matters:
            last = newest[_about(message)] == message.id
            known = message.subject in before and nothing_new(before[message.subject], _counts_in(message))
            known = known or (message.kind is HookKind.PLAN_SETTLED and message.subject in stopped)
            wanted = message.asked or (last and not known and world.still(message))
            (told if wanted else over).append(message)
        return told, over

    async def _stopped_by_what_was_told(
        self,
        receiver: WebhookRow,
        matters: Sequence[HookMessage],
        standing: Sequence[HookMessage],
        world: _World,
    ) -> set[str]:
        """The subjects of plans where all that waits for a person has been told here by its task, or is about
        to be, and nothing has failed: that such a plan rests says the same again."""
        told = {one.subject for one in standing if one.kind is HookKind.NEEDS_PERSON}
        found = set()
        for subject in {one.subject for one in matters if one.kind is HookKind.PLAN_SETTLED}:
            plan = world.plans.get(int(subject.removeprefix("plan ")))
            if plan is None or plan.counts.get(TaskStatus.FAILED) or not plan.counts.get(TaskStatus.PAUSED):
                continue
            paused = TaskFilter(plan=plan.name, statuses=(TaskStatus.PAUSED,), limit=PAGE_ROWS)
            asking = [
                task
                for task in await self._own.task_views(paused)
                if asks_a_person(task.status, task.paused_reason)
            ]
            if asking and all(
                of_status(task.status, task.paused_reason) in receiver.matters and f"task {task.id}" in told
                for task in asking
            ):
                found.add(subject)
        return found

    async def _world(self, messages: Sequence[HookMessage]) -> _World:
        told = [msgspec.json.decode(message.body) for message in messages]
        ids = tuple({one["taskId"] for one in told if "taskId" in one})
        tasks = await self._own.task_views(TaskFilter(ids=ids, limit=PAGE_ROWS)) if ids else []
        plans = await self._own.plans() if any("planId" in one for one in told) else []
        pools = pools_of(await self._own.meta(POOLS))
        now_ms = (await self.now()).wall_ms
        closed = frozenset(name for name, pool in pools.items() if pool.closed(now_ms))
        asked = {one["planId"] for one in told if "planId" in one}
        settled = frozenset([number for number in asked if await self._own.meta(settled_key(number))])
        return _World({task.id: task for task in tasks}, {plan.id: plan for plan in plans}, settled, closed)

    async def send_all(self, receiver: WebhookRow, due: list[HookMessage]) -> None:
        """One message after the other, in the order of what they tell, until one is not taken."""
        channel, world = self._channels[receiver.channel], await self._world(due)
        groups: dict[str, list[HookMessage]] = defaultdict(list)
        for message in due:
            groups[message.message_id].append(message)
        for message_id, group in groups.items():
            told = [msgspec.json.decode(one.body) for one in group]
            lines = [line_of(one, world.name(one), self._base, channel.zone) for one in told]
            status, said = await channel.tell(note_of(message_id, lines, self._base, group[0].created_at_ms))
            await self.note(receiver, group, status, said)
            if not 200 <= status < 300:
                return
