"""What tasks have made, in the repository that several servers share.  Implements ports.works.

It is read in a server's own copy.  That has no branch checked out: a plan's branch is merged at the remote, into
the one that it begins with.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from muster.app.merge_folder import named
from muster.app.plan_merge import Incoming, answer_of, look, message_of
from muster.app.pull_requests import authors_of
from muster.app.seen_work import refuse_unseen
from muster.app.shared_git import SharedGit
from muster.app.works import of_attempt, of_plan
from muster.config.project import Project
from muster.hosts.detached_call import detached_call
from muster.hosts.user_git import UserGit
from muster.model.errors import Conflict, Unavailable
from muster.model.refs import refs_of_plan, refs_of_task
from muster.model.works import PlanMerged, PullOpened, PullProposed
from muster.ports.works import PullKnown, WorkChange, WorkSeen
from muster.worker.git import GitFailed
from muster.worker.git_mirror import TRIES_MAX, GitMirror

_HEADS = "refs/heads/"


class SharedWorks:
    def __init__(self, git: SharedGit, project: Project) -> None:
        self._git, self._project = git, project

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
        def look_at(mirror: GitMirror) -> PlanMerged:
            with mirror.lock:
                return answer_of(plan, _incoming(mirror, plan), None)

        return await detached_call(look_at, await self._git.mirror())

    async def merge(
        self,
        plan: str,
        source: str | None,  # noqa: ARG002
        done: Collection[str],  # noqa: ARG002
        seen: WorkSeen,
    ) -> PlanMerged:
        return await detached_call(_merge, await self._git.mirror(), plan, seen)

    async def proposed(self, ref: str) -> PullProposed:
        from muster.app.shared_proposals import proposed  # only for those who open one

        return await detached_call(proposed, await self._git.mirror(), self._project, ref)

    async def pull_request(self, ref: str, seen: WorkSeen) -> PullOpened:
        from muster.app.shared_proposals import propose

        return await detached_call(propose, await self._git.mirror(), self._project, ref, seen)

    async def pull_known(self, ref: str, *, task: bool) -> PullKnown | None:  # noqa: ARG002
        """None: what one server has opened is kept by the forge alone."""
        return None


def _merge(mirror: GitMirror, plan: str, seen: WorkSeen) -> PlanMerged:
    """Raises NotFound, Conflict, Unavailable."""
    git = UserGit(mirror.repository.top)
    with mirror.lock:
        for _ in range(TRIES_MAX):
            found = _incoming(mirror, plan)
            now = WorkSeen(found.tip, found.into, found.onto)
            refuse_unseen(git, seen, now, found.branch, f"muster plan show {plan}")
            if not found.commits:
                return answer_of(plan, found, None)
            if found.conflicts:
                raise Conflict(
                    f"there would be conflicts in {named(found.conflicts)}; nothing was changed",
                    f"in a clone of the repository: git fetch origin && git merge origin/{found.branch}",
                )
            tree = mirror.repository.run("merge-tree", "--write-tree", "--no-messages", found.onto, found.tip)
            parents = ("-p", found.onto, "-p", found.tip)
            made = mirror.repository.run("commit-tree", tree, *parents, "-m", message_of(plan, found))
            try:
                if mirror.push({f"{_HEADS}{found.into}": (found.onto, made)}):
                    return answer_of(plan, found, made)
            except GitFailed as error:
                raise Conflict(f"{error.message}; nothing was changed", error.hint) from error
    raise Unavailable(f"branch {found.into} of {mirror.shown} moves all the time", "try again")


def _incoming(mirror: GitMirror, plan: str) -> Incoming:
    """What a merge into the branch that the remote begins with would bring.

    The plan's file is nobody's here, so git merges it as any other.  Raises NotFound, Unavailable.
    """
    into = mirror.first_branch()
    refs = mirror.fetch(f"{_HEADS}{into}", *refs_of_plan(plan))
    found = look(UserGit(mirror.repository.top), plan, None, frozenset())
    return replace(found, into=into, onto=refs[f"{_HEADS}{into}"])
