"""The uncommitted work of attempts that were cut off, where no store can tell whose it is."""

from __future__ import annotations

import shlex

from muster.config.project import Project
from muster.hosts.process_tree import PIDS_FILE
from muster.worker.git import GitFailed, GitRefused, Repository, find_repository
from muster.worker.tree_links import deleted_trees
from muster.worker.worktree import Worktree
from muster.worker.worktree_cleaner import tree_ids


def attempts_at_work(project: Project) -> set[int]:
    """The numbers of the tasks whose processes are recorded."""
    return {int(path.parent.parent.name) for path in project.attempts_dir.glob(f"*/*/{PIDS_FILE}")}


def keep_work(project: Project, task_ids: set[int]) -> list[str]:
    """Commits what is in these tasks' working trees, each behind the ref of its attempt; what there is to say.

    Nobody may be at work there any more.
    """
    try:
        repository = find_repository(project.root)
    except GitRefused as error:
        return [f"Left     {project.worktrees_dir} as it is: {error}"] if task_ids else []
    if repository is None:
        return []
    deleted = deleted_trees(repository, project.worktrees_dir)
    there = task_ids.intersection(tree_ids(project.worktrees_dir))
    said = []
    for path in sorted({project.worktrees_dir / str(task_id) for task_id in there}.union(deleted)):
        admin = deleted.get(path)
        try:
            tree = Worktree.found(repository, path, admin)
            work = tree.keep(admin) if tree is not None else None
        except (GitFailed, OSError) as error:
            said.append(f"Left     {path} as it is: {error}")
            continue
        if tree is None or work is None:
            continue
        name, only = f"{tree.plan}/{tree.key}", ", as far as it was staged or committed" if admin else ""
        if admin and not work.commits:
            said.append(f"Gone     {name}: its working tree was deleted, and nothing was staged or committed")
        else:
            said.append(f"Kept     {name}: {work.stat}{only}; git show {tree.kept}")
    return said


def push_of_plans(project: Project) -> str:
    """The command that takes what plans have made to a repository that servers share; empty for nothing, and
    where git does not tell."""
    repository = _with_work(project)
    if repository is None:
        return ""
    wanted = " ".join(f"'{refs}:{refs}'" for refs in ("refs/heads/muster/*", "refs/muster/*"))
    return f"git -C {shlex.quote(str(repository.top))} push REMOTE {wanted}"


def _with_work(project: Project) -> Repository | None:
    try:
        repository = find_repository(project.root)
    except GitRefused:
        return None
    if repository is None or not repository.ask("for-each-ref", "--count=1", "refs/muster").stdout:
        return None
    return repository


def former_work(project: Project) -> str:
    """For a store that has just been made: what git tells of one before it; empty where it tells nothing."""
    if _with_work(project) is None:
        return ""
    return (
        "this store is new, and git has the work of earlier tasks: git for-each-ref refs/muster; "
        "where a store was deleted, put its folder back, or a backup of it"
    )
