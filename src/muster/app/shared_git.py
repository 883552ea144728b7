"""The repository that servers of one store share: a remote that all of them reach.

No server has anything of its own: commits and refs are at the remote, what is half on its way is in the store.
Any of them moves a plan's branch, from where the worker has seen it, in one step with the plan's turn.  The
turn is part of what the attempt has noted that it is about to do.  Who has to know whether that will happen moves
the turn on first: then it has happened, or the remote refuses it whenever it comes.

Implements ports.far_git and ports.branches.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from muster.app.far_git import (
    commits_of,
    has,
    make_room,
    put_refs,
    refusal,
    refuse_half,
    standing,
    take_in,
)
from muster.config.project import Project
from muster.hosts.detached_call import detached_call
from muster.model.errors import BadConfig, BadInput, NotFound, Unavailable
from muster.model.far_git import (
    PART_BYTES_MAX,
    GitFetch,
    GitMoved,
    GitPart,
    GitPublish,
    GitReceived,
    GitSend,
)
from muster.model.refs import (
    merged_ref,
    plan_branch,
    published_ref,
    refs_of_plan,
    refs_of_task,
    turn_of,
)
from muster.ports.locks import locks
from muster.ports.store import Transaction
from muster.stores.postgres.files import BUNDLE, FileKey, Part, PostgresFiles
from muster.stores.postgres.store import PostgresStore
from muster.worker.bundles import bundle, read_at, sha256_of
from muster.worker.git import DiskFull, GitFailed
from muster.worker.git_mirror import TRIES_MAX, GitMirror, Move
from muster.worker.large_files import keep_files
from muster.worker.plan_branch import PlanBranch
from muster.worker.worktree import Worktree

GIT = "git"
"""What the store calls the mark of its repository."""
_NONE = "0" * 40
"""Stands for a turn that nobody has taken yet."""


async def refuse_without(store: PostgresStore) -> None:
    """Raises BadConfig where the other servers of this store have a repository."""
    if await store.reads.store_meta(GIT) is not None:
        error = BadConfig(
            "git.remote: tasks of this store have working trees, and this server has no repository for them; "
            "it was not started",
            "set git.remote, below [git], as the other servers have it",
        )
        error.key = "git.remote"
        raise error


class SharedGit:
    def __init__(self, project: Project, url: str, store: PostgresStore, files: PostgresFiles) -> None:
        self._trees, self._folder = project.worktrees_dir, project.bundles_in_dir
        self._place, self._url = project.mirror_dir, url
        self._store, self._files = store, files
        self._mirror: GitMirror | None = None
        self._opening = asyncio.Lock()
        self._making: dict[FileKey, asyncio.Task[None]] = {}
        """Bundles; whoever has asked for one may have given up waiting, and asks again."""

    async def begin(self) -> None:
        """Raises BadConfig where this is not the repository of the other servers, Unavailable where it is away:
        whoever needs it later asks again."""
        await self.mirror()

    async def mirror(self) -> GitMirror:
        """This server's copy.  Raises as `begin`."""
        async with self._opening:
            return self._mirror or await self._opened()

    async def _opened(self) -> GitMirror:
        mark = await self._store.reads.store_meta(GIT)
        mirror = GitMirror(self._place, self._url, project=mark or secrets.token_hex(16))
        await detached_call(mirror.begin)
        if mark is None:
            await detached_call(mirror.mark, mirror.repository.project)
            mark = await self._agree(mirror.repository.project)
        if not await detached_call(mirror.is_marked, mark):
            error = BadConfig(
                f"git.remote: {mirror.shown} is not the repository of this store's other servers",
                "name the same one everywhere; one that was moved is copied with all refs: git push --mirror",
            )
            error.key = "git.remote"
            raise error
        self._mirror = GitMirror(self._place, self._url, project=mark)
        return self._mirror

    async def _agree(self, mark: str) -> str:
        """On the first one that a server has come with."""

        async def work(transaction: Transaction) -> str:
            await transaction.lock(locks(GIT))
            known = await transaction.store_meta(GIT)
            if known is None:
                await transaction.set_store_meta(GIT, mark)
            return known or mark

        return await self._store.transact(work)

    async def part(self, plan: str, key: str, asked: GitFetch) -> GitPart:
        if asked.bundle is not None:
            return await self._at(GitPart(repository=True), _out(asked.task_id, asked.bundle), asked.offset)
        mirror = await self.mirror()
        told = await detached_call(self._standing, mirror, plan, key)
        wanted = commits_of(told)
        digest = hashlib.sha256("\n".join([*sorted(wanted), "", *sorted(asked.have)]).encode()).hexdigest()
        name = _out(asked.task_id, digest)
        if await self._files.found(name) is None:
            making = self._making.get(name)
            if making is None:
                making = asyncio.create_task(self._make(mirror, name, wanted, asked.have))
                self._making[name] = making
                making.add_done_callback(lambda _: self._making.pop(name, None))
            await asyncio.shield(making)
            if await self._files.found(name) is None:
                return told  # they have all of it
        return await self._at(told, name, 0)

    async def _at(self, told: GitPart, name: FileKey, offset: int) -> GitPart:
        """With what follows there.  Raises NotFound."""
        found = await self._files.found(name)
        data = await self._files.read_at(name, found[1], offset) if found else None
        if found is None or data is None:
            raise NotFound("this bundle is there no longer", "ask anew")
        size, sha256 = found
        return replace(told, bundle=name.name, sha256=sha256, size=size, data=data)

    def _standing(self, mirror: GitMirror, plan: str, key: str) -> GitPart:
        with mirror.lock:
            mirror.fetch(*refs_of_plan(plan), *refs_of_task(plan, key))
            return standing(PlanBranch(mirror.repository, plan, self._trees), key)

    async def _make(self, mirror: GitMirror, name: FileKey, wanted: set[str], have: tuple[str, ...]) -> None:
        """In the store, where whichever server is asked for the rest of it has it."""
        with self._draft() as path:
            if await detached_call(bundle, mirror.repository, path, wanted, have):
                read = lambda at: read_at(path, at, PART_BYTES_MAX)  # noqa: E731
                size, sha256 = path.stat().st_size, await detached_call(sha256_of, path)
                await self._files.put(name, sha256, size, read)

    async def take(self, plan: str, key: str, part: GitSend) -> GitReceived:
        mirror = await self.mirror()
        done = GitReceived(received=part.size, whole=True)
        if not part.offset and await detached_call(self._settle, mirror, plan, key, part, None):
            return done
        name = FileKey(part.task_id, part.epoch, BUNDLE, f"in {part.sha256}")
        received, whole = await self._files.take(name, Part(part.sha256, part.size, part.offset, part.data))
        if not whole:
            return GitReceived(received=received, whole=False)
        with self._draft() as path:
            with path.open("wb") as file:
                async for data in self._files.pages(name):
                    file.write(data)
            try:
                await detached_call(self._settle, mirror, plan, key, part, path)
            except BadInput:
                await self._files.drop(name)
                raise
        await self._files.drop(name)
        return done

    def _settle(self, mirror: GitMirror, plan: str, key: str, part: GitSend, path: Path | None) -> bool:
        """False where there is no bundle, and some of it is not here.  Raises BadInput, Unavailable."""
        repository = mirror.repository
        tree = Worktree(repository, self._trees / str(part.task_id), plan, key, part.epoch)
        with mirror.lock:
            wanted = (*refs_of_plan(plan), *refs_of_task(plan, key))
            mirror.fetch(*wanted)
            if path is None and part.size and not has(repository, part):
                return False
            if path is not None:
                take_in(repository, path, part)
            refuse_half(repository, part)
            large = keep_files(repository, part.large) if part.large is not None else []
        mirror.push_large(large)  # first: nothing is to point to what is not there
        merged = merged_ref(plan, part.task_id, part.epoch)
        mirror.change(wanted, lambda: put_refs(tree, part, merged))
        return True

    async def publish(
        self, plan: str, asked: GitPublish, intend: Callable[[str, str, str], Awaitable[None]]
    ) -> GitMoved:
        mirror = await self.mirror()
        try:
            looked = await detached_call(self._look, mirror, plan, asked)
            if isinstance(looked, GitMoved):
                return looked
            turn = looked.get(turn_of(plan_branch(plan)), _NONE)
            await intend(plan_branch(plan), asked.old or "0" * len(asked.new), turn)
            return GitMoved(moved=await detached_call(self._move, mirror, plan, asked, looked))
        except DiskFull:
            raise  # it goes on once there is room
        except GitFailed as error:
            return GitMoved(moved=False, why=error.message, hint=error.hint)

    def _look(self, mirror: GitMirror, plan: str, asked: GitPublish) -> GitMoved | dict[str, str]:
        """Where all of the plan stands that is to move; or what is answered instead."""
        with mirror.lock:
            refs = mirror.fetch(*refs_of_plan(plan))
            return refusal(PlanBranch(mirror.repository, plan, self._trees), asked) or refs

    def _move(self, mirror: GitMirror, plan: str, asked: GitPublish, seen: dict[str, str]) -> bool:
        branch = PlanBranch(mirror.repository, plan, self._trees)
        to: dict[str, str | None] = {
            f"refs/heads/{branch.name}": asked.new,
            published_ref(plan): branch.record(asked.new),
            turn_of(plan_branch(plan)): mirror.new_turn(),
        }
        merged = merged_ref(plan, asked.task_id, asked.epoch)
        if merged in seen:
            to[merged] = None
        moves: dict[str, Move] = {ref: (seen.get(ref), new) for ref, new in to.items()}
        if mirror.push(moves):
            return True
        with mirror.lock:  # the same request at another server was faster, perhaps
            mirror.fetch(*refs_of_plan(plan))
            return mirror.repository.is_ancestor(asked.new, f"refs/heads/{branch.name}")

    async def settle(
        self, branch: str, commit: str, turn: str, told: Callable[[bool], Awaitable[None]]
    ) -> bool:
        """As ports.branches.Branches: nothing is moved any more by who has noted that turn, or it has been."""
        mirror = await self.mirror()
        await told(await detached_call(self._decide, mirror, branch, commit, turn))
        return True

    def _decide(self, mirror: GitMirror, branch: str, commit: str, turn: str) -> bool:
        ref, head = turn_of(branch), f"refs/heads/{branch}"
        with mirror.lock:
            for _ in range(TRIES_MAX):
                now = mirror.fetch(head, ref).get(ref)
                if mirror.repository.is_ancestor(commit, head):
                    return True
                if (now or _NONE) != turn:
                    # What has moved it on may have been the step that moves the branch as well, over by now.
                    mirror.fetch(head, ref)
                    return mirror.repository.is_ancestor(commit, head)
                mirror.push({ref: (now, mirror.new_turn())})
        raise Unavailable(f"branch {branch} moves all the time", "try again")

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        """For one bundle; what a killed server has left is removed."""
        make_room(self._folder)
        path = self._folder / f"{os.getpid()}-{secrets.token_hex(8)}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)


def _out(task_id: int, digest: str) -> FileKey:
    return FileKey(task_id, 0, BUNDLE, digest)
