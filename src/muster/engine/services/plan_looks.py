"""What is kept of a look at a plan's file until the next one."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec.structs import replace

from muster.model.commands import Spec
from muster.model.edited_elsewhere import Edited
from muster.model.edits import Doubt, KeptTask, MovedBox, UpdatePlan, is_barrier
from muster.model.errors import BadPlan
from muster.model.file_conflicts import (
    Difference,
    FileConflict,
    NotAccepted,
    changed_again,
    not_accepted,
    used_again,
    with_ways,
)
from muster.model.held_back import otherwise
from muster.model.plan_sync import BOX_CHANGES, SyncFacts, SyncState, Untaken
from muster.model.rows import Plan
from muster.model.states import FINAL, HELD, PauseReason, TaskStatus
from muster.model.ticked_groups import groups_told, too_early
from muster.model.views import TaskView
from muster.ports.files import Mark, PlanBytes, PlanFiles
from muster.ports.store import Reads

_AT_REST = frozenset(TaskStatus) - HELD - {TaskStatus.COMPLETED, TaskStatus.ARCHIVED}
GONE_S = 10.0
"""A file that is not there for so long is not being saved: it was moved, or deleted."""


def file_gone(plan: Plan, tasks: Iterable[KeptTask]) -> str:
    """What a person is told; empty where nothing is left to do."""
    if all(task.status in FINAL for task in tasks):
        return ""
    return f"{plan.source} is not there: muster plan add NEW_NAME goes on with it where it was renamed"


async def read_there(
    files: PlanFiles, reads: Reads, plan: Plan, in_thread: Callable[..., Awaitable[Any]]
) -> PlanBytes:
    """As PlanFiles.read; where the file is not there and there is more to do, the BadPlan says how to go on."""
    try:
        seen: PlanBytes = await in_thread(files.read, plan.source)
    except BadPlan as error:
        if not_there(error) and (told := file_gone(plan, await reads.kept_tasks(plan.id))):
            raise BadPlan(told) from error
        raise
    return seen


def not_there(error: BadPlan) -> bool:
    """The file is not there; of what `read_there` raises: nor is it needed any more."""
    return isinstance(error.__cause__, FileNotFoundError)


def is_gone(error: BaseException | None) -> bool:
    """The file is not there, whether it is needed or not."""
    return isinstance(error, BadPlan) and (not_there(error) or is_gone(error.__cause__))


def listed(keys: Iterable[str]) -> str:
    named = list(keys)
    more = f" and {len(named) - 20} more" if len(named) > 20 else ""
    return ", ".join(named[:20]) + more


class Glance(NamedTuple):
    """At a file that is not read."""

    mark: Mark | None
    ours: bool
    """Only we have changed it."""
    head: str | None
    """Where its checkout stands."""


@dataclass
class KnownFile:
    """What was seen of one file."""

    mark: Mark | None = None
    changed_s: float = 0.0
    """When it was last seen to be another; the first time since it was looked at."""
    first_s: float | None = None
    seen_ms: int | None = None
    """When it was last seen as it was looked at."""
    head: str | None = None
    fresh: dict[Difference, float] = field(default_factory=dict)
    beside: Mapping[str, float] = field(default_factory=dict)
    """As `SyncFacts.beside`."""
    text: str = ""
    boxes: Mapping[str, bool] = field(default_factory=dict)
    """As it was when all of it was compared with the plan, which found nothing but boxes."""
    looked_s: float = -math.inf
    rests_s: float = -math.inf
    """Until then it is not compared for the sake of what tasks do: a long plan takes a while."""
    event: int = 0
    """The newest one when it was looked at."""
    waits: bool = False
    """A person is asked."""
    redoes: bool = False
    """A task is done otherwise than its box says: done again, it is held first."""
    problem: str = ""
    """Why it could not be read, as it is now."""
    unheld: bool = False
    """It was changed since what differs was held."""
    gone_s: float | None = None
    """Since when it is not there; infinite once that was told."""


@dataclass(frozen=True, kw_only=True)
class FileRules:
    """How a plan's file is watched."""

    debounce_s: float = 2.0
    settle_s: float = 30.0
    poll_s: float = 2.0
    """The promise; hints only make it faster."""
    in_reach: bool = False
    """Agents work in the folder of the plans' files."""


class Compared(NamedTuple):
    seen: PlanBytes
    command: UpdatePlan | None
    """What the file wants; None where only boxes were compared."""
    kept: Mapping[str, KeptTask | TaskView]
    found: list[Difference]
    specs: tuple[Spec, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    moved: tuple[MovedBox, ...] = ()
    beside: frozenset[str] = frozenset()
    """Keys of new boxes that another plan's file has as well."""
    both: frozenset[str] = frozenset()
    """As `SyncFacts.both`."""
    agreed: Edited = {}  # noqa: RUF012 a NamedTuple's default; nobody changes it
    """As `SetSync.agreed`."""
    joined: tuple[KeptTask, ...] = ()
    """As `Identity.joined`."""
    problem: str = ""
    """Why it cannot be read as a plan: then nothing but its boxes was compared."""
    by_settings: frozenset[str] = frozenset()
    """As `SyncFacts.by_settings`."""
    done_otherwise: tuple[int, ...] | None = None
    """As `SyncState.done_otherwise`; None where only boxes were compared."""

    def without(self, state: SyncState) -> Untaken:
        left = tuple(self.not_asked(state))
        running = tuple(key for key, *_ in left if key in self.kept and self.kept[key].status in HELD)
        settled = tuple(sorted(self.by_settings & {one.key for one in left}))
        return Untaken(left, running, settled, self.problem, state.waiting)

    def facts(
        self,
        known: KnownFile,
        git: str,
        edited: Edited,
        *,
        watched: bool,
        now_ms: int,
        mono_s: float,
        settle_s: float,
    ) -> SyncFacts:
        """What is known beside the file and the plan; `edited` is what is kept of edits elsewhere, and
        `watched` whether somebody looked at the file before."""
        unpublished = [
            key
            for key, task in self.kept.items()
            if task.paused_reason is PauseReason.REVIEW
            or (isinstance(task, KeptTask) and task.done_epoch is not None and task.status in _AT_REST)
        ]
        return SyncFacts(
            now_ms=now_ms,
            mono_s=mono_s,
            settle_s=settle_s,
            git=git,
            restored=self.seen.restored,
            unwatched=not watched and settle_s > 0,
            specs=self.specs,
            doubts=self.doubts,
            moved=self.moved,
            beside={key: known.beside.get(key, mono_s) for key in self.beside},
            both=self.both,
            edited=edited,
            groups=groups_told(self.whole),
            again=used_again(self.specs, self.whole),
            by_settings=self.by_settings,
            unpublished=unpublished,
        )

    def refused(
        self, plan: str, chosen: Iterable[FileConflict], keys: Collection[str]
    ) -> dict[str, NotAccepted]:
        """Of what a person accepts, by these keys or all of it: why it stays."""
        current = [one for one in chosen if one.about in self.found]
        again = used_again(self.specs, self.whole)
        return not_accepted(
            plan,
            [with_ways(one, self.doubts, again) for one in current],
            {key: task.status for key, task in self.kept.items()},
            early=too_early([one.about for one in current], self.whole),
            keys=keys,
        )

    def noted(self, state: SyncState) -> SyncState:
        done = self.done_otherwise
        return state if done is None else replace(state, done_otherwise=done)

    def answered(self, state: SyncState, chosen: Iterable[FileConflict]) -> SyncState:
        """What a person has decided on is done otherwise no more."""
        decided = {self.kept[one.key].id for one in chosen if one.key in self.kept}
        left = tuple(number for number in state.done_otherwise if number not in decided)
        return replace(state, done_otherwise=left)

    def otherwise(
        self,
        state: SyncState,
        conflicts: Iterable[FileConflict],
        fresh: Iterable[Difference],
        behind: Collection[str] = (),
    ) -> dict[int, PauseReason]:
        """As `held_back.otherwise`; what a file that cannot be read says of it, only its repair tells."""
        if self.problem:
            return dict.fromkeys(state.otherwise, PauseReason.FILE)
        return otherwise(conflicts, fresh, self.kept, self.by_settings, behind)

    @property
    def settings_only(self) -> bool:
        """Whether the file says what it said, and the plan is otherwise all the same."""
        return all(one.kind not in BOX_CHANGES and one.key in self.by_settings for one in self.found)

    def told(self, state: SyncState, conflicts: Iterable[FileConflict], again: Collection[str]) -> list[str]:
        """What a look has found, in words, beside what it has changed."""
        told = []
        if new := [one for one in conflicts if one.about not in {old.about for old in state.conflicts}]:
            told.append(f"{len(new)} wait for a person: {listed(one.key for one in new)}")
        if again:
            told.append(f"ticked again: {listed(again)}")
        if self.joined:
            told.append(f"in the file by now: {listed(task.key for task in self.joined)}")
        return told

    def not_asked(self, state: SyncState) -> list[Difference]:
        """What nobody was asked about."""
        asked = {one.about for one in state.conflicts}
        return [one for one in self.found if one not in asked]

    def changed_since(
        self, state: SyncState, plan: str, chosen: Iterable[FileConflict]
    ) -> dict[str, NotAccepted]:
        """By key: of what a person has an answer to, that which was changed once more since it was asked."""
        new = {one.key for one in self.not_asked(state)}
        stale = [one for one in chosen if one.about not in self.found and one.key in new]
        return {one.key: changed_again(plan) for one in stale}

    @property
    def whole(self) -> dict[str, KeptTask]:
        """All tasks of the plan; none where only those whose boxes have changed were read."""
        return {key: task for key, task in self.kept.items() if isinstance(task, KeptTask)}


def done_of(tasks: Iterable[KeptTask]) -> dict[str, bool]:
    """Those whose boxes are to be ticked."""
    return {
        task.key: True for task in tasks if task.status is TaskStatus.COMPLETED and not is_barrier(task.key)
    }
