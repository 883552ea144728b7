"""What a person should know where agents work in trees of their own."""

from __future__ import annotations

from collections.abc import Iterable

from muster.app.parts import repository_of, trees_of
from muster.config.project import Project
from muster.config.settings import Config
from muster.hosts.user_git import UserGit
from muster.model.errors import Conflict
from muster.model.json_value import Json
from muster.model.refs import plan_branch
from muster.worker.git import GitFailed
from muster.worker.plan_branch import PlanBranch
from muster.worker.workdir import Trees

_BOX = r"^[[:space:]>]*([-*+]|[0-9]+[.)])[[:space:]]+\[[ xX]\]"


def unseen_changes(config: Config, project: Project) -> str:
    """A remark on what the agents will not see; empty where there is none."""
    repository = repository_of(config, project)
    if repository is None:
        return ""
    # Boxes of plans are ticked by Muster itself, and agents are told their tasks otherwise.
    changed = repository.ask("diff", "HEAD", "--numstat", f"--ignore-matching-lines={_BOX}", cwd=project.root)
    number = len(changed.stdout.splitlines())
    if not number:
        return ""
    files = "1 file has" if number == 1 else f"{number} files have"
    return f"Git      {files} uncommitted changes, which agents in trees of their own do not see: git commit"


def where_agents_write(config: Config, project: Project, plan: str, tasks: Iterable[Json]) -> str:
    """Before the first of these tasks begins: in which places their agents write, and what for.

    Raises Conflict where git could not make the branches for that.
    """
    trees = trees_of(config, project)
    named = {task.get("agent") for task in tasks}
    free = config.general if None in named else ()
    names = [name for name in sorted(config.agents) if name in named or name in free]
    goes: dict[str, list[str]] = {}
    for name in names:
        if config.agents[name].writes is False:
            where = "changes nothing"
        elif trees is None or name in trees.here:
            where = f"in {project.root} itself"
        elif trees.merge:
            _refuse_in_the_way(trees, plan)
            where = f"in trees of their own, for branch {plan_branch(plan)}"
        else:
            where = "in trees of their own, for a branch of each task"
        goes.setdefault(where, []).append(name)
    told = "; ".join(f"{', '.join(who)} {where}" for where, who in goes.items())
    why = "" if trees is not None else f" ({_why_no_trees(config, project)})"
    return f"Writes   {told}{why}" if told else ""


def _refuse_in_the_way(trees: Trees, plan: str) -> None:
    try:
        PlanBranch(trees.repository, plan, trees.folder).in_the_way()
    except GitFailed as error:
        raise Conflict(f"{error.message}; nothing was started", error.hint) from error


def _why_no_trees(config: Config, project: Project) -> str:
    git = UserGit(project.root)
    if not config.git.worktrees:
        return "git.worktrees = false"
    if git.ask("version").returncode:
        return "git is not installed"
    if git.ask("rev-parse", "--git-dir").returncode:
        return "it is in no git repository"
    return (
        "its git repository has no commit yet"
        if not git.commit_of("HEAD")
        else "its git repository has no working tree here"
    )


def where_the_work_is(config: Config, project: Project, plan: str) -> str:
    """How to get what the plan's tasks have made; empty where nothing waits to be merged."""
    repository = repository_of(config, project)
    branch = plan_branch(plan)
    try:
        tip = PlanBranch(repository, plan, project.worktrees_dir).tip() if repository else None
    except GitFailed as error:
        return f"Git      {error.message}; {error.hint}"
    if repository is None or tip is None or repository.is_ancestor(tip, "HEAD"):
        return ""
    return f"Git      the work is on branch {branch}: muster plan merge {plan}"
