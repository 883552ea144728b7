"""Working trees whose tasks have ended: put away, with nothing lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from muster.worker.git import GitFailed, Repository
from muster.worker.worktree import Worktree

log = logging.getLogger(__name__)


def tree_ids(folder: Path) -> list[int]:
    """Numbers of the tasks that have a tree below `folder`, lowest first."""
    if not folder.is_dir():
        return []
    return sorted(
        int(path.name) for path in folder.iterdir() if path.name.isdigit() and not path.is_symlink()
    )


def set_aside(folder: Path) -> list[tuple[int, Path]]:
    """Folders that stood where a task has its tree, and were none; with the number of that task."""
    found = [(path.name.partition("-before-")[0], path) for path in folder.glob("*-before-*")]
    return sorted((int(name), path) for name, path in found if name.isdigit())


class LocalTrees(Struct, frozen=True):
    """Implements ports.trees."""

    repository: Repository
    folder: Path
    at_work: Callable[[Path, Path], list[int]]
    """Pids of whoever works in the first of these folders, or was started for the second."""

    def ids(self) -> list[int]:
        return tree_ids(self.folder)

    def put_away(self, task_id: int, plan: str, key: str, epoch: int) -> str:
        tree = Worktree(self.repository, self.folder / str(task_id), plan, key, epoch)

        def in_the_way() -> str:
            pids = self.at_work(tree.path, tree.cwd)
            return f"somebody works in it: process {', '.join(map(str, pids[:5]))}" if pids else ""

        try:
            why = tree.put_away(in_the_way)
        except (GitFailed, OSError) as error:
            why = str(error)
        if not why:
            log.info("the tree of %s/%s was removed: its task has ended", plan, key)
        return why
