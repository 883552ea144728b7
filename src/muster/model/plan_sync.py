"""Keeping a plan and its file in step: what a look at both of them decides.  Pure.

Differences are found anew at each look, so a look that was cut off is simply repeated.  What is kept is what a
look cannot see: which differences wait for a person, and which boxes are owed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.model.answers import Answer
from muster.model.commands import Command, Enqueue, Name, Spec
from muster.model.edited_elsewhere import Edited
from muster.model.edits import (
    EDITABLE,
    BoxName,
    Doubt,
    KeptTask,
    MovedBox,
    Namesake,
    PlanDiff,
    is_barrier,
    task_fields_of,
)
from muster.model.file_conflicts import (
    TICKABLE,
    UNPUBLISHED,
    Difference,
    FileChange,
    FileConflict,
    used_again,
    with_ways,
)
from muster.model.people import THE_FILE
from muster.model.scalars import Id
from muster.model.states import FINAL, HELD, PauseReason, TaskStatus

AT_ONCE_MAX = 5
"""More boxes that are ticked or taken out at once are no slip of the hand: a person is asked."""

GIVEN_UP = frozenset({TaskStatus.CANCELLED, TaskStatus.ARCHIVED})
"""Nobody looks for the box of such a task."""
GIVEN_UP_OR_DONE = GIVEN_UP | {TaskStatus.COMPLETED}
"""Nobody is to do such a task any more."""
LOSES_EDITS = EDITABLE - {TaskStatus.CANCELLED}
"""Still to be done, and not held: taken out, such a task is not done as it was edited."""


class SyncState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of a plan's file."""

    owed: dict[str, bool] = {}
    """By key, boxes that were not found yet: to be ticked, or cleared."""
    conflicts: tuple[FileConflict, ...] = ()
    head: str | None = None
    """Where the checkout stood when the file was last known to be as it is kept."""
    problem: str = ""
    """Why the file cannot be read, or its changes cannot be applied."""
    edited: Edited = {}
    text: str = ""
    """A digest of all but the boxes' marks, as the file was when the plan was last the same."""
    otherwise: dict[Id, PauseReason] = {}
    """By number, why nobody is to begin tasks whose boxes say otherwise, whatever they do now."""
    done_otherwise: tuple[Id, ...] = ()
    """Numbers of done tasks whose boxes say otherwise: nobody is asked before one is to be done again."""

    @property
    def waiting(self) -> tuple[FileConflict, ...]:
        return tuple(conflict for conflict in self.conflicts if not conflict.rejected)


BOX_CHANGES = frozenset({FileChange.TICKED, FileChange.CLEARED})
"""They can be told of a file that cannot be read as a plan."""


class SetSync(Command, frozen=True, kw_only=True):
    """What a look at a plan's file has found, and what people have said of it."""

    plan_id: Id
    state: SyncState
    actor: Name = THE_FILE
    said: str = ""
    """For the audit; empty: nothing was changed by it."""
    agreed: Edited = msgspec.field(default_factory=dict)
    """What the file says by now as its tasks do; what else was edited is kept as it is."""
    otherwise: dict[Id, PauseReason] | None = None
    """As `SyncState.otherwise`; None: that is as it was."""


class JoinFile(Command, frozen=True, kw_only=True):
    """The file of a plan has a box by now for each of these tasks, which were added in other ways."""

    task_ids: tuple[Id, ...]
    actor: Name = THE_FILE


class PlanSynced(Answer, frozen=True, kw_only=True):
    """How a plan and its file stand to each other."""

    plan: str
    done: str = ""
    """What this look has changed, in words."""
    problem: str = ""
    conflicts: tuple[FileConflict, ...] = ()
    owed: tuple[str, ...] = ()
    """Boxes that are not as they are to be, because they were not found."""
    untaken: tuple[Difference, ...] = ()
    """What differs, and is neither taken in nor asked about yet."""
    running: tuple[str, ...] = ()
    """Keys of what is untaken for as long as its task runs."""
    by_settings: tuple[str, ...] = ()
    """Keys of what is untaken and was not edited: the settings say otherwise by now."""
    unwatched: bool = False
    """Nobody has watched the file: of what is untaken, a crew asks about what was edited or removed."""
    waits: str = ""
    """Why boxes of completed tasks are not ticked yet, or which; empty where all are."""
    edited: tuple[str, ...] = ()
    """Keys of tasks that were edited elsewhere: their boxes may say what they said before."""


class Untaken(NamedTuple):
    """What differs, and is neither taken in nor asked about yet."""

    differences: tuple[Difference, ...] = ()
    running: tuple[str, ...] = ()
    """As `PlanSynced.running`."""
    by_settings: tuple[str, ...] = ()
    """As `PlanSynced.by_settings`."""
    problem: str = ""
    """Why nothing but boxes was compared."""
    waiting: tuple[FileConflict, ...] = ()
    """What is asked about by then."""
    unwatched: bool = False
    """As `PlanSynced.unwatched`."""


def kept_standing(plan: str, state: SyncState, tasks: Collection[KeptTask] | None = None) -> PlanSynced:
    """As it is kept; given all tasks of it, a box is owed by what is not given up nor put away, and an edit of
    what is over is no news."""
    given = {key for key in state.owed if not is_barrier(key)}
    if tasks is not None:
        given &= {task.key for task in tasks if task.status not in GIVEN_UP}
    over = {task.key for task in tasks or () if task.status in GIVEN_UP_OR_DONE}
    return PlanSynced(
        plan=plan,
        problem=state.problem,
        conflicts=state.waiting,
        owed=tuple(sorted(given)),
        edited=tuple(sorted(state.edited.keys() - over)),
    )


class TakeTicks(Enqueue, frozen=True, kw_only=True):
    """Tasks of a plan, by their keys, whose boxes were ticked in its file."""


class SyncFacts(NamedTuple):
    """What the file and the plan themselves do not say."""

    now_ms: int
    mono_s: float
    settle_s: float
    """A new or edited box is taken up once it has stood unchanged for so long."""
    git: str = ""
    """What git did at the same time, as `git_did` says it."""
    restored: bool = False
    """An editor has written a version back that we had replaced."""
    unwatched: bool = False
    """It may have been changed before anybody watched it, and been told to a person as changed."""
    doubts: tuple[Doubt, ...] = ()
    """Boxes of which nobody knows whether they are new tasks, or others that were renamed."""
    moved: tuple[MovedBox, ...] = ()
    """New boxes that have left another plan's file."""
    beside: Mapping[str, float] = MappingProxyType({})
    """Keys of new boxes that another plan's file has as well, and since when, in seconds."""
    both: frozenset[str] = frozenset()
    """Keys of tasks of which the same was edited in the file and elsewhere."""
    specs: tuple[Spec, ...] = ()
    """All that the file holds, where it was read as a plan."""
    edited: Mapping[str, Collection[str]] = MappingProxyType({})
    """By the keys of tasks that were edited elsewhere: the names of those fields."""
    groups: Mapping[str, str] = MappingProxyType({})
    """As `ticked_groups.groups_told`."""
    again: Mapping[str, str] = MappingProxyType({})
    """As `used_again`."""
    by_settings: Collection[str] = ()
    """Keys of what nobody has edited: the settings say otherwise by now."""
    unpublished: Collection[str] = ()
    """Keys of tasks whose work is done and not published yet: it may wait for a review."""


class SyncVerdict(NamedTuple):
    ticks: tuple[Difference, ...]
    changes: tuple[Difference, ...]
    """What is to be applied, ticks and all else."""
    conflicts: tuple[FileConflict, ...]
    fresh: dict[Difference, float]
    """What waits until it has stood long enough, or until its task no longer runs; since when, in seconds."""
    behind: frozenset[str] = frozenset()
    """Keys of what waits for a new box that a person is asked about."""


def differences(
    specs: Iterable[Spec],
    kept: Mapping[str, KeptTask],
    diff: PlanDiff,
    due: Collection[str],
    conflicts: Iterable[FileConflict] = (),
) -> list[Difference]:
    """All of them; `due` are the keys of boxes that are still to be ticked or cleared by us.

    What a person has rejected of `conflicts` stays so once the task is done: it may be to be done again.
    """
    rejected = {one.about for one in conflicts if one.rejected}
    by_key = {spec.key or "": spec for spec in specs}
    found: list[Difference] = []
    for key, spec in by_key.items():
        task = kept.get(key)
        if task is not None and key not in due and not is_barrier(key):
            found += box_difference(key, task.status, ticked=spec.done)
    again = used_again(by_key.values(), kept).keys() - due
    new = (*diff.added, *diff.restored, *sorted(again))
    found += [Difference(key, FileChange.ADDED, _digest(by_key[key])) for key in new]
    for change in diff.changed:
        one = Difference(change.key, FileChange.EDITED, _digest(by_key[change.key]))
        if change.fields and (not change.kept or change.status in HELD or one in rejected):
            found.append(one)
    edited = {one.key for one in found}
    found += [
        Difference(one.key, FileChange.EDITED, one.box) for one in diff.renamed if one.key not in edited
    ]
    return found + [Difference(change.key, FileChange.REMOVED) for change in diff.removed]


def box_difference(key: str, status: TaskStatus, *, ticked: bool) -> list[Difference]:
    """None, or one."""
    if ticked and (status in TICKABLE or status in HELD or status is TaskStatus.ABORTED):
        return [Difference(key, FileChange.TICKED)]
    if not ticked and status is TaskStatus.COMPLETED:
        return [Difference(key, FileChange.CLEARED)]
    return []


def of_boxes(
    status: Mapping[str, TaskStatus], boxes: Mapping[str, bool], due: Collection[str]
) -> list[Difference]:
    """Where nothing but boxes is compared."""
    return [
        one
        for key, now in status.items()
        if key not in due
        for one in box_difference(key, now, ticked=boxes[key])
    ]


def by_keys(boxes: Mapping[str, bool], names: Iterable[BoxName]) -> dict[str, bool]:
    """Boxes by the keys of their tasks, and not by what the file calls them."""
    keys = {one.name: one.key for one in names if one.current}
    return {keys.get(name, name): ticked for name, ticked in boxes.items()}


def boxes_differ(boxes: Mapping[str, bool], kept: Iterable[KeptTask]) -> tuple[str, ...]:
    """Keys of the tasks whose boxes say otherwise than they do; `boxes` tells which are ticked."""
    return tuple(
        task.key
        for task in kept
        if task.from_file
        and task.key in boxes
        and task.status not in GIVEN_UP
        and boxes[task.key] is not (task.status is TaskStatus.COMPLETED)
    )


def git_did(before: str | None, now: str | None) -> str:
    """While a file changed: where its checkout stood and stands, None while git is at work, or unknown before.

    Empty where git has not brought the change.
    """
    if now is None:
        return "git was at work at the same time"
    return "git moved HEAD at the same time" if before not in (None, now) else ""


def judge(
    found: Collection[Difference],
    status: Mapping[str, TaskStatus],
    conflicts: Iterable[FileConflict],
    fresh: Mapping[Difference, float],
    facts: SyncFacts,
) -> SyncVerdict:
    """What is applied now, what waits for a person, and what has to stand a while longer."""
    known = {conflict.about: conflict for conflict in conflicts}
    new = [one for one in found if one not in known and one not in fresh]
    stood = {one.key: one.task for one in facts.moved}
    many = sum(one.kind in {FileChange.TICKED, FileChange.REMOVED} for one in new)
    waits: list[FileConflict] = []
    standing: dict[Difference, float] = {}
    for one in found:
        why = ""
        before = known.get(one)
        lasts = one.key in stood or one.key in facts.unpublished
        if before and (before.rejected or not before.passing or lasts):
            waits.append(_as_now(before, stood, status, facts))
            continue
        anew = facts.git or one.key in facts.edited or one.key in facts.again or one.key in facts.unpublished
        if anew or one not in fresh:
            why = _brake(one, status, facts, many)
        if why:
            asked = FileConflict.of(one, why, facts.now_ms, passing=why in UNPUBLISHED.values())
            waits.append(_as_now(asked, stood, status, facts))
        else:
            since_s = fresh.get(one, facts.mono_s - (facts.settle_s if before else 0.0))
            standing[one] = max(since_s, facts.beside.get(one.key, since_s))
    held_back = {conflict.key for conflict in waits if not conflict.rejected}
    ripe = {
        one
        for one, since_s in standing.items()
        if (
            one.kind is FileChange.TICKED
            or one.key in facts.by_settings
            or (one.key not in held_back and facts.mono_s - since_s >= facts.settle_s)
        )
        and status.get(one.key) not in HELD
    }
    for one in found:
        if one in ripe and one.kind is FileChange.ADDED and one.key in stood:
            ripe.remove(one)
            del standing[one]
            waits.append(FileConflict.of(one, _stood(stood[one.key]), facts.now_ms, passing=True))
    ripe -= _before_their_turn(found, ripe, waits, facts.specs)
    doubted = {one.about for one in waits if one.kind is FileChange.ADDED and not one.rejected}
    grown = {one for one in standing if one.kind is not FileChange.TICKED}
    others = {one for one in found if one.kind is FileChange.ADDED and one not in doubted}
    behind = _before_their_turn([*doubted, *grown, *others], {*grown, *others}, waits, facts.specs)
    return SyncVerdict(
        ticks=tuple(one for one in standing if one in ripe and one.kind is FileChange.TICKED),
        changes=tuple(one for one in standing if one in ripe and one.kind is not FileChange.TICKED),
        conflicts=tuple(with_ways(one, facts.doubts, facts.again) for one in waits),
        fresh={one: since_s for one, since_s in standing.items() if one not in ripe},
        behind=frozenset(one.key for one in behind),
    )


def _as_now(
    conflict: FileConflict,
    stood: Mapping[str, Namesake],
    status: Mapping[str, TaskStatus],
    facts: SyncFacts,
) -> FileConflict:
    """What it waits for may have changed since it was told."""
    if conflict.rejected:
        return conflict
    if conflict.passing and conflict.key in stood:
        return replace(conflict, why=_stood(stood[conflict.key]))
    if conflict.kind is FileChange.TICKED:
        return replace(conflict, why=facts.groups.get(conflict.key, conflict.why))
    return replace(conflict, why=_edited_told(conflict.about, status, facts) or conflict.why)


def _edited_told(one: Difference, status: Mapping[str, TaskStatus], facts: SyncFacts) -> str:
    """Why a box is not taken out, nor its work done where it was moved to, without a person's word."""
    names = facts.edited.get(one.key)
    if not names or one.kind is not FileChange.REMOVED or status.get(one.key) not in LOSES_EDITS:
        return ""
    if any(one.key == may_be.key for doubt in facts.doubts for may_be in doubt.may_be):
        return ""  # which task it is has to be said first
    return (
        f"it was edited here ({', '.join(names)}): --accept drops that with the task, --reject keeps both; a box "
        "of it in another file says nothing of that, so write it there first"
    )


def _emptied_told(one: Difference, facts: SyncFacts) -> str:
    """Why a group does not become work for an agent because what was below it is gone."""
    if one.kind is not FileChange.EDITED or one.key not in facts.groups:
        return ""
    alone = any(spec.key == one.key and not spec.is_group for spec in facts.specs)
    return "it was a group, and nothing is below it any more: is it work of its own?" if alone else ""


def _stood(task: Namesake) -> str:
    told = f"it stood in {task.source} before, and {task.plan}/{task.key} is {task.status.lower()}"
    if task.status in FINAL:
        return f"{told}: tick it if that was its work; --accept if it is other work"
    return f"{told}: it waits until that task is out of its plan, or for --accept if it is other work"


def _before_their_turn(
    found: Iterable[Difference],
    ripe: Collection[Difference],
    waits: Iterable[FileConflict],
    specs: Iterable[Spec],
) -> set[Difference]:
    """What cannot be applied yet, because it waits for a new box that is not taken up yet, or is part of it."""
    rejected = {conflict.about for conflict in waits if conflict.rejected}
    new = {one.key: one for one in found if one.kind is FileChange.ADDED}
    missing = [key for key, one in new.items() if one not in ripe and one not in rejected]
    if not missing:
        return set()
    behind: dict[str, list[str]] = {}
    for spec in specs:
        for name in (*spec.depends_on, spec.parent or ""):
            behind.setdefault(name, []).append(spec.key or "")
    changes = {one.key: one for one in ripe if one.kind is not FileChange.TICKED}
    held: set[Difference] = set()
    while missing:
        for key in behind.get(missing.pop(), ()):
            if (one := changes.pop(key, None)) is not None:
                held.add(one)
                if one.kind is FileChange.ADDED:
                    missing.append(key)
    return held


def _brake(one: Difference, status: Mapping[str, TaskStatus], facts: SyncFacts, many: int) -> str:
    """Why a person is to look at it first; empty: nothing speaks against it."""
    if one.key in facts.by_settings and (one.kind is FileChange.EDITED or is_barrier(one.key)):
        return ""
    if why := _which_task(one, facts):
        return why
    if one.kind is FileChange.CLEARED:
        return "its box was cleared, and it is done: is it to be done again, as the file has it now?"
    if why := _edited_told(one, status, facts) or _emptied_told(one, facts):
        return why
    if facts.git:
        return facts.git
    if one.kind is FileChange.EDITED and one.key in facts.both:
        return "the same was edited here since: --accept takes what the file says, --reject what was edited"
    if one.kind in {FileChange.TICKED, FileChange.REMOVED} and many > AT_ONCE_MAX:
        return f"{many} boxes were ticked or taken out at once"
    if one.kind in {FileChange.EDITED, FileChange.REMOVED} and facts.unwatched:
        return "it was changed before this crew watched the file"
    if one.kind is FileChange.TICKED and (why := _unproved(status[one.key], facts)):
        return why
    return _told_of_pause(one, status, facts)


def _which_task(one: Difference, facts: SyncFacts) -> str:
    """Why a person has to say whether it is new work; empty where that is clear."""
    for doubt in facts.doubts:
        names = [one.key for one in doubt.may_be]
        if one.key == doubt.key:
            renamed = "" if doubt.box in names else ", renamed"
            return f"it may be {' or '.join(names)}{renamed}: muster plan add says how to tell"
        if one.key in names and one.kind is FileChange.REMOVED:
            return f"it may be {doubt.box} now: muster plan add says how to tell"
    return facts.again.get(one.key, "") if one.kind is FileChange.ADDED else ""


def _told_of_pause(one: Difference, status: Mapping[str, TaskStatus], facts: SyncFacts) -> str:
    """Comes last: once the pause is over nothing else would speak against it."""
    if one.key in facts.unpublished:
        return UNPUBLISHED.get(one.kind, "")
    paused_out = one.kind is FileChange.REMOVED and status.get(one.key) is TaskStatus.PAUSED
    return PAUSED_OUT if paused_out else ""


def _unproved(status: TaskStatus, facts: SyncFacts) -> str:
    if facts.restored:
        return "it came with an old version that was written back"
    return UNPROVED if status not in TICKABLE else ""


PAUSED_OUT = (
    "it is paused: --accept takes it out of the plan, --reject keeps it; its box elsewhere would begin"
)
UNPROVED = "an agent had it, or could write the file, when it was ticked, so that proves nothing"


def decided(
    state: SyncState, chosen: Collection[FileConflict], found: Collection[Difference], *, accept: bool
) -> tuple[SyncState, dict[str, bool]]:
    """What is kept once a person has said so of what was `chosen`, and the boxes that are set back."""
    left = [one for one in state.conflicts if one not in chosen]
    marks: dict[str, bool] = {}
    for one in chosen:
        if accept or one.about not in found:
            continue
        if one.kind in BOX_CHANGES:
            marks[one.key] = one.kind is FileChange.CLEARED
        else:
            left.append(replace(one, rejected=True))
    # Owed as well: an owner that dies before it sets a box back must not take it for a person's.
    return replace(state, conflicts=tuple(left), owed=state.owed | marks), marks


def _digest(spec: Spec) -> str:
    data = msgspec.json.encode((task_fields_of(spec), spec.done))
    return hashlib.sha256(data).hexdigest()[:16]
