"""What a plan's file says and the plan does not, and what a person can do about it.  Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec.structs import replace

from muster.model.answers import Answer
from muster.model.commands import Spec
from muster.model.edits import Doubt, KeptTask, is_barrier, why_kept
from muster.model.errors import Conflict
from muster.model.scalars import Count
from muster.model.states import TaskStatus
from muster.model.task import was_taken_out
from muster.model.titles import titles_alike
from muster.model.wording import OPEN_BELOW, task_name

TICKABLE = frozenset({TaskStatus.PENDING, TaskStatus.PAUSED, TaskStatus.FAILED})
"""A tick completes such a task."""


class FileChange(StrEnum):
    """What the file says, and the plan does not."""

    TICKED = "ticked"
    CLEARED = "cleared"
    ADDED = "added"
    EDITED = "edited"
    REMOVED = "removed"


_DONE = "its work is done and not published yet: --accept"
UNPUBLISHED = {
    FileChange.EDITED: f"{_DONE} takes in the box, and drops work for another text",
    FileChange.REMOVED: f"{_DONE} drops that with the task",
    FileChange.TICKED: f"{_DONE} ends the task without it",
}
"""Why a person is asked where work of before is done."""


class Difference(NamedTuple):
    key: str
    kind: FileChange
    said: str = ""
    """A digest of what the file says: edited again it is another difference."""


class FileConflict(Answer, frozen=True, kw_only=True):
    """A difference that is not applied by itself."""

    key: str
    kind: FileChange
    said: str = ""
    why: str
    since_ms: Count
    passing: bool = False
    """It waits for a person, or only for as long as another plan has its work, or its own is not published."""
    rejected: bool = False
    """A person wants it to stay as it is."""
    takes: bool = True
    """Whether `--accept` does what the file says."""
    box: str = ""
    """Set: what the new box is called of which only `muster plan add` can be told which task it is ..."""
    may_be: tuple[str, ...] = ()
    """... and what the tasks are called that it may be."""

    @classmethod
    def of(cls, one: Difference, why: str, now_ms: int, *, passing: bool = False) -> FileConflict:
        return cls(key=one.key, kind=one.kind, said=one.said, why=why, since_ms=now_ms, passing=passing)

    @property
    def about(self) -> Difference:
        return Difference(self.key, self.kind, self.said)


def with_ways(conflict: FileConflict, doubts: Iterable[Doubt], again: Collection[str]) -> FileConflict:
    """With what can be done about it now; `again` are the keys of `used_again`."""
    new = conflict.kind is FileChange.ADDED
    for doubt in doubts:
        names = tuple(one.box for one in doubt.may_be)
        gone = conflict.kind is FileChange.REMOVED and conflict.key in {one.key for one in doubt.may_be}
        if gone or (new and conflict.key == doubt.key):
            return replace(conflict, takes=gone, box=doubt.box, may_be=names)
    return replace(conflict, takes=not (new and conflict.key in again), box="", may_be=())


def used_again(specs: Iterable[Spec], kept: Mapping[str, KeptTask]) -> dict[str, str]:
    """By key: why an open box is not taken for new work, although its task is over and put away."""
    found: dict[str, str] = {}
    for spec in specs:
        key = spec.key or ""
        task = kept.get(key)
        if task is None or task.status is not TaskStatus.ARCHIVED or spec.done or is_barrier(key):
            continue
        # What a person has put away undone, and stands there as it did, is nobody's new work.
        if not titles_alike(spec.title, task.title):
            found[key] = f"{why_kept(task)}; that task was called {task.title!r}: other work needs another id"
        elif task.worked or was_taken_out(task.error):  # the box has come back
            found[key] = why_kept(task)
    return found


class NotAccepted(NamedTuple):
    why: str
    hint: str


def changed_again(plan: str) -> NotAccepted:
    told = "its box was changed again since you were asked"
    return NotAccepted(told, f"muster plan sync {shlex.quote(plan)} takes in what it says now")


def not_accepted(
    plan: str,
    chosen: Iterable[FileConflict],
    statuses: Mapping[str, TaskStatus],
    *,
    early: Collection[str],
    keys: Collection[str],
) -> dict[str, NotAccepted]:
    """By key: why it cannot be as the file has it, though a person says so of these keys, or of all.

    `early` are the keys of groups whose time has not come.
    """
    found: dict[str, NotAccepted] = {}
    name = shlex.quote(plan)
    for one in chosen:
        reject = f"muster plan sync {name} --reject {shlex.quote(one.key)}"
        if one.key in early:
            found[one.key] = NotAccepted(OPEN_BELOW, f"{reject} clears the box")
        elif one.box and (not one.takes or one.key not in keys):  # of all: is it gone, or only renamed?
            found[one.key] = NotAccepted(one.why, f"muster plan sync {name} --status names the command")
        elif not one.takes:
            found[one.key] = NotAccepted(one.why, f"{reject} keeps the plan as it is")
        elif one.kind is FileChange.TICKED and (status := statuses[one.key]) not in TICKABLE:
            task = task_name(plan, one.key)
            told = f"{task} is {status}: a person completes what is PENDING, PAUSED or FAILED"
            found[one.key] = NotAccepted(told, f"muster task pause {shlex.quote(task)} first")
    return found


def refusal(refused: Mapping[str, NotAccepted]) -> Conflict:
    """In one sentence; the hint is the first one's."""
    keys: dict[str, list[str]] = {}
    for key, one in sorted(refused.items()):
        keys.setdefault(one.why, []).append(key)
    told = "; ".join(f"{', '.join(names)}: {why}" for why, names in keys.items())
    return Conflict(f"{told}; nothing was changed", refused[next(iter(keys.values()))[0]].hint)
