"""What a pull request is about: the branch of a plan, or the work of one task that is done."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from muster.app.plan_branch import no_branch
from muster.client.api import Api, plan_path, task_path
from muster.hosts.user_git import UserGit
from muster.model.errors import Conflict, NotFound
from muster.model.json_value import Json
from muster.model.refs import plan_branch
from muster.model.states import PauseReason, TaskStatus
from muster.worker.git import GitFailed, Repository
from muster.worker.worktree import Worktree


class Target(NamedTuple):
    """What a pull request is about."""

    ref: str
    """Its plan, or `plan/key` of its one task."""
    task: bool
    title: str
    branch: str
    commit: str


def plan_target(git: UserGit, plan: str) -> Target:
    branch = plan_branch(plan)
    commit = git.commit_of(f"refs/heads/{branch}")
    if not commit:
        raise no_branch(git, plan)
    return Target(plan, False, plan, branch, commit)


def task_target(repository: Repository, trees: Path, task: Json) -> Target:
    """The work of its newest attempt as people were shown it, with what they have added on its branch since.

    Raises Conflict before it is done: nothing goes out that was not checked, or that its reviewer has not taken.
    """
    ref = f"{task['plan']}/{task['key']}"
    if task["status"] != TaskStatus.COMPLETED:
        raise _not_done(ref, task)
    tree = Worktree(repository, trees / str(task["id"]), task["plan"], task["key"], task["epoch"])
    epoch = next((epoch for epoch, _ in tree.kept_before()), None)
    commit = None if epoch is None else tree.left_by(epoch)
    tip = repository.commit_of(tree.head)
    if tip is not None and not _under_check(tree):  # else with commits of the check
        behind = commit is not None and repository.is_ancestor(tip, commit)
        commit = commit if behind else tip
    if commit is None:
        raise NotFound(
            f"{ref} has left no work in this repository; nothing was pushed", f"muster task show {ref}"
        )
    return Target(ref, True, task["title"], tree.branch, commit)


def _not_done(ref: str, task: Json) -> Conflict:
    if task["pausedReason"] == PauseReason.REVIEW:
        return Conflict(
            f"{ref} is to be reviewed before anything of it is published; nothing was pushed: {task['why']}",
            f"muster attempt diff {ref}, then muster task accept {ref}",
        )
    return Conflict(f"{ref} is not done, so nothing of it was pushed: {task['why']}", f"muster why {ref}")


def _under_check(tree: Worktree) -> bool:
    """Also where its worker was killed in the middle of one."""
    try:
        return tree.checking.exists()
    except GitFailed:
        return False  # it has no tree any more


def wanted(api: Api, word: str) -> tuple[str, Json | None]:
    """(plan, None) or (its plan, the task).  Raises NotFound."""
    try:
        name: str = api.get(plan_path(word))["plan"]["name"]
        return name, None
    except NotFound:
        pass
    found = api.get("/api/v1/resolve", {"ref": word})["taskId"]
    task: Json = api.get(task_path(found))["task"]
    return task["plan"], task
