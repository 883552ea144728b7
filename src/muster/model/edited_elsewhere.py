"""Tasks of a plan's file that were edited elsewhere: that stays while their boxes say what they said before.

Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from muster.model.commands import Spec
from muster.model.edits import Change, KeptTask, PlanDiff, task_fields_of
from muster.model.task import TaskFields

EditedFields = dict[str, tuple[str, ...]]
"""By field, digests of what the box said of it before, or may still say."""
Edited = dict[str, EditedFields]
"""By the keys of tasks."""
VERSIONS_MAX = 5
"""So many edits of one field are remembered."""


def noted(edited: Edited, key: str, before: TaskFields, names: Iterable[str]) -> Edited:
    """With one more edit, of these fields."""
    fields = dict(edited.get(key, {}))
    for name in names:
        said = _digest(getattr(before, name))
        fields[name] = (*(one for one in fields.get(name, ()) if one != said), said)[-VERSIONS_MAX:]
    return {**edited, key: fields}


def without_edited(
    diff: PlanDiff, edited: Edited, specs: Iterable[Spec], kept: Mapping[str, KeptTask]
) -> PlanDiff:
    """What the file has changed itself."""
    if not edited:
        return diff
    by_key = {spec.key: spec for spec in specs if spec.key in edited}
    changed = []
    for change in diff.changed:
        spec = by_key.get(change.key)
        own = change.fields if spec is None else _own(change, edited[change.key], spec, kept[change.key])
        if own or not change.fields:
            changed.append(replace(change, fields=own))
    return replace(diff, changed=tuple(changed))


def done_again(diff: PlanDiff, keys: Collection[str]) -> PlanDiff:
    """What is done stays as it is, but for these."""
    return replace(
        diff, changed=tuple(replace(one, kept="") if one.key in keys else one for one in diff.changed)
    )


def _own(change: Change, fields: EditedFields, spec: Spec, kept: KeptTask) -> tuple[str, ...]:
    said = task_fields_of(spec, kept.created_at_ms)
    return tuple(name for name in change.fields if _digest(getattr(said, name)) not in fields.get(name, ()))


def edited_in_both(diff: PlanDiff, edited: Edited) -> frozenset[str]:
    """Of what the file has changed itself: the keys of tasks whose same field was edited elsewhere as well."""
    return frozenset(one.key for one in diff.changed if {*one.fields} & edited.get(one.key, {}).keys())


def agreed(diff: PlanDiff, edited: Edited, keys: Collection[str]) -> Edited:
    """Of these boxes: what they say by now of what was edited is what the tasks say.  `diff` is the whole one."""
    differ = {change.key: {*change.fields} for change in diff.changed}
    found = {
        key: {name: said for name, said in fields.items() if name not in differ.get(key, ())}
        for key, fields in edited.items()
        if key in keys
    }
    return {key: fields for key, fields in found.items() if fields}


def without_agreed(edited: Edited, settled: Edited) -> Edited:
    """What was edited once more since then stays."""
    left = {
        key: {name: said for name, said in fields.items() if settled.get(key, {}).get(name) != said}
        for key, fields in edited.items()
    }
    return {key: fields for key, fields in left.items() if fields}


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:16]
