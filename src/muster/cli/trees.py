"""What a person should know where agents work in trees of their own."""

from __future__ import annotations

from muster.app.parts import repository_of
from muster.config.project import Project
from muster.config.settings import Config
from muster.model.refs import plan_branch

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


def where_the_work_is(config: Config, project: Project, plan: str) -> str:
    """How to get what the plan's tasks have made; empty where nothing waits to be merged."""
    repository = repository_of(config, project)
    branch = plan_branch(plan)
    tip = repository.commit_of(f"refs/heads/{branch}") if repository else None
    if repository is None or tip is None or repository.is_ancestor(tip, "HEAD"):
        return ""
    return f"Git      the work is on branch {branch}: git merge {branch}"
