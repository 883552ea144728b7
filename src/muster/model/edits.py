"""Changing tasks that are there already: one by one, or a whole plan after its file was edited.

Pure.  `compare` says what a plan's file and the kept plan disagree about; `muster plan diff` shows that, and
`UpdatePlan` applies it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import asdict

from muster.model import commands as c
from muster.model.answers import Answer
from muster.model.states import HELD, FailedDependency, TaskStatus
from muster.model.task import REMOVED
from muster.model.views import View

EDITABLE = frozenset(
    {TaskStatus.PENDING, TaskStatus.ABORTED, TaskStatus.PAUSED, TaskStatus.FAILED, TaskStatus.CANCELLED}
)

SLUG_CHARS_MAX = 40
_NOT_SLUG = re.compile(r"[\W_]+")


class TaskFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Everything about a task that a person may edit."""

    title: Annotated[str, Meta(min_length=1)]
    description: str
    agent: str | None
    capabilities: tuple[str, ...]
    profile: str | None
    priority: c.Priority
    sort_key: c.SortKey
    limit_key: str | None
    on_failed: FailedDependency
    tags: tuple[str, ...]
    metadata: dict[str, str]
    timeout_s: c.Seconds
    max_retries: Annotated[int, Meta(ge=0, le=1_000_000)]
    estimated_s: c.Seconds | None
    target: str | None
    not_before_ms: c.Count | None
    """Wall time of the earliest start."""
    expires_at_ms: c.Count | None
    epic: str
    feature: str
    parent: str | None
    """Key of the task that it belongs to."""
    depends_on: tuple[str, ...]
    """Keys of the same plan, or numbers of any tasks; without order."""


FIELDS = TaskFields.__struct_fields__


class KeptTask(View, frozen=True, kw_only=True):
    """A task as the store has it, in the words of a plan file."""

    id: int
    key: str
    """Its number where it has none."""
    status: TaskStatus
    error: str
    pinned_agent: str | None
    from_file: bool
    """It came with a plan file, so the file may take it out again."""
    title: str
    description: str
    agent: str | None
    capabilities: tuple[str, ...]
    profile: str | None
    priority: int
    sort_key: int
    limit_key: str | None
    on_failed: FailedDependency
    tags: tuple[str, ...]
    metadata: dict[str, str]
    timeout_s: int
    max_retries: int
    epic: str
    feature: str
    parent: str | None
    not_before_ms: int | None
    expires_at_ms: int | None
    """Both as they were wished, whatever the task's state says by now."""
    estimated_s: int | None
    target: str | None
    created_at_ms: int
    dependencies: tuple[tuple[int, str, bool], ...]
    """(number, key or number, whether it is done) of what it waits for."""

    @property
    def depends_on(self) -> tuple[str, ...]:
        return tuple(name for _, name, _ in self.dependencies)

    @property
    def gone(self) -> bool:
        """The file has taken it out already."""
        return self.status is TaskStatus.ARCHIVED or (
            self.status is TaskStatus.CANCELLED and self.error == REMOVED
        )


def task_fields_of(task: c.Spec | KeptTask, added_at_ms: int = 0) -> TaskFields:
    """`added_at_ms` is what the times of a Spec count from."""
    task_fields = {name: getattr(task, name) for name in FIELDS}
    if isinstance(task, c.Spec):
        task_fields["not_before_ms"] = task.begins_at_ms(added_at_ms)
        task_fields["expires_at_ms"] = task.ends_at_ms(added_at_ms)
    for name in ("capabilities", "depends_on"):
        task_fields[name] = tuple(sorted(set(task_fields[name])))
    return TaskFields(**task_fields)


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


class PlanDiff(Answer, frozen=True, kw_only=True):
    """What a plan file wants to be otherwise than it is kept."""

    plan: str
    added: tuple[str, ...]
    changed: tuple[Change, ...]
    removed: tuple[Change, ...]
    restored: tuple[str, ...]
    """Taken out once, and there again."""


class PlanUpdated(Answer, frozen=True, kw_only=True):
    plan: str
    plan_id: int
    added: int
    existing: int
    completed: tuple[str, ...]
    diff: PlanDiff


class PlanCancelled(Answer, frozen=True, kw_only=True):
    plan: str
    cancelled: int
    stopped: int
    """How many of them were being run."""
    below: int | None
    """Go on with the tasks before this number; None: that was all."""


class Edit(c.Command, frozen=True, kw_only=True):
    """One task's new wishes, with what the engine has made of them."""

    task_id: int
    actor: c.Name
    task_fields: TaskFields
    changed: dict[str, Any]
    """By field, what it was before, as the audit keeps it."""
    lane_id: int
    unmet: int
    parent_task_id: int | None


class EditTask(c.Command, frozen=True, kw_only=True):
    """What a person wants to be otherwise; what is not given stays."""

    task_id: int
    actor: c.Name
    title: Annotated[str, Meta(min_length=1, max_length=10_000)] | UnsetType = UNSET
    description: str | UnsetType = UNSET
    agent: c.Name | UnsetType | None = UNSET
    capabilities: tuple[c.Name, ...] | UnsetType = UNSET
    profile: c.Name | UnsetType | None = UNSET
    priority: c.Priority | UnsetType = UNSET
    sort_key: c.SortKey | UnsetType = UNSET
    limit_key: c.Name | UnsetType | None = UNSET
    on_failed: FailedDependency | UnsetType = UNSET
    tags: tuple[c.Name, ...] | UnsetType = UNSET
    metadata: dict[c.Name, c.Text] | UnsetType = UNSET
    timeout_s: c.Seconds | UnsetType = UNSET
    max_retries: Annotated[int, Meta(ge=0, le=1_000_000)] | UnsetType = UNSET
    estimated_s: c.Seconds | UnsetType | None = UNSET
    target: c.Name | UnsetType | None = UNSET
    not_before_ms: c.Count | UnsetType | None = UNSET
    expires_at_ms: c.Count | UnsetType | None = UNSET
    depends_on: tuple[c.Name, ...] | UnsetType = UNSET
    """Keys of the same plan, or numbers of any tasks."""

    def given(self) -> dict[str, Any]:
        given = asdict(self)
        return {name: given[name] for name in FIELDS if given.get(name, UNSET) is not UNSET}


class UpdatePlan(c.Enqueue, frozen=True, kw_only=True):
    """Makes the kept plan what its file says, as far as nothing of it runs or is done."""


class CancelPlan(c.Command, frozen=True, kw_only=True):
    """Cancels at most `limit` of the plan's tasks that have not ended, the youngest first: those that wait for
    others go before these."""

    plan: c.Name
    actor: c.Name
    reason: c.Text = ""
    below: int | None = None
    limit: int = 500


def slug(text: str) -> str:
    """`text` in lower case, letters and digits of any script with single dashes between; may be empty."""
    return _NOT_SLUG.sub("-", unicodedata.normalize("NFC", text).lower()).strip("-")


def short_slug(title: str) -> str:
    """A key for a task that was given none: the first words of its title."""
    cut = slug(title[: 4 * SLUG_CHARS_MAX])
    if len(cut) > SLUG_CHARS_MAX:
        cut = cut[: SLUG_CHARS_MAX + 1].rpartition("-")[0] or cut[:SLUG_CHARS_MAX]
    return cut or "task"


def free_name(wanted: str, taken: Collection[str]) -> str:
    """What a new plan is called: `wanted`, or with a number where another plan is called so."""
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name


def compare(plan: str, specs: Iterable[c.Spec], kept: Mapping[str, KeptTask]) -> PlanDiff:
    """What a file's tasks and the kept ones disagree about, in the file's order.

    A delay counts from when the kept task was added.
    """
    added, restored = [], []
    changed, keys = [], set[str]()
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
        if fields or (task.status is TaskStatus.ARCHIVED and not spec.done):
            changed.append(Change(key=key, status=task.status, fields=fields, kept=_kept(task.status)))
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
    )


_RUNS = "it runs now"


def _kept(status: TaskStatus) -> str:
    if status in EDITABLE:
        return ""
    if status is TaskStatus.ARCHIVED:
        return "it is archived: give it another id"
    return _RUNS if status in HELD else f"it is {status.lower()}"
