"""The repository of this project, for workers of other hosts.  Implements ports.far_git."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec.structs import replace

from muster.app.branches import held
from muster.config.project import Project
from muster.hosts.detached_call import detached_call
from muster.model.commands import AttemptCommand
from muster.model.errors import BadInput, NotFound, Unavailable
from muster.model.far_git import (
    PART_BYTES_MAX,
    GitFetch,
    GitMoved,
    GitPart,
    GitPublish,
    GitReceived,
    GitSend,
)
from muster.model.refs import kept_refs, own_refs
from muster.worker.bundles import bundle, read_at, sha256_of, unbundle
from muster.worker.git import DiskFull, GitFailed, Repository
from muster.worker.large_files import keep_files
from muster.worker.plan_branch import PlanBranch
from muster.worker.worktree import Worktree

KEPT_S = 86_400.0
"""How long a bundle that nobody has asked or sent to its end may lie."""


class LocalGit:
    def __init__(self, repository: Repository, project: Project) -> None:
        self._repository = repository
        self._trees = project.worktrees_dir
        self._out, self._in = project.bundles_out_dir, project.bundles_in_dir
        self._lock = threading.Lock()
        """One at a time writes and reads these folders."""

    async def part(self, plan: str, key: str, asked: GitFetch) -> GitPart:
        return await detached_call(self._part, plan, key, asked)

    def _part(self, plan: str, key: str, asked: GitFetch) -> GitPart:
        if asked.bundle is not None:
            path = self._out / asked.bundle
            if not path.exists():
                raise NotFound("this bundle is there no longer", "ask anew")
            return GitPart(
                repository=True,
                bundle=asked.bundle,
                size=path.stat().st_size,
                data=read_at(path, asked.offset, PART_BYTES_MAX),
            )
        told = standing(PlanBranch(self._repository, plan, self._trees), key)
        made = self._bundled(commits_of(told), asked.have)
        if made is None:
            return told
        size, data = made.stat().st_size, read_at(made, 0, PART_BYTES_MAX)
        return replace(told, bundle=made.name, sha256=sha256_of(made), size=size, data=data)

    def _bundled(self, wanted: set[str], have: tuple[str, ...]) -> Path | None:
        """None where they have all of it."""
        told = "\n".join([*sorted(wanted), "", *sorted(have)])
        path = self._out / hashlib.sha256(told.encode()).hexdigest()
        with self._lock:
            make_room(self._out)
            if path.exists():
                os.utime(path)
                return path
            return path if bundle(self._repository, path, wanted, have) else None

    async def take(self, plan: str, key: str, part: GitSend) -> GitReceived:
        return await detached_call(self._take, plan, key, part)

    def _take(self, plan: str, key: str, part: GitSend) -> GitReceived:
        tree = Worktree(self._repository, self._trees / str(part.task_id), plan, key, part.epoch)
        path = self._in / f"{part.task_id}-{part.epoch}-{part.sha256}"
        with self._lock:
            if not part.size or has(self._repository, part):
                path.unlink(missing_ok=True)
                self._settle(tree, part)
                return GitReceived(received=part.size, whole=True)
            make_room(self._in)
            for other in self._in.glob(f"{part.task_id}-{part.epoch}-*"):
                if other != path:  # bundled anew, since it could not be sent to its end
                    other.unlink()
            with path.open("ab") as file:
                there = file.tell()
                if part.offset != there:
                    return GitReceived(received=there, whole=False)
                file.write(part.data[: part.size - there])
                there = file.tell()
            if there < part.size:
                return GitReceived(received=there, whole=False)
            try:
                take_in(self._repository, path, part)
            except BadInput:
                path.unlink()
                raise
            path.unlink()
            self._settle(tree, part)
            return GitReceived(received=part.size, whole=True)

    def _settle(self, tree: Worktree, part: GitSend) -> None:
        """Raises BadInput where commits lack something."""
        refuse_half(self._repository, part)
        if part.large is not None:  # first: where there is no room for them, nothing points to them
            keep_files(self._repository, part.large)
        with self._repository.locked():
            put_refs(tree, part, _merged_ref(part))

    async def publish(
        self, plan: str, asked: GitPublish, intend: Callable[[str, str, str], Awaitable[None]]
    ) -> GitMoved:
        branch = PlanBranch(self._repository, plan, self._trees)
        try:
            async with held(self._repository) as taken:
                if not taken:
                    return GitMoved(moved=False)
                refused = await detached_call(refusal, branch, asked)
                if refused is not None:
                    return refused
                await intend(branch.name, asked.old or "0" * len(asked.new), "")
                await detached_call(branch.move, asked.old, asked.new)
                await detached_call(self._repository.run, "update-ref", "-d", _merged_ref(asked))
                return GitMoved(moved=True)
        except DiskFull:
            raise  # it goes on once there is room
        except GitFailed as error:
            return GitMoved(moved=False, why=error.message, hint=error.hint)


def standing(branch: PlanBranch, key: str) -> GitPart:
    """Where the plan and this task of it stand; no bundle yet.  Raises GitFailed."""
    repository = branch.repository
    form, refs = "--format=%(objectname) %(refname)", {}
    for line in repository.run("for-each-ref", form, kept_refs(branch.plan, key)).splitlines():
        commit, _, name = line.partition(" ")
        refs[name] = commit
    return GitPart(
        repository=True,
        project=repository.project,
        prefix=str(repository.prefix),
        head=repository.run("rev-parse", "HEAD"),
        tip=branch.tip() or "",
        published=branch.published or "",
        refs=refs,
    )


def commits_of(part: GitPart) -> set[str]:
    return {part.head, part.tip, part.published, *part.refs.values()} - {""}


def has(repository: Repository, part: GitSend) -> bool:
    """Whether all that it names is there: an earlier answer was lost."""
    names = [part.base, part.kept, *filter(None, [part.merged, part.large])]
    if any(repository.commit_of(name) is None for name in names):
        return False
    asked = repository.ask("rev-list", "--objects", "--quiet", *names, "--not", "--all")
    return asked.returncode == 0


def take_in(repository: Repository, path: Path, part: GitSend) -> None:
    """Raises BadInput where that is no bundle, or not this one; DiskFull where there is no room for it."""
    if sha256_of(path) != part.sha256:
        raise BadInput("the bundle is not the one that was announced; nothing was kept", "send it again")
    try:
        unbundle(repository, path)
    except DiskFull:
        raise  # nothing is wrong with the bundle
    except GitFailed as error:
        raise BadInput(f"{error.message}; nothing was kept", "send it again") from error


def refuse_half(repository: Repository, part: GitSend) -> None:
    """Raises BadInput where commits lack something."""
    if not has(repository, part):
        raise BadInput("the bundle lacks some of its commits; nothing was kept", "send it again")


def put_refs(tree: Worktree, part: GitSend, merged: str) -> None:
    """What the attempt has left stands behind its refs; `merged` is that of what its branch is to move to."""
    repository = tree.repository
    base, kept = tree.base, tree.kept
    if repository.commit_of(base) not in (None, part.base):
        own = own_refs(tree.plan, tree.key, tree.epoch, part.task_id)
        base, kept = own.base, own.kept
    repository.run("update-ref", base, part.base)
    tree.put(kept, part.kept)
    if part.merged is not None:  # until the branch has it, git might take it for rubbish
        repository.run("update-ref", merged, part.merged)
    if part.branch and repository.checked_out(tree.branch) is None:
        repository.run("update-ref", tree.head, part.kept)


def refusal(branch: PlanBranch, asked: GitPublish) -> GitMoved | None:
    """What is answered instead of moving it; None: it may be moved."""
    repository = branch.repository
    tip = branch.tip()
    if tip == asked.new:
        return GitMoved(moved=True)  # the answer was lost
    if tip != asked.old:
        return GitMoved(moved=False)
    if repository.commit_of(asked.new) is None:
        raise Unavailable(f"commit {asked.new[:12]} is not here", "send it again")
    if asked.old is not None and not repository.is_ancestor(asked.old, asked.new):
        return GitMoved(moved=False, why=f"{asked.new[:12]} leaves out what branch {branch.name} has")
    branch.refuse_checked_out()
    return None


def _merged_ref(asked: AttemptCommand) -> str:
    return f"refs/muster-merged/{asked.task_id}-{asked.epoch}"


def make_room(folder: Path) -> None:
    """Whatever was left there long ago is of nobody."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in folder.iterdir():
        if time.time() - path.stat().st_mtime > KEPT_S:
            path.unlink(missing_ok=True)
