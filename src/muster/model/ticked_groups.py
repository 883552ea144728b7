"""What a ticked box says of a group, whose end is that of the tasks below it.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from muster.model.edits import KeptTask
from muster.model.file_conflicts import Difference, FileChange
from muster.model.plan_sync import GIVEN_UP_OR_DONE
from muster.model.wording import OPEN_BELOW

NOT_ENDED = "it has not ended with the tasks below it: --accept ends it all the same"


def groups_told(kept: Mapping[str, KeptTask]) -> dict[str, str]:
    """By key: why a group does not end because its box is ticked."""
    below = _open_below(kept)
    return {key: OPEN_BELOW if key in below else NOT_ENDED for key, task in kept.items() if task.is_group}


def too_early(chosen: Iterable[Difference], kept: Mapping[str, KeptTask]) -> frozenset[str]:
    """Keys of ticked groups with tasks below them that are neither over nor ticked with them."""
    all_ticked = {one.key for one in chosen if one.kind is FileChange.TICKED}
    below, ticked = _open_below(kept), set(all_ticked)
    while early := {key for key in ticked if not below.get(key, set()) <= ticked}:
        ticked -= early
    return frozenset(all_ticked - ticked)


def _open_below(kept: Mapping[str, KeptTask]) -> dict[str, set[str]]:
    """By the keys of groups, the tasks below them that somebody is still to do."""
    found: dict[str, set[str]] = {}
    for key, task in kept.items():
        group = kept.get(task.parent or "")
        if group is not None and group.is_group and task.status not in GIVEN_UP_OR_DONE:
            found.setdefault(group.key, set()).add(key)
    return found
