"""The part of a server's repository that a worker of another host has: what it is brought and sends back.

Trees, merges and checks are made here as everywhere; only the server moves the branch of a plan.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import math
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.hosts.full_disk import full_disk
from muster.hosts.plain_files import replace_plain
from muster.model.answers import ClaimedJob
from muster.model.errors import BadInput, CallerError, MusterError, NotAllowed, NotFound, Unavailable
from muster.model.far_git import (
    BUNDLE_BYTES_MAX,
    HAVES_MAX,
    PART_BYTES_MAX,
    GitFetch,
    GitMoved,
    GitPart,
    GitPublish,
    GitReceived,
    GitSend,
)
from muster.model.wording import STILL_AWAY
from muster.ports.crew import Crew
from muster.worker.bundles import bundle, read_at, sha256_of, unbundle
from muster.worker.git import Committer, GitFailed, Repository
from muster.worker.holder import AWAY
from muster.worker.large_files import commit_of_files, large_files
from muster.worker.plan_branch import PlanBranch
from muster.worker.worktree import Worktree
from muster.worker.worktree_cleaner import tree_ids

log = logging.getLogger(__name__)

T = TypeVar("T")
Ask = Callable[[Callable[[], T]], T]
"""Makes a call to the server: once, or for as long as the attempt lasts."""
LOOK_S = 2.0
CLEAR_S = 3600.0
PutAway = Callable[[int, str, str, int], str]
"""Of a task's number, plan, key and epoch; why it stays, empty where it does not."""
_NOT_BROUGHT = "skipdownloaderrors"
"""Setting of git-lfs: files that it cannot get lie there as pointers, for `git.setup` to fetch, and no checkout
fails."""
_NOTHING = hashlib.sha256(b"").hexdigest()


class LeftWork(Struct, frozen=True, kw_only=True):
    """What an attempt has left."""

    task_id: int
    epoch: int
    base: str
    kept: str

    @property
    def name(self) -> str:
        return f"{self.task_id}-{self.epoch}"


def left_in(tree: Worktree) -> LeftWork:
    """Of a tree that was kept.  Raises GitFailed."""
    base, kept = (tree.repository.run("rev-parse", name) for name in (tree.base, tree.kept))
    return LeftWork(task_id=int(tree.path.name), epoch=tree.epoch, base=base, kept=kept)


class Upstream:
    """Of all attempts of a worker."""

    def __init__(
        self, crew: Crew, top: Path, owed: Path, trees: Path, *, author: str = "", lease_s: float
    ) -> None:
        """`top` is where the repository is, `owed` keeps what the server has yet to be sent."""
        self._crew = crew
        self._owed = owed
        self._trees = trees
        self.repository = Repository(top, top / ".git", Path(), Committer(top, author), lease_s=lease_s)
        self.away: dict[int, Mapping[str, str]] = {}
        """By task, where the work of attempts is that the server has not got, by epoch."""
        self._large_sent: set[str] = set()
        """Files of git-lfs that the server has got."""
        self._unkept: set[tuple[int, int]] = set()
        """Attempts that are over, whose work is in no commit yet, because the disk was full."""

    def bring(self, job: ClaimedJob, ask: Ask[GitPart]) -> Repository | None:
        """With the branch of its plan and what earlier attempts have left, as they are at the server now.

        None: tasks have no working trees there.  Raises GitFailed, and what `ask` raises.
        """
        first = ask(lambda: self._crew.git_fetch(GitFetch(task_id=job.task_id, have=self._haves())))
        if not first.repository:
            return None
        self.away[job.task_id] = first.away
        self._begin()
        repository = replace(self.repository, prefix=Path(first.prefix), project=first.project)
        if first.bundle:
            self._take_in(repository, job.task_id, first, ask)
        with repository.locked():
            repository.run("update-ref", "--no-deref", "HEAD", first.head)
            PlanBranch(repository, job.plan, self._trees).follow(first.tip, first.published)
            for name, commit in first.refs.items():
                before = repository.commit_of(name)  # ours may have more than was sent yet
                if before is None or repository.is_ancestor(before, commit):
                    repository.run("update-ref", name, commit)
        return repository

    def _begin(self) -> None:
        """One worker of this host at a time: git that is cut off by another one leaves half a repository.  Done
        again, `git init` adds what is missing."""
        top, common = self.repository.top, self.repository.common
        top.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(top.with_name(f"{top.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._begun:
                top.mkdir(mode=0o700, exist_ok=True)
                for name in ("HEAD.lock", "config.lock"):  # whoever has made them was killed
                    (common / name).unlink(missing_ok=True)
                self.repository.run("init", "--quiet", "--template=", keep=(lock,))
            if _NOT_BROUGHT not in (common / "config").read_text():
                self.repository.ask("config", f"lfs.{_NOT_BROUGHT}", "true", keep=(lock,))
        finally:
            os.close(lock)

    @property
    def _begun(self) -> bool:
        """Whole: the last of these is made last."""
        return all((self.repository.common / name).exists() for name in ("HEAD", "config", "objects/info"))

    def _haves(self) -> tuple[str, ...]:
        if not self._begun:
            return ()
        form = "--format=%(objectname) %(objecttype)"
        lines = self.repository.run("for-each-ref", "--sort=-committerdate", form).splitlines()
        commits = [name for name, _, kind in (line.partition(" ") for line in lines) if kind == "commit"]
        head = self.repository.commit_of("HEAD")
        return tuple(dict.fromkeys([*([head] if head else []), *commits]))[:HAVES_MAX]

    def _take_in(self, repository: Repository, task_id: int, first: GitPart, ask: Ask[GitPart]) -> None:
        with self._draft() as path:
            with path.open("wb") as file:
                file.write(first.data)
                while (there := file.tell()) < first.size:
                    more = GitFetch(task_id=task_id, bundle=first.bundle, offset=there)
                    try:
                        data = ask(lambda more=more: self._crew.git_fetch(more)).data  # type: ignore[misc]
                    except NotFound as error:
                        raise GitFailed(error.message, "the next attempt asks anew") from error
                    if not data:
                        break
                    file.write(data)
            if sha256_of(path) != first.sha256:
                raise GitFailed(
                    "what the server has sent was changed on its way", "the next attempt asks anew"
                )
            unbundle(repository, path)

    @contextlib.contextmanager
    def _draft(self) -> Iterator[Path]:
        path = self.repository.common / f"muster-bundle-{secrets.token_hex(8)}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def keep(self, tree: Worktree) -> bool:
        """What is behind the attempt's ref is the server's as soon as that can be; whether it is by now.

        Raises GitFailed, OSError.
        """
        left = left_in(tree)
        self._owed.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_plain(self._owed / left.name, msgspec.json.encode(left), lasting=True)
        try:
            return self._settle(self._owed / left.name)
        except AWAY as error:
            log.info("the work of attempt %s is not sent yet: %s", left.name, error)
            return False

    def keep_trees(self, at_work: Collection[int]) -> None:
        """What attempts of workers that were killed have left, but for these tasks'.  Never raises."""
        if not self._begun:
            return
        for task_id in {*tree_ids(self._trees)} - {*at_work}:
            try:
                tree = Worktree.found(self.repository, self._trees / str(task_id))
                if tree is not None and tree.keep() is not None:
                    self.keep(tree)
            except (GitFailed, OSError) as error:
                log.warning("%s is left as it is: %s", self._trees / str(task_id), error)

    def keep_later(self, tree: Worktree) -> None:
        """Its attempt is over: what it has left is put away once there is room for it."""
        self._unkept.add((int(tree.path.name), tree.epoch))

    def _keep_unkept(self) -> None:
        for task_id, epoch in list(self._unkept):
            path = self._trees / str(task_id)
            if full_disk(path):
                continue
            try:
                tree = Worktree.found(self.repository, path)
                # A later attempt that has begun there has taken it over.
                if tree is not None and tree.epoch == epoch and tree.keep() is not None:
                    self.keep(tree)
                self._unkept.discard((task_id, epoch))
            except (GitFailed, OSError) as error:
                log.debug("%s is not kept yet: %s", path, error)

    def clear(self, kept_s: float, put_away: PutAway) -> None:
        """Removes trees that have stood so long, once the server has what is in them.  Never raises.

        Here nobody knows how a task goes on; an attempt that begins later finds what was kept.
        """
        for task_id in tree_ids(self._trees) if self._begun else ():
            try:
                tree = Worktree.found(self.repository, self._trees / str(task_id))
                if tree is None or time.time() - (tree.admin() / "HEAD").stat().st_mtime < kept_s:
                    continue
                if not [*self._owed.glob(f"{task_id}-*")] and (
                    why := put_away(task_id, tree.plan, tree.key, tree.epoch)
                ):
                    log.info("%s stays: %s", tree.path, why)
            except (GitFailed, OSError) as error:
                log.warning("%s is left as it is: %s", self._trees / str(task_id), error)

    def mind(self, clear: Callable[[], None]) -> None:
        """Sends what is owed whenever it can, and tidies up now and then, for as long as the process lasts."""
        cleared_s = -math.inf
        while True:
            time.sleep(LOOK_S)
            if time.monotonic() - cleared_s > CLEAR_S:
                clear()
                cleared_s = time.monotonic()
            self._keep_unkept()
            self.send_all_owed()

    def send_all_owed(self) -> None:
        """Never raises.  What cannot be sent for a reason of its own keeps nothing else here."""
        for path in sorted(self._owed.glob("*-*")):
            if path.suffix:
                continue  # not whole yet, or refused
            try:
                self._settle(path)
            except (MusterError, OSError, msgspec.MsgspecError) as error:
                log.debug("%s is not sent yet: %s", path.name, error)
                if isinstance(error, AWAY) and not isinstance(error, GitFailed):
                    return

    def _settle(self, path: Path) -> bool:
        """False where another thread or worker of this host is at it, or we may not.  Raises what is AWAY."""
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            try:
                _take(file)
            except Unavailable:
                return False
            left = msgspec.json.decode(file.read(), type=LeftWork)
            try:
                self.send(left, lambda call: call())
            except NotAllowed as error:  # by another token, perhaps
                log.warning("the work of attempt %s is not sent yet: %s", left.name, error)
                return False
            except CallerError as error:
                log.warning("the work of attempt %s stays on this host: %s", left.name, error)
                path.replace(path.with_suffix(".refused"))
            else:
                path.unlink()
        return True

    def send_owed(self, left: LeftWork, ask: Ask[Any]) -> None:
        """As `send`, of what was kept: nobody else of this host sends it at the same time."""
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(FileNotFoundError):  # somebody else has sent it
                file = stack.enter_context((self._owed / left.name).open("rb"))
                ask(lambda: _take(file))
            self.send(left, ask)

    def send(
        self,
        left: LeftWork,
        ask: Ask[GitReceived],
        *,
        merged: str | None = None,
        tip: str = "",
        branch: bool = False,
    ) -> None:
        """Returns once the server has all of it.  Raises GitFailed, BadInput, and what `ask` raises.

        `tip` is another commit that it has by all we know; `branch` as in GitSend.
        """
        part = GitSend(
            task_id=left.task_id,
            epoch=left.epoch,
            base=left.base,
            kept=left.kept,
            merged=merged,
            branch=branch,
            sha256=_NOTHING,
            size=0,
            offset=0,
            data=b"",
        )
        since = {left.base, *filter(None, [tip])}
        try:
            self._send(part, since, ask, since=since)
        except BadInput:
            self._send(part, (), ask, since=since)  # it has less than we thought

    def _send(
        self, part: GitSend, have: Collection[str], ask: Ask[GitReceived], *, since: Collection[str]
    ) -> None:
        """Without what is in `have`; of files of git-lfs, those that are new `since` then."""
        wanted = {part.base, part.kept, *filter(None, [part.merged])}
        large = large_files(self.repository, wanted, since)
        if new := large.keys() - self._large_sent:
            part = replace(part, large=commit_of_files(self.repository, new))
            wanted |= {part.large or ""}
        try:
            self._send_parts(part, wanted, have, ask)
        except BadInput as error:
            if not new:
                raise
            paths = ", ".join(large[name] for name in sorted(new))
            raise BadInput(f"{error.message}; {paths} are on {os.uname().nodename}", error.hint) from error
        self._large_sent |= new

    def _send_parts(
        self, part: GitSend, wanted: Collection[str], have: Collection[str], ask: Ask[GitReceived]
    ) -> None:
        with self._draft() as path:
            if full := bundle(self.repository, path, wanted, have):
                if (size := path.stat().st_size) > BUNDLE_BYTES_MAX:
                    told = f"a bundle of {size >> 20} MB, and a server takes {BUNDLE_BYTES_MAX >> 20} MB"
                    raise BadInput(f"this work makes {told}; nothing was kept", "leave out what is so large")
                part = replace(part, sha256=sha256_of(path), size=size)
            while True:
                data = read_at(path, part.offset, PART_BYTES_MAX) if full else b""
                asked = replace(part, data=data)
                answer = ask(lambda asked=asked: self._crew.git_send(asked))  # type: ignore[misc]
                if answer.whole:
                    return
                part = replace(part, offset=answer.received)


def _take(file: BinaryIO) -> None:
    """Raises Unavailable."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Unavailable("another worker of this host is sending it", "") from None


class AttemptUpstream(Struct, frozen=True, kw_only=True):
    """As its attempt uses it."""

    upstream: Upstream
    crew: Crew
    job: ClaimedJob
    ask: Ask[Any]
    """For as long as the attempt lasts.  Raises Over after it."""
    host: str

    def keep(self, tree: Worktree) -> str:
        """Where the work is, if the server has not got it yet."""
        return "" if self.upstream.keep(tree) else self.place(tree)

    def send(self, tree: Worktree) -> None:
        """Returns once the server has all of what was kept.  Raises GitFailed, and what `ask` raises."""
        try:
            self.upstream.send_owed(left_in(tree), self.ask)
        except BadInput as error:
            raise GitFailed(error.message, error.hint) from error

    def place(self, tree: Worktree) -> str:
        return f"on {self.host} in {tree.path} {STILL_AWAY}"

    def advance(self, tree: Worktree, old: str | None, new: str) -> bool:
        """The server moves the plan's branch; False where it stands elsewhere by now, which is here then as well.

        Raises GitFailed, Conflict, and what `ask` raises.
        """
        repository = tree.repository
        left = left_in(tree)
        self.upstream.send(left, self.ask, merged=new, tip=old or "")
        asked = GitPublish(task_id=left.task_id, epoch=left.epoch, proof=self.job.proof, old=old, new=new)
        answer: GitMoved = self.ask(lambda: self.crew.git_publish(asked))
        if answer.why:
            raise GitFailed(answer.why, answer.hint)
        if answer.moved:
            with repository.locked():
                tree.plan_branch.follow(new, new)
        else:
            self.upstream.bring(self.job, self.ask)
        return answer.moved

    def hand_in(self, tree: Worktree) -> None:
        """The task's own branch gets there what stands behind the attempt's ref.  Raises as `advance`."""
        self.upstream.send(left_in(tree), self.ask, branch=True)
