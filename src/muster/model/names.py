"""What is called by itself: keys of tasks that were given none, and names that are free.  Pure."""

from __future__ import annotations

from collections.abc import Collection

from muster.model.edits import slug

SLUG_CHARS_MAX = 40


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
