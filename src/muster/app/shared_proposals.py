"""A pull request of what tasks have made, opened by one of several servers, with the login of whoever runs it."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from muster.app.pull_request_opening import proposal_of
from muster.app.pull_request_push import refuse_brought, telling_pushed, telling_unpushed
from muster.app.pull_request_targets import Target, plan_target, task_target, wanted
from muster.app.pull_request_text import text_for
from muster.app.pull_requests import publish, requests_of
from muster.app.seen_work import refuse_unseen
from muster.app.settings import load_config
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.hosts.user_git import UserGit
from muster.model.errors import Conflict, Unavailable
from muster.model.json_value import Json
from muster.model.refs import plan_branch, refs_of_plan, refs_of_task, task_branch
from muster.model.works import PullOpened, PullProposed
from muster.outbound.forges import forge_of
from muster.ports.works import WorkSeen
from muster.worker.git import GitFailed
from muster.worker.git_mirror import GitMirror

_HEADS = "refs/heads/"


class _Aim(NamedTuple):
    target: Target
    into: str
    base: str
    """The commit where that is."""
    there: str | None
    """Likewise, of the branch itself."""


def proposed(mirror: GitMirror, project: Project, ref: str) -> PullProposed:
    """What `propose` would bring."""
    with closing(Api(Connection(project.socket))) as api:
        plan, task = wanted(api, ref)
    with mirror.lock:
        aim = _aim(mirror, project, plan, task)
        git = UserGit(mirror.repository.top)
        return proposal_of(git, aim.target, mirror.shown, aim.into, aim.base)


def propose(mirror: GitMirror, project: Project, ref: str, seen: WorkSeen) -> PullOpened:
    """A plan's branch is at the remote already; a task's is brought there.

    Nothing is kept of it here: the next server finds at the forge what is open.
    """
    config = load_config(project.root)
    forge = forge_of(mirror.url, config.git.forge)  # before anything goes to the remote
    with closing(Api(Connection(project.socket))) as api:
        plan, task = wanted(api, ref)
        git = UserGit(mirror.repository.top)
        with telling_unpushed():
            branch = plan_branch(plan) if task is None else task_branch(plan, task["key"])
            number = opened.number if (opened := requests_of(forge, branch, None).open) else None
        with mirror.lock:
            target, into, base, there = _aim(mirror, project, plan, task)
            now = WorkSeen(target.commit, into)
            refuse_unseen(git, seen, now, target.branch, f"muster why {ref}")
            refuse_brought(git, target, base, f"{into} of {mirror.shown}", is_open=number is not None)
            pushed = _brought(mirror, target, there)
            with telling_pushed(target.branch, mirror.shown, new=pushed):
                text = text_for(api, git, config, target, plan=plan, base=base)
    with telling_pushed(target.branch, mirror.shown, new=pushed):
        record, new = publish(forge, target, text, remote=mirror.shown, base=into, new_base="", number=number)
    return PullOpened(
        ref=record.ref, url=record.url, branch=record.branch, base=record.base, new=new, pushed=pushed
    )


def _aim(mirror: GitMirror, project: Project, plan: str, task: Json | None) -> _Aim:
    """As the remote has it now.  Raises NotFound, Unavailable."""
    git, into = UserGit(mirror.repository.top), mirror.first_branch()
    of_task = refs_of_task(plan, task["key"]) if task is not None else ()
    seen = mirror.fetch(f"{_HEADS}{into}", *refs_of_plan(plan), *of_task)
    if task is None:
        target = plan_target(git, plan)
    else:
        target = task_target(mirror.repository, project.worktrees_dir, task)
    return _Aim(target, into, seen[f"{_HEADS}{into}"], seen.get(f"{_HEADS}{target.branch}"))


def _brought(mirror: GitMirror, target: Target, there: str | None) -> bool:
    """Whether the remote has got anything by it.  Raises Conflict, Unavailable."""
    if there == target.commit:
        return False
    try:
        if mirror.push({f"{_HEADS}{target.branch}": (there, target.commit)}):
            return True
    except GitFailed as error:
        raise Conflict(f"{error.message}; nothing was changed", error.hint) from error
    raise Unavailable(f"branch {target.branch} of {mirror.shown} has moved; nothing was changed", "try again")
