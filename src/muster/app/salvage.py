"""The uncommitted work of attempts that were cut off, where no store can tell whose it is."""

from __future__ import annotations

from muster.config.project import Project
from muster.hosts.process_tree import PIDS_FILE
from muster.worker.git import GitFailed, find_repository
from muster.worker.worktree import Worktree
from muster.worker.worktree_cleaner import tree_ids


def attempts_at_work(project: Project) -> set[int]:
    """The numbers of the tasks whose processes are recorded."""
    return {int(path.parent.parent.name) for path in project.attempts_dir.glob(f"*/*/{PIDS_FILE}")}


def keep_work(project: Project, task_ids: set[int]) -> list[str]:
    """Commits what is in these tasks' working trees, each behind the ref of its attempt; what there is to say.

    Nobody may be at work there any more.
    """
    trees = sorted(task_ids.intersection(tree_ids(project.worktrees_dir)))
    repository = find_repository(project.root) if trees else None
    if repository is None:
        return []
    said = []
    for path in (project.worktrees_dir / str(task_id) for task_id in trees):
        try:
            tree = Worktree.found(repository, path)
            work = tree.keep() if tree is not None else None
        except (GitFailed, OSError) as error:
            said.append(f"Left     {path} as it is: {error}")
            continue
        if tree is not None and work is not None:
            said.append(f"Kept     {tree.plan}/{tree.key}: {work.stat}; git show {tree.kept}")
    return said
