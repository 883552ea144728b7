"""Does what a look at a plan's file has decided, or a person."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from msgspec.structs import replace

from muster.engine.services.plan_looks import Compared, FileRules, listed
from muster.model.answers import Enqueued
from muster.model.commands import CompleteByPerson, Retry, Spec
from muster.model.edits import KeptTask, PlanUpdated, UpdatePlan
from muster.model.errors import BoxesMoved, CallerError
from muster.model.file_conflicts import Difference, FileChange, FileConflict
from muster.model.people import THE_FILE
from muster.model.plan_sync import BOX_CHANGES, UNPROVED, SyncVerdict, TakeTicks
from muster.model.rows import Plan
from muster.model.views import TaskView
from muster.model.wording import OPEN_BELOW, in_one_line
from muster.ports.engine import Execute


class PlanApplier:
    def __init__(self, engine: Execute, rules: FileRules) -> None:
        self._engine, self._rules = engine, rules

    async def apply(
        self, plan: Plan, compared: Compared, verdict: SyncVerdict, watched_ms: int | None, now_ms: int
    ) -> tuple[list[str], list[FileConflict], str]:
        """What was done, what waits all the same, and why something was refused."""
        told: list[str] = []
        waits: list[FileConflict] = []
        problem = ""
        for step, apply in (
            (verdict.ticks, partial(self._tick, plan, compared.kept, watched_ms)),
            (verdict.changes, partial(self._change, compared.command, compared.found)),
        ):
            try:
                done, unproved = await apply(step) if step else ([], ())
            except CallerError as error:
                # Nothing of this step was changed; as a conflict it is not tried again each time.
                problem, again = in_one_line(error), isinstance(error, BoxesMoved)  # since they were compared
                waits += [FileConflict.of(one, problem, now_ms, passing=again) for one in step]
            else:
                told += done
                groups = {key for key, task in compared.kept.items() if task.is_group}
                why = {key: OPEN_BELOW if key in groups else UNPROVED for key in unproved}
                waits += [FileConflict.of(one, why[one.key], now_ms) for one in step if one.key in why]
        return told, waits, problem

    async def _tick(
        self,
        plan: Plan,
        kept: Mapping[str, KeptTask | TaskView],
        watched_ms: int | None,
        step: tuple[Difference, ...],
    ) -> tuple[list[str], tuple[str, ...]]:
        """What was done, and which of them prove nothing."""
        done = await self._engine.execute(
            TakeTicks(
                plan=plan.name,
                source=plan.source,
                tasks=tuple(
                    Spec(key=key, title=(task := kept[key]).title, is_group=task.is_group, done=True)
                    for key, *_ in step
                ),
                actor=THE_FILE,
                in_reach=self._rules.in_reach,
                watched_ms=watched_ms,
            )
        )
        assert isinstance(done, Enqueued)
        told = [f"completed: {listed(done.completed)}"] if done.completed else []
        return told, done.unproved

    async def _change(
        self, command: UpdatePlan | None, found: Iterable[Difference], step: tuple[Difference, ...]
    ) -> tuple[list[str], tuple[str, ...]]:
        """What was done; as `_tick`."""
        assert command is not None, "it was read for these"
        leave = {one.key for one in found} - {one.key for one in step}
        done = await self._engine.execute(replace(command, leave=frozenset(leave), own=True))
        assert isinstance(done, PlanUpdated)
        kinds: dict[str, list[str]] = {}
        for one in step:
            if one.key not in done.unproved:
                kinds.setdefault(one.kind, []).append(one.key)
        return [f"{kind}: {listed(keys)}" for kind, keys in kinds.items()], done.unproved

    async def accept(
        self,
        command: UpdatePlan | None,
        kept: Mapping[str, KeptTask | TaskView],
        found: Iterable[Difference],
        chosen: Iterable[Difference],
        actor: str,
    ) -> None:
        """Boxes first: what they end, an edit does not open again; a group's after those of its tasks."""
        again = frozenset(one.key for one in chosen if command and one.kind is FileChange.CLEARED)
        for one in sorted(chosen, key=lambda one: one.key in kept and kept[one.key].is_group):
            if one.kind is FileChange.TICKED:
                await self._engine.execute(CompleteByPerson(task_id=kept[one.key].id, actor=actor))
            elif one.kind is FileChange.CLEARED and one.key not in again:
                await self._engine.execute(Retry(task_id=kept[one.key].id, actor=actor))
        wanted = {one.key for one in chosen if one.kind not in BOX_CHANGES} | again
        if wanted and command is not None:
            leave = frozenset(one.key for one in found) - wanted
            await self._engine.execute(replace(command, leave=leave, vouched=True, own=True, again=again))
