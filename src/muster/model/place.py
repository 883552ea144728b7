"""Where a task stands in its plan."""

from __future__ import annotations

from muster.model.answers import Answer
from muster.model.states import TaskStatus


class Neighbour(Answer, frozen=True, kw_only=True):
    title: str
    status: TaskStatus


class PlanPlace(Answer, frozen=True, kw_only=True):
    """All empty for a task of no plan."""

    plan: str = ""
    file: str = ""
    epic: str = ""
    feature: str = ""
    parent: str = ""
    """The title of what it is a part of, or came from."""
    before: Neighbour | None = None
    """Among those with the same headings and parent."""
    after: Neighbour | None = None
    plan_files: tuple[str, ...] = ()
    """Of all plans, from the project's folder."""
