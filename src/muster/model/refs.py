"""What Muster calls its branches and refs in a git repository."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container
from typing import NamedTuple

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+|\.\.+|^[.]+|\.$|(?<=\.)lock$")
_PART_MAX = 100
_PLAN_BRANCHES = "muster/plan/"
PUBLISHED, _TURN, _MERGED = "@published", "@turn", "@merged"


def ref_part(text: str) -> str:
    """`text` as one part of a ref's name.  Texts that differ stay different."""
    safe = _UNSAFE.sub("-", text)[:_PART_MAX] or "-"
    if safe == text:
        return safe
    return f"{safe.rstrip('.-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def plan_branch(plan: str) -> str:
    """Where the work of a plan's tasks comes together."""
    return f"{_PLAN_BRANCHES}{ref_part(plan)}"


def published_ref(plan: str) -> str:
    """What was published last on the branch of a plan.  No task has this name: `ref_part` leaves no @."""
    return f"refs/muster/{ref_part(plan)}/{PUBLISHED}"


def turn_of(branch: str) -> str:
    """Moves on with a plan's branch, in a repository that servers share: an older one moves neither."""
    return f"refs/muster/{branch.removeprefix(_PLAN_BRANCHES)}/{_TURN}"


def merged_ref(plan: str, task_id: int, epoch: int) -> str:
    """What an attempt is about to move the branch of its plan to, in a repository that servers share."""
    return f"refs/muster/{ref_part(plan)}/{_MERGED}/{task_id}-{epoch}"


def refs_of_plan(plan: str) -> tuple[str, ...]:
    """All that a plan has itself; names, and what others lie below."""
    own = f"refs/muster/{ref_part(plan)}"
    return f"refs/heads/{plan_branch(plan)}", *(f"{own}/{name}" for name in (PUBLISHED, _TURN, _MERGED))


def refs_of_task(plan: str, key: str) -> tuple[str, ...]:
    """All that a task has, as `refs_of_plan`."""
    return f"refs/heads/{task_branch(plan, key)}", kept_refs(plan, key)


def task_branches(plan: str) -> str:
    """What the branches of its tasks lie below."""
    return f"muster/task/{ref_part(plan)}"


def task_branch(plan: str, key: str) -> str:
    return f"{task_branches(plan)}/{ref_part(key)}"


def kept_refs(plan: str, key: str) -> str:
    """Where the refs of a task's attempts are: one with the work of each, named by its epoch."""
    return f"refs/muster/{ref_part(plan)}/{ref_part(key)}"


def kept_ref(plan: str, key: str, attempt: int | str) -> str:
    """All that an attempt left, committed by itself or not."""
    return f"{kept_refs(plan, key)}/{attempt}"


def base_ref(plan: str, key: str, attempt: int | str) -> str:
    """Where that attempt began."""
    return f"{kept_refs(plan, key)}/{attempt}-base"


class AttemptRefs(NamedTuple):
    base: str
    kept: str


def attempt_refs(plan: str, key: str, epoch: int, task: object, there: Container[str]) -> AttemptRefs:
    """An attempt's, among the refs that are there; the task's number is in their names where it was needed."""
    own = own_refs(plan, key, epoch, task)
    usual = AttemptRefs(base_ref(plan, key, epoch), kept_ref(plan, key, epoch))
    return own if own.base in there else usual


def own_refs(plan: str, key: str, epoch: int, task: object) -> AttemptRefs:
    """Where the usual names are taken: another store, before or beside this one, has had such a task as well."""
    name = f"{epoch}-{task}"
    return AttemptRefs(base_ref(plan, key, name), kept_ref(plan, key, name))
