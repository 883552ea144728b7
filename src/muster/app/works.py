"""What tasks have made, in the repository of this folder or of several servers.  Implements ports.works."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from muster.app.merge_folder import named
from muster.app.merge_lock import one_merge
from muster.app.merging import STEP_S, Elsewhere, merge
from muster.app.plan_branch import no_branch
from muster.app.plan_merge import answer_of, look, message_of, repository_git
from muster.app.pull_requests import authors_of, records
from muster.app.seen_work import refuse_unseen
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.hosts.detached_call import detached_call
from muster.hosts.user_git import UserGit
from muster.model.errors import Conflict, NotFound
from muster.model.refs import attempt_refs, kept_refs, plan_branch
from muster.model.works import PlanMerged, PullOpened, PullProposed
from muster.ports.works import PullKnown, WorkChange, WorkSeen
from muster.worker.git import Repository

if TYPE_CHECKING:
    from muster.app.pull_request_opening import Opening

PATCH_BYTES_MAX = 2 << 20
LISTING_BYTES_MAX = 1 << 20
_DIFF = (
    *("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--find-renames"),
    *("--no-relative", "--unified=3", "--ignore-submodules=none", "--src-prefix=a/", "--dst-prefix=b/"),
)


class LocalWorks:
    def __init__(self, repository: Repository, project: Project, step_s: float = STEP_S) -> None:
        """`step_s`: how long one step of a merge may take."""
        self._repository = repository
        self._project = project
        self._elsewhere = Elsewhere(step_s)

    def close(self) -> None:
        self._elsewhere.end()

    async def of_attempt(self, plan: str, key: str, task_id: int, epoch: int) -> WorkChange:
        return await detached_call(of_attempt, self._repository, plan, key, task_id, epoch)

    async def of_plan(self, plan: str) -> WorkChange:
        return await detached_call(of_plan, self._repository, plan)

    async def authors(self, head: str, path: str, line: int | None) -> list[str]:
        git = UserGit(self._repository.top)
        found = await detached_call(authors_of, git, head, path, line, "HEAD")
        return [ref for ref in found if ref]

    async def coming(self, plan: str, source: str | None, done: Collection[str]) -> PlanMerged:
        return await detached_call(self._coming, plan, source, frozenset(done))

    async def merge(self, plan: str, source: str | None, done: Collection[str], seen: WorkSeen) -> PlanMerged:
        return await detached_call(self._merge, plan, source, frozenset(done), seen)

    def _coming(self, plan: str, source: str | None, done: frozenset[str]) -> PlanMerged:
        found = look(repository_git(self._project.root), plan, self._file(source), done)
        return answer_of(plan, found, None)

    def _merge(self, plan: str, source: str | None, done: frozenset[str], seen: WorkSeen) -> PlanMerged:
        git = repository_git(self._project.root)
        with one_merge(git, plan):
            found = look(git, plan, self._file(source), done)
            now, hint = WorkSeen(found.tip, found.into, found.onto), f"muster plan merge {plan} --dry-run"
            refuse_unseen(git, seen, now, found.branch, hint)
            if not found.commits:
                return answer_of(plan, found, None)
            if found.conflicts:  # whoever asks is not at the folder, where the rest would have to be done
                raise Conflict(
                    f"there would be conflicts in {named(found.conflicts)}; nothing was changed",
                    f"in the folder itself: muster plan merge {plan}",
                )
            return answer_of(plan, found, merge(git, found, message_of(plan, found), self._elsewhere))

    def _file(self, source: str | None) -> Path | None:
        return self._project.root / source if source else None

    async def proposed(self, ref: str) -> PullProposed:
        def look() -> PullProposed:
            with self._opening() as opening:
                return opening.proposed(ref)

        return await detached_call(look)

    async def pull_request(self, ref: str, seen: WorkSeen) -> PullOpened:
        return await detached_call(self._pull_request, ref, seen)

    @contextmanager
    def _opening(self) -> Iterator[Opening]:
        from muster.app.pull_request_opening import Opening  # only for those who open one

        with closing(Api(Connection(self._project.socket))) as api:
            yield Opening(api, self._project)

    def _pull_request(self, ref: str, seen: WorkSeen) -> PullOpened:
        with self._opening() as opening:
            opened = opening.open(ref, seen=seen)
        record = opened.record
        return PullOpened(
            ref=record.ref,
            url=record.url,
            branch=record.branch,
            base=record.base,
            new=opened.new,
            pushed=opened.pushed,
            remarks=opened.remarks,
        )

    async def pull_known(self, ref: str, *, task: bool) -> PullKnown | None:
        found = (await detached_call(records, self._project)).get(ref)
        if found is None or found.task != task:
            return None
        return PullKnown(found.url, found.state, found.looked_at_ms)


def of_attempt(repository: Repository, plan: str, key: str, task_id: int, epoch: int) -> WorkChange:
    """Raises NotFound."""
    there = set(repository.run("for-each-ref", "--format=%(refname)", kept_refs(plan, key)).split())
    refs = attempt_refs(plan, key, epoch, task_id, there)
    base, head = repository.commit_of(refs.base), repository.commit_of(refs.kept)
    if base is None or head is None:
        raise NotFound(
            f"no work of {plan}/{key}#{epoch} is kept in this repository",
            "agents with writes = true, in a git repository, have their work kept",
        )
    return _change(repository, base, head)


def of_plan(repository: Repository, plan: str) -> WorkChange:
    """Raises NotFound."""
    tip = repository.commit_of(f"refs/heads/{plan_branch(plan)}")
    if tip is None:
        raise no_branch(repository, plan)
    base = repository.ask("merge-base", "HEAD", tip).stdout.partition("\n")[0]
    return _change(repository, base or repository.run("hash-object", "-t", "tree", "--stdin"), tip)


def _change(repository: Repository, base: str, head: str) -> WorkChange:
    between = (base, head, "--")
    listing, _ = repository.first_bytes(*_DIFF, "--raw", "--numstat", "-z", *between, most=LISTING_BYTES_MAX)
    patch, whole = repository.first_bytes(*_DIFF, "--patch", *between, most=PATCH_BYTES_MAX)
    return WorkChange(base, head, listing, patch, whole)
