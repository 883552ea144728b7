"""Which tasks nobody begins before it is settled what their boxes in a plan's file say.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from muster.model.commands import Spec
from muster.model.edits import Change, is_barrier
from muster.model.fields import FILLED
from muster.model.file_conflicts import Difference, FileChange, FileConflict
from muster.model.plan_sync import UNPROVED
from muster.model.states import FOR_ITS_FILE, MAY_BEGIN, PauseReason, TaskStatus

_OTHERWISE = frozenset({FileChange.EDITED, FileChange.REMOVED, FileChange.TICKED})


class _Kept(Protocol):
    @property
    def id(self) -> int: ...

    @property
    def status(self) -> TaskStatus: ...

    @property
    def paused_reason(self) -> PauseReason | None: ...

    @property
    def is_group(self) -> bool: ...


def otherwise(
    conflicts: Iterable[FileConflict],
    fresh: Iterable[Difference],
    kept: Mapping[str, _Kept],
    by_settings: Collection[str] = (),
    behind: Collection[str] = (),
) -> dict[int, PauseReason]:
    """By number, why nobody is to begin these tasks.

    `fresh` is what has to stand for a while, `behind` as in SyncVerdict.
    """
    waits = [one for one in conflicts if not one.rejected]
    asked = {one.key for one in waits} | {*behind}
    keys = {
        one.key: PauseReason.FILE if one.key in asked else PauseReason.EDIT
        for one in fresh
        if one.kind in _OTHERWISE and (one.kind is FileChange.TICKED or one.key not in by_settings)
    }
    keys |= {one.key: PauseReason.FILE for one in waits if _holds(one)}
    return {
        kept[key].id: reason for key, reason in sorted(keys.items()) if key in kept and not kept[key].is_group
    }


def lets_begin(otherwise: Collection[int], kept: Mapping[str, _Kept]) -> bool:
    """Whether somebody could begin one of these."""
    return any(task.status in MAY_BEGIN and task.id in otherwise for task in kept.values())


def _holds(conflict: FileConflict) -> bool:
    if conflict.kind is FileChange.TICKED:  # what an agent has ticked, and left, another one goes on with
        return conflict.why != UNPROVED
    return conflict.kind in _OTHERWISE


def changed_by_settings(changed: Iterable[Change], specs: Iterable[Spec]) -> frozenset[str]:
    """Keys of tasks of which the file says nothing new, but other settings fill what it leaves open.

    `specs` are as the file has them, with nothing filled in.
    """
    said = {spec.key: spec for spec in specs}
    return frozenset(
        change.key
        for change in changed
        if change.key in said
        and change.fields
        and FILLED.issuperset(change.fields)
        and all(getattr(said[change.key], name) is None for name in change.fields)
    )


def done_otherwise(
    changed: Iterable[Change],
    kept: Mapping[str, _Kept],
    by_settings: Collection[str],
    found: Iterable[Difference],
) -> tuple[int, ...]:
    """Numbers of tasks that are done otherwise than their boxes say, and nobody has said that they stay so."""
    rejected = {one.key for one in found if one.kind is FileChange.EDITED}
    return tuple(
        sorted(
            kept[change.key].id
            for change in changed
            if change.fields
            and change.status is TaskStatus.COMPLETED
            and change.key not in by_settings
            and change.key not in rejected
            and not (kept[change.key].is_group or is_barrier(change.key))
        )
    )


def as_before(kept: Mapping[str, _Kept]) -> dict[str, TaskStatus]:
    """How tasks stand by their keys; those that are held as they stood before."""
    return {
        key: TaskStatus.PENDING
        if task.status is TaskStatus.PAUSED and task.paused_reason in FOR_ITS_FILE
        else task.status
        for key, task in kept.items()
    }
