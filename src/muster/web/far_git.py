"""The commits of workers on other hosts: `/worker/v1/git`."""

from __future__ import annotations

from msgspec.structs import replace

from muster.model import commands as c
from muster.model.errors import Conflict, NotFound, StaleEpoch
from muster.model.far_git import GitFetch, GitMoved, GitPart, GitPublish, GitReceived, GitSend
from muster.model.wording import STILL_AWAY
from muster.ports.far_git import FarGit
from muster.web.backend import Backend
from muster.web.http import Request
from muster.web.routes import Routes
from muster.web.worker_identity import refuse_without_task

routes = Routes()


@routes.post("/worker/v1/git/fetch")
async def fetch(web: Backend, request: Request, body: GitFetch) -> GitPart:
    """The branch of a task's plan and what its attempts have left, as a git bundle, part by part: for the worker
    that has the task now."""
    plan, key = await _named(web, body.task_id)
    await refuse_without_task(web, request, body.task_id)
    git = web.owner.far_git
    if git is None:
        return GitPart(repository=False)
    part = await git.part(plan, key, body)
    if body.bundle is not None:
        return part
    made = await web.reads.artifacts(body.task_id)
    away = {str(one.epoch): one.location for one in made if one.location.endswith(STILL_AWAY)}
    return replace(part, away=away)


@routes.post("/worker/v1/git/send")
async def send(web: Backend, body: GitSend) -> GitReceived:
    """What an attempt has left, as a git bundle, part by part; also after it has lost its task."""
    if await web.reads.attempt(body.task_id, body.epoch) is None:
        raise NotFound(f"there is no attempt {body.epoch} of task {body.task_id}; nothing was kept")
    if body.branch and (newest := (await web.queries.task(body.task_id)).task.epoch) != body.epoch:
        raise StaleEpoch(f"attempt {newest} has task {body.task_id}; its branch was not moved")
    return await _git(web).take(*await _named(web, body.task_id), body)


@routes.post("/worker/v1/git/publish")
async def publish(web: Backend, body: GitPublish) -> GitMoved:
    """Moves the branch of its plan from `old` to `new`, for the attempt that has the task now."""

    async def intend(branch: str, old: str, turn: str) -> None:
        moves = {"branch": branch, "old": old, "new": body.new, "turn": turn}
        command = c.Publish(task_id=body.task_id, epoch=body.epoch, proof=body.proof, **moves)
        await web.engine.execute(command)

    plan, _ = await _named(web, body.task_id)
    return await _git(web).publish(plan, body, intend)


async def _named(web: Backend, task_id: int) -> tuple[str, str]:
    task = (await web.queries.task(task_id)).task
    return task.plan, task.key


def _git(web: Backend) -> FarGit:
    if web.owner.far_git is None:
        raise Conflict(
            "tasks have no working trees here; nothing was kept", "git init, and git.worktrees = true"
        )
    return web.owner.far_git
