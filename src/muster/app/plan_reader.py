"""A plan's file as the owner's services read it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from msgspec import convert

from muster.app.plan_tasks import choose_order, task_bodies
from muster.config.project import Project
from muster.config.settings import Config
from muster.hosts.git_head import head_of
from muster.model.edits import UpdatePlan
from muster.model.errors import BadPlan
from muster.model.people import THE_FILE


def titles_of(path: Path) -> dict[str, str] | None:
    """By name, those of the boxes that the file holds now; None where it cannot be read."""
    from muster.plans.files import read_plan

    try:
        return {task.key: task.title for task in read_plan(path).tasks} if path.exists() else {}
    except BadPlan:
        return None


class PlanReader:
    def __init__(self, project: Project, config: Config, *, in_reach: bool) -> None:
        """`in_reach`: agents work in the folder of the project."""
        self._project, self._config, self._in_reach = project, config, in_reach

    def wanted(self, source: str, order: str, data: bytes, known: Collection[str]) -> UpdatePlan:
        """What the file wants its plan to be, which went on in this order so far; `known` are the agents that it
        may name.  Raises BadPlan."""
        from muster.plans import markdown
        from muster.plans.order import ordered

        document = markdown.parse(markdown.decode(data, source), source)
        chosen = choose_order(document, self._config, order)
        document = ordered(document, chosen.order)
        body = {
            "plan": document.name,
            "source": source,
            "tasks": task_bodies(document, self._config, source, lambda: known),
            "actor": THE_FILE,
            "order": chosen.kept,
            "inReach": self._in_reach,
        }
        return convert(body, UpdatePlan)

    def titles(self, source: str) -> dict[str, str] | None:
        return titles_of(self._project.root / source)

    def head_of(self, source: str) -> str | None:
        """As `hosts.git_head`."""
        return head_of(self._project.root / source)

    def paths(self, sources: list[str]) -> list[Path]:
        return [self._project.root / source for source in sources]
