"""What tasks have made, in the repository that several servers share.  Implements ports.works.

It is read in a server's own copy.  That has no branch checked out, so nothing is merged or proposed from there.
"""

from __future__ import annotations

from collections.abc import Collection

from muster.app.pull_requests import authors_of
from muster.app.shared_git import SharedGit
from muster.app.works import of_attempt, of_plan
from muster.hosts.detached_call import detached_call
from muster.hosts.user_git import UserGit
from muster.model.errors import Conflict
from muster.model.refs import plan_branch, refs_of_plan, refs_of_task
from muster.model.works import PlanMerged, PullOpened
from muster.ports.works import WorkChange
from muster.worker.git_mirror import GitMirror


class SharedWorks:
    def __init__(self, git: SharedGit) -> None:
        self._git = git

    async def of_attempt(self, plan: str, key: str, task_id: int, epoch: int) -> WorkChange:
        def look(mirror: GitMirror) -> WorkChange:
            with mirror.lock:
                mirror.fetch(*refs_of_task(plan, key))
                return of_attempt(mirror.repository, plan, key, task_id, epoch)

        return await detached_call(look, await self._git.mirror())

    async def of_plan(self, plan: str) -> WorkChange:
        def look(mirror: GitMirror) -> WorkChange:
            with mirror.lock:
                mirror.fetch(*refs_of_plan(plan))
                return of_plan(mirror.repository, plan)

        return await detached_call(look, await self._git.mirror())

    async def authors(self, head: str, path: str, line: int | None) -> list[str]:
        mirror = await self._git.mirror()
        found = await detached_call(authors_of, UserGit(mirror.repository.top), head, path, line, "HEAD")
        return [ref for ref in found if ref]

    async def coming(self, plan: str, source: str | None, done: Collection[str]) -> PlanMerged:  # noqa: ARG002
        raise _nothing_checked_out(plan)

    async def merge(self, plan: str, source: str | None, done: Collection[str]) -> PlanMerged:  # noqa: ARG002
        raise _nothing_checked_out(plan)

    async def pull_request(self, ref: str) -> PullOpened:
        raise _nothing_checked_out(ref.partition("/")[0])


def _nothing_checked_out(plan: str) -> Conflict:
    return Conflict(
        "no branch is checked out at a server of several, so nothing is merged or proposed there; "
        "nothing was changed",
        f"in a clone of the repository: git fetch origin && git merge origin/{plan_branch(plan)}",
    )
