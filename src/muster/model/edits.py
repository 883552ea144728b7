"""A plan as its file has it, and changing tasks that are there already: one by one, or after a file was edited.

Pure.  `compare` says what file and plan disagree about, `muster plan diff` shows it, `UpdatePlan` applies it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple, get_type_hints

from msgspec import UNSET, Struct, UnsetType, convert, defstruct, structs
from msgspec.structs import replace

from muster.model import commands as c
from muster.model import fields
from muster.model.answers import Answer, Enqueued
from muster.model.commands import Spec
from muster.model.scalars import Count, Id
from muster.model.states import FILE_ORDER, HELD, PHASES, PauseReason, TaskStatus
from muster.model.task import TaskFields, is_gone


class PlanTask(Spec, frozen=True, kw_only=True, omit_defaults=True):
    """One `- [ ]` item; its key is `{#id}`, else a leading code (`T001.002:`), else heading path and title."""

    key: str
    line: int = 0
    """1-based line of the box in the file."""
    beside: bool = False
    """In the file's order it may run at the same time as its neighbours that say the same."""
    section: str = ""
    """The key of what stands for all tasks below its heading."""


OF_THE_FILE = frozenset({"line", "beside", "section"})
"""Fields of a PlanTask that are no task's."""


class PlanDocument(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    tasks: tuple[PlanTask, ...]
    order: str = ""
    """One of `states.ORDERS`, where its front matter says it."""
    dialect: str = ""
    """Whose plan it looks like; empty: Muster's own."""
    dialect_why: str = ""
    dialect_order: str = ""
    dialect_says: str = ""
    doubts: tuple[str, ...] = ()
    """What looks odd in it, and how it is read: a `file:line:column: text` each."""


EDITABLE = frozenset(
    {TaskStatus.PENDING, TaskStatus.ABORTED, TaskStatus.PAUSED, TaskStatus.FAILED, TaskStatus.CANCELLED}
)

STEPS_MAX = 1000
"""So many tasks before one are looked through for another that it waits for."""
_BARRIER = re.compile(r"(?:^|/)\*[0-9]*$")
_NOT_SLUG = re.compile(r"[\W_]+")
_SIGNS = re.compile(r"(?<=[^\W\d_])(\+\+?|#)(?![^\W_])")
"""As in C++, C# and A+."""
_SIGN_WORDS = {"+": " plus", "++": " plus plus", "#": " sharp"}


_KNOWN = (field.name for field in fields.FIELDS if field.name in TaskFields.__struct_fields__)
FIELDS = (*_KNOWN, "epic", "feature", "is_group")
_FIELDS_OF = attrgetter(*FIELDS)


class KeptTask(TaskFields, frozen=True, kw_only=True):
    """A task as the store has it, in the words of a plan file; its times are as they were wished."""

    id: int
    key: str
    """Its number where it has none."""
    box: str
    """What it is called in the plan's file now; where nothing was renamed, its key."""
    status: TaskStatus
    epoch: int = 0
    error: str = ""
    paused_reason: PauseReason | None = None
    pinned_agent: str | None = None
    done_epoch: int | None = None
    """The attempt whose work is done and not published."""
    from_file: bool = False
    """It has, or had, a box in a plan file, which may take it out again."""
    created_at_ms: int
    dependencies: tuple[tuple[int, str, bool], ...] = ()
    """(number, key or number, whether it is done) of what it waits for."""

    @property
    def gone(self) -> bool:
        """The file has taken it out already."""
        return is_gone(self.status, self.error)

    @property
    def begun(self) -> bool:
        """More has happened to it than that it was added."""
        return self.epoch > 0 or self.status is not TaskStatus.PENDING

    @property
    def worked(self) -> bool:
        """Its work is done, also where it was put away since."""
        archived = self.status is TaskStatus.ARCHIVED and not self.error
        return self.status is TaskStatus.COMPLETED or archived


def task_fields_of(task: TaskFields, added_at_ms: int = 0) -> TaskFields:
    """What `task` wants, in a form that can be compared."""
    return TaskFields(**values_of(task, added_at_ms))


def values_of(task: TaskFields, added_at_ms: int = 0) -> dict[str, Any]:
    """By field, lists whose order says nothing sorted; `added_at_ms` is what the times of a Spec count from."""
    values = dict(zip(FIELDS, _FIELDS_OF(task), strict=True))
    if isinstance(task, c.Spec):
        values["not_before_ms"] = task.begins_at_ms(added_at_ms)
        values["expires_at_ms"] = task.ends_at_ms(added_at_ms)
    for name in ("capabilities", "depends_on"):
        if values[name]:
            values[name] = tuple(sorted(set(values[name])))
    return values


def differences(before: TaskFields, after: TaskFields) -> tuple[str, ...]:
    """Names of the fields that differ."""
    return tuple(name for name in FIELDS if getattr(before, name) != getattr(after, name))


class Change(Answer, frozen=True, kw_only=True):
    key: str
    status: TaskStatus
    fields: tuple[str, ...] = ()
    """What differs; empty for a task that the file does not hold."""
    kept: str = ""
    """Why an update leaves it as it is; empty where it does not."""


class Vanished(Answer, frozen=True, kw_only=True):
    """A task whose box is not in the file any more."""

    key: str
    box: str
    title: str
    status: TaskStatus


class Doubt(Answer, frozen=True, kw_only=True):
    """A box that may be a new task, or one of these."""

    key: str
    """What it would be called as a new task."""
    box: str
    title: str
    may_be: tuple[Vanished, ...]


class Namesake(Answer, frozen=True):
    """A task of another plan that has a file, where a box here has its name or its title."""

    id: int
    plan: str
    source: str
    key: str
    box: str
    title: str
    status: TaskStatus


class MovedBox(Answer, frozen=True, kw_only=True):
    """A box that would be a new task, and stood in another plan's file before."""

    key: str
    """What it would be called as a new task."""
    box: str
    title: str
    task: Namesake


class BoxName(NamedTuple):
    """What a task is, or was, called in its plan's file, where that is not its key."""

    name: str
    task_id: int
    key: str
    current: bool


class Renamed(Answer, frozen=True, kw_only=True):
    """A task whose box is called otherwise than before."""

    key: str
    was: str
    box: str
    anew: bool = False
    """Nothing of it has begun, so it is what the file says now."""


class PlanDiff(Answer, frozen=True, kw_only=True):
    """What a plan file wants to be otherwise than it is kept."""

    plan: str
    added: tuple[str, ...]
    changed: tuple[Change, ...]
    removed: tuple[Change, ...]
    restored: tuple[str, ...]
    """Taken out once, and there again."""
    renamed: tuple[Renamed, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    """What a person has to say before anything is changed."""
    moved: tuple[MovedBox, ...] = ()
    """Whether this is other work, a person has to say too."""
    boxes: tuple[str, ...] = ()
    """Their boxes say otherwise than they do."""


class PlanAdded(Enqueued, frozen=True, kw_only=True):
    diff: PlanDiff | None = None
    """What the file wants to be otherwise, and what was left as it is: of a plan with a file, or with `whole`,
    that was there already."""


class PlanUpdated(Answer, frozen=True, kw_only=True):
    plan: str
    plan_id: int
    added: int
    existing: int
    completed: tuple[str, ...]
    unproved: tuple[str, ...]
    diff: PlanDiff


class PlanCancelled(Answer, frozen=True, kw_only=True):
    plan: str
    cancelled: int
    stopped: int
    """How many of them were being run."""
    archived: int = 0
    below: int | None
    """Go on with the tasks before this number; None: that was all."""


class Edit(c.Command, frozen=True, kw_only=True):
    """What one task is to be, with what the engine has made of it."""

    task_id: Id
    actor: c.Name
    task_fields: TaskFields
    changed: dict[str, Any]
    """By field, what it was before, as the audit keeps it."""
    lane_id: Count
    unmet: Count
    parent_task_id: Id | None
    input_sealed: str | None = None
    """The secrets of its input context; None: as they are."""


class RenameBox(c.PersonCommand, frozen=True, kw_only=True):
    """Its box in the plan's file is called otherwise now; by the engine, which has compared the two."""

    was: str
    box: str


class EditTask(c.Command, frozen=True, kw_only=True):
    """What a person wants to be otherwise; what is not given stays."""

    task_id: Id
    actor: c.Name
    given: dict[str, Any]
    """By field of a Spec; see `edited`."""
    if_seen: c.Seen | None = None
    """As in PersonCommand."""


_NO_EDIT = frozenset(
    {"key", "idempotency_key", "parent_task_id", "parent", "done", "epic", "feature", "is_group"}
)
_Edited = defstruct(
    "_Edited",
    [
        (name, kind | UnsetType, UNSET)
        for name, kind in get_type_hints(c.Spec, include_extras=True).items()
        if name not in _NO_EDIT
    ],
    rename="camel",
    forbid_unknown_fields=True,
)


def edit_body(actor: Any) -> type[Struct]:
    """The body of a request that edits a task, to be described."""
    own: list[tuple[str, Any] | tuple[str, Any, Any]] = [
        ("actor", actor),
        *((one.name, one.type, one.default) for one in structs.fields(_Edited)),
    ]
    return defstruct("EditTaskBody", own, rename="camel", forbid_unknown_fields=True, kw_only=True)


def edited(given: Mapping[str, Any]) -> dict[str, Any]:
    """By field, what the body of a request wants to be otherwise.  Raises ValidationError."""
    found = convert(given, _Edited)
    values = {name: getattr(found, name) for name in _Edited.__struct_fields__}
    return {name: value for name, value in values.items() if value is not UNSET}


class UpdatePlan(c.Enqueue, frozen=True, kw_only=True):
    """Makes the kept plan what its file says, as far as nothing of it runs or is done."""

    leave: frozenset[str] = frozenset()
    """Keys of tasks that stay as they are, and boxes that are not taken in yet."""
    own: bool = False
    """Only what the file has changed itself: what was edited elsewhere since stays."""
    vouched: bool = False
    """A person has looked at its boxes: what is ticked is done.  An agent's word for it does not count."""
    again: frozenset[str] = frozenset()
    """Keys of tasks that are done, and are to be done again as the file has them now."""


class CancelPlan(c.Command, frozen=True, kw_only=True):
    """Cancels at most `limit` of the plan's tasks that have not ended, the youngest first: those that wait for
    others go before these."""

    plan: c.Name
    actor: c.Name
    reason: c.Text = ""
    seen_event: Count | None = None
    """The newest event that whoever decides has seen: refused where since then a task was added or came back from
    its end, or the plan was paused or resumed."""
    forget: bool = False
    """Archives them as well, and lets go of the plan's file.  Refused while an attempt runs."""
    below: Count | None = None
    limit: Count = 500


def slug(text: str) -> str:
    """`text` in lower case: letters, digits and marks of any script with single dashes between; may be empty."""
    text = text.lower() if text.isascii() else unicodedata.normalize("NFC", text).lower()
    plain = text.isascii()
    if not plain or "+" in text or "#" in text:
        text = _SIGNS.sub(lambda sign: _SIGN_WORDS[sign[1]], text)
    return _NOT_SLUG.sub("-" if plain else _marks, text).strip("-")


def _marks(between: re.Match[str]) -> str:
    """What stands behind a letter: vowel signs and other marks are part of its word."""
    told = between[0]
    if told.isascii() or not between.start():
        return "-"
    end = next((at for at, char in enumerate(told) if not _is_mark(char)), len(told))
    return told[:end] + ("-" if told[end:] else "")


def _is_mark(char: str) -> bool:
    return unicodedata.category(char) in {"Mn", "Mc", "Me"} and char != "\ufe0f"


def key_part(text: str) -> str:
    """What a heading or a title brings into the names of tasks: of signs alone, such as emoji, the signs."""
    return slug(text) or "".join(
        char for char in text if unicodedata.category(char) in {"So", "Sm", "Sc", "Sk"}
    )


def is_barrier(key: str) -> bool:
    """It stands for all tasks below a heading, and for no box."""
    return _BARRIER.search(key) is not None


def without_barriers(tasks: Sequence[KeptTask]) -> list[KeptTask]:
    """What waits for all below a heading waits for each of these tasks instead."""
    barriers = {task.key: task.depends_on for task in tasks if task.is_group and is_barrier(task.key)}
    if not barriers:
        return list(tasks)

    def waits_for(names: Iterable[str]) -> tuple[str, ...]:
        each = (waits_for(barriers[name]) if name in barriers else (name,) for name in names)
        return tuple(dict.fromkeys(one for some in each for one in some))

    return [
        replace(task, depends_on=waits_for(task.depends_on)) for task in tasks if task.key not in barriers
    ]


_NOT_IN_A_FILE = frozenset({"input_context"})
"""A file that says nothing of it leaves it as it is."""


def compare(
    plan: str,
    specs: Iterable[c.Spec],
    kept: Mapping[str, KeptTask],
    renamed: tuple[Renamed, ...] = (),
    doubts: tuple[Doubt, ...] = (),
    *,
    order: str = "",
) -> PlanDiff:
    """What a file's tasks and the kept ones disagree about, in the file's order; both by the keys of tasks.

    A delay counts from when the kept task was added.  In an order, only what a task waits for in the end counts.
    """
    added, restored = [], []
    changed, keys = [], set[str]()
    specs = tuple(specs)
    before: dict[str, Collection[str]] = {}
    if order in {FILE_ORDER, PHASES}:
        before = {key: task.depends_on for key, task in kept.items()}
        before |= {spec.key or "": spec.depends_on for spec in specs}
    for spec in specs:
        key = spec.key or ""
        keys.add(key)
        task = kept.get(key)
        if task is None:
            added.append(key)
            continue
        if task.gone and task.status is TaskStatus.CANCELLED:
            restored.append(key)
        fields = differences(task_fields_of(task), task_fields_of(spec, task.created_at_ms))
        fields = tuple(name for name in fields if name not in _NOT_IN_A_FILE or getattr(spec, name))
        if before and "depends_on" in fields and _same_wait(task.depends_on, spec.depends_on, before):
            fields = tuple(name for name in fields if name != "depends_on")
        if fields or (task.status is TaskStatus.ARCHIVED and not spec.done):
            changed.append(Change(key=key, status=task.status, fields=fields, kept=why_kept(task)))
    removed = (
        Change(key=task.key, status=task.status, kept=_RUNS if task.status in HELD else "")
        for task in kept.values()
        if task.key not in keys and task.from_file and not task.gone
    )
    return PlanDiff(
        plan=plan,
        added=tuple(added),
        changed=tuple(changed),
        removed=tuple(removed),
        restored=tuple(restored),
        renamed=renamed,
        doubts=doubts,
    )


def _same_wait(one: Collection[str], other: Collection[str], before: Mapping[str, Collection[str]]) -> bool:
    """Whether who waits for `one` waits for all of `other` too, and the other way round."""
    return _waits_for(one, {*other} - {*one}, before) and _waits_for(other, {*one} - {*other}, before)


def _waits_for(keys: Collection[str], wanted: set[str], before: Mapping[str, Collection[str]]) -> bool:
    seen, todo = {*keys}, [*keys]
    while todo and wanted and len(seen) < STEPS_MAX:
        fresh = set(before.get(todo.pop(), ())) - seen
        seen |= fresh
        wanted = wanted - fresh
        todo += fresh
    return not wanted


def without(diff: PlanDiff, leave: Collection[str]) -> PlanDiff:
    """What is left of it where these tasks stay as they are."""
    if not leave:
        return diff
    return PlanDiff(
        plan=diff.plan,
        added=tuple(key for key in diff.added if key not in leave),
        changed=tuple(change for change in diff.changed if change.key not in leave),
        removed=tuple(change for change in diff.removed if change.key not in leave),
        restored=tuple(key for key in diff.restored if key not in leave),
        renamed=diff.renamed,
    )


_RUNS = "it runs now"


def why_kept(task: KeptTask) -> str:
    if task.status in EDITABLE:
        return ""
    if task.status is TaskStatus.ARCHIVED and task.worked:
        return "it is archived, and done: tick its box, or give it another id to have it done again"
    if task.status is TaskStatus.ARCHIVED:
        return "it is archived, and was not done: give it another id to have it tried again"
    return _RUNS if task.status in HELD else f"it is {task.status.lower()}"
