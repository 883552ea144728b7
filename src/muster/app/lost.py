"""Which attempts an older store does not know, as far as their folders tell."""

from __future__ import annotations

from muster.config.project import Project
from muster.engine.batch import drive
from muster.hosts.attempt_folders import LocalFolders
from muster.model.numbers import NUMBER_MAX
from muster.model.views import TaskFilter
from muster.ports.store import Reads

NAMES_MAX = 5


def lost_attempts(project: Project, reads: Reads) -> str:
    """In words, newest tasks first; empty where each folder's attempt is known."""
    folders = LocalFolders(project.attempts_dir, project.log_file).older_than(NUMBER_MAX, NUMBER_MAX)
    lost = sorted((found for found in folders if drive(reads.attempt(*found)) is None), reverse=True)
    if not lost:
        return ""
    shown = lost[:NAMES_MAX]
    views = drive(reads.task_views(TaskFilter(ids=tuple({task_id for task_id, _ in shown}))))
    names = {view.id: f"{view.plan}/{view.key}" for view in views}
    told = [f"{names.get(task_id, f'task {task_id}')}#{epoch}" for task_id, epoch in shown]
    more = f" and {len(lost) - len(shown)} more" if len(lost) > len(shown) else ""
    those = (
        "1 attempt that has left a folder is"
        if len(lost) == 1
        else f"{len(lost)} attempts that have left a folder are"
    )
    return f"{those} unknown: {', '.join(told)}{more}"
