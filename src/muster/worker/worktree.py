"""A working tree of its own for each task: made, kept over its attempts, published, and cleared away.

The user's own tree, index and branches are never written; what an attempt leaves is a commit behind a ref before
anything of it is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from muster.hosts.plain_files import read_plain, replace_plain
from muster.model.errors import MusterError
from muster.model.file_names import in_words
from muster.model.refs import AttemptRefs, attempt_refs, kept_ref, kept_refs, own_refs, task_branch
from muster.worker.bases import base_now
from muster.worker.commits import NOBODY, SHORT_HASH_CHARS, Signature, Work, difference, stage
from muster.worker.conflicts import conflicts, lying, resolve
from muster.worker.git import GitFailed, Repository
from muster.worker.ignored import lost, missed, note_ignored
from muster.worker.merging import merge_plan
from muster.worker.plan_boxes import level_boxes
from muster.worker.plan_branch import PlanBranch
from muster.worker.sparse import go_to, put_back, read_in
from muster.worker.submodules import holds_repositories
from muster.worker.tree_links import (
    LINK_BYTES_MAX,
    admin_within,
    rejoin,
    remove,
    restore_branch,
)
from muster.worker.tree_marker import MARKER, Begun

log = logging.getLogger(__name__)

_SET_UP = "muster-set-up"
_CHECKING = "muster-checking"
_STALE = ("index.lock", "HEAD.lock")


class WorkMissing(MusterError):
    """Nothing is here of work that is said to be done: only an agent can do it again."""

    code = "work_missing"


class Worktree(Struct, frozen=True):
    repository: Repository
    path: Path
    """The same for all attempts of a task: a CLI finds its session by its folder."""
    plan: str
    key: str
    epoch: int
    signature: Signature = NOBODY
    """For the commits of its work."""
    branched: bool = True
    """Its work goes to a branch of its own; else nothing that is changed here goes anywhere."""
    plan_files: tuple[str, ...] = ()
    """Of the repository, where they are plans whose boxes agents do not tick."""

    @classmethod
    def found(cls, repository: Repository, path: Path, admin: Path | None = None) -> Worktree | None:
        """Of the attempt that has begun in it last, as the tree itself tells; None where none has.

        `admin` is git's own folder for a tree that was deleted.  Raises GitFailed.
        """
        begun = cls(repository, path, "", "", 0).begun(admin)
        signature = Signature(task=f"{begun.plan}/{begun.key}") if begun else NOBODY
        return begun and cls(repository, path, begun.plan, begun.key, begun.epoch, signature)

    @property
    def cwd(self) -> Path:
        return self.path / self.repository.prefix

    @property
    def kept(self) -> str:
        return self._refs(self.epoch).kept

    @property
    def base(self) -> str:
        """The ref of where it began."""
        return self._refs(self.epoch).base

    @property
    def branch(self) -> str:
        return task_branch(self.plan, self.key)

    @property
    def head(self) -> str:
        """The whole name of its branch."""
        return f"refs/heads/{self.branch}"

    def message(self) -> str:
        return self.signature.message(self.epoch)

    def prepare(self, *, merge: bool = True, shown: int | None = None) -> str:
        """Makes the tree, or takes over what an earlier attempt left, and says what to tell the agent.

        What stands behind the ref of attempt `shown` stays there: a person has accepted that.

        With `merge`, for an agent that goes on there, what others have published since is merged into it.  May be
        killed at any moment and is then simply done again.  Raises GitFailed, also where a later attempt has
        begun in it: then we have lost the task, and what is there is that one's.
        """
        repository = self.repository
        with repository.locked() as lock:
            self._find_again()
            begun = self.begun()
            if begun is not None and begun.epoch > self.epoch:
                raise GitFailed(
                    f"attempt {begun.epoch} has begun in {self.path}, so attempt {self.epoch} may not",
                    "where no store knows that one any more, take what you need from there, then: "
                    f"git worktree remove --force {self.path}",
                )
            refs = self._refs(self.epoch, begins=begun is None or begun.epoch != self.epoch)
            if begun is None:
                self.plan_branch.in_the_way()
                start, origin = self._choose_start()
                self._create(start, lock)
                first = None if origin is None else self._refs(origin).base
                base = (first and repository.commit_of(first)) or start
            else:
                restore_branch(repository, self.admin(), self.head, begun.base)
                if begun.epoch != self.epoch:
                    self._keep(begun, shown=begun.epoch == shown)
                self._unlock()
                if self.checking.exists():  # its worker was killed: what it had collected is at HEAD
                    self.sweep()
                base, origin = begun.base, begun.epoch if begun.epoch != self.epoch else None
            # It stays until something is published: what the task has done is what people and agents are shown.
            repository.run("update-ref", refs.base, base)
            self._mark(base)
            if not self.branched:
                self._move_on()
                return ""
            told = [self._hand_over(origin)]
            if merge and origin is not None:
                told.append(self._catch_up())
                self.level_base(begins=True)
            return "  ".join(filter(None, told))

    def diff(self) -> str:
        """What has been changed since the task began, files that no commit holds yet included."""
        with self.repository.locked():
            head = self.repository.run("rev-parse", "HEAD", cwd=self.path)
            staged = stage(self.repository, self.path, self.admin(), head)
        return difference(self.repository, self.base, staged.tree)

    @property
    def needs_setup(self) -> bool:
        return not (self.admin() / _SET_UP).exists()

    def was_set_up(self) -> None:
        """With what is ignored there by now: no work of an agent's."""
        note_ignored(self.repository, self.path, self.admin() / _SET_UP)

    def ignored(self, droppings: tuple[str, ...]) -> list[str]:
        """What its agent has made that git ignores."""
        return missed(self.repository, self.path, self.admin() / _SET_UP, droppings)

    def lost(self, droppings: tuple[str, ...]) -> list[str]:
        """What its agent has written where no git keeps it."""
        return lost(self.repository, self.path, self.admin() / _SET_UP, droppings)

    def decide(self, paths: Sequence[str]) -> None:
        """Tells git that these files of a merge are right as they lie here, which not every agent may do itself.

        Paths are of the tree, or of the project's folder.
        """
        if not paths:
            return
        repository = self.repository
        named = {str(repository.prefix / path) for path in paths} | {*paths}
        with repository.locked():
            index = self.admin() / "index"
            found = conflicts(repository, index)
            found = [each for each in found if {each.path, in_words(each.path)} & named]
            if self.own() is None or not found:
                return
            head = repository.run("rev-parse", "HEAD", cwd=self.path)
            tree = stage(repository, self.path, self.admin(), head).tree
            resolve(repository, index, lying(repository, tree, found))

    def keep(self, admin: Path | None = None) -> Work | None:
        """Commits all that is there, ignored files aside, behind the attempt's ref; tree and index stay, but for
        ticks of its agent's.

        Of a tree that was deleted `admin`, git's own folder for it, has what was staged or committed.
        None where the tree belongs to a newer attempt by now, which has kept our work before it began.
        """
        with self.repository.locked():
            begun = self.own(admin)
            if admin is not None and self.repository.commit_of(self.kept):
                return None  # from when the tree was there
            return begun and self._keep(begun, admin)

    def left_by(self, epoch: int) -> str | None:
        """The commit with all that this attempt has left, as people were shown it, where one is known."""
        kept = self._refs(epoch).kept
        return self.repository.commit_of(f"{kept}-shown") or self.repository.commit_of(kept)

    def show_to_people(self, commit: str) -> None:
        """What they judge, and accept, whatever is found in the tree later."""
        self.repository.run("update-ref", f"{self.kept}-shown", commit)

    def check_work_of(self, epoch: int, elsewhere: str = "") -> None:
        """Call once prepared.  Raises WorkMissing where nothing is known of its work, but perhaps where it is."""
        if self.left_by(epoch) is None:
            gone = "is no part of this repository any more" if self._set_aside else "is gone"
            where = f"it is {elsewhere}" if elsewhere else f"{self._set_aside or self.path} {gone}"
            raise WorkMissing(
                f"the work of attempt {epoch} is done, and it is not here: {where}",
                "take from there what you need; a further attempt does it again",
            )

    @property
    def _set_aside(self) -> str:
        """Folders that stood here and belonged to no tree of this repository."""
        return ", ".join(map(str, sorted(self.path.parent.glob(f"{self.path.name}-before-*"))))

    def clear(self) -> None:
        """Removes the tree, and the branch once the plan's has it.  What git does not know stays where it is."""
        repository = self.repository
        with repository.locked() as lock:
            if self.own() is None:
                return
            dirty = self.branched and repository.run("status", "--porcelain", cwd=self.path)
            if dirty or holds_repositories(self.repository, self.path):
                log.info("%s is left: it holds files that are in no commit of this repository", self.path)
                return
            self._remove(lock)
            tip, plan = repository.commit_of(self.branch), repository.commit_of(self.plan_branch.name)
            merged = tip is not None and plan is not None and repository.is_ancestor(tip, plan)
            if merged and repository.checked_out(self.branch) is None:
                repository.run("update-ref", "-d", f"refs/heads/{self.branch}", tip or "")

    def put_away(self, in_the_way: Callable[[], str]) -> str:
        """Removes the tree of a task that has ended, whatever its end, and its branch; why it stays, else "".

        All that git may know is behind the ref of the attempt that was in it last.  `epoch` is the task's newest:
        a tree that a later attempt has begun in stays.  `in_the_way` is asked while no attempt can begin in it.
        Raises GitFailed.
        """
        repository = self.repository
        with repository.locked() as lock:
            rejoin(self.path, self.repository.common)
            self.admin()
            begun = self.begun()
            if begun is not None and begun.epoch > self.epoch:
                return f"attempt {begun.epoch} has begun in it"
            if why := in_the_way():
                return why
            tip = repository.commit_of(f"refs/heads/{self.branch}")
            self._unlock()
            if begun is not None:
                commit = self._keep(begun).commit
                # Detached, so that no branch moves that the agent has checked out.
                repository.run("update-ref", "--no-deref", "HEAD", commit, cwd=self.path)
                read_in(repository, self.path, commit)
                if holds_repositories(self.repository, self.path):
                    return "it holds a repository of its own, of which git keeps no more than its name"
                if repository.run("status", "--porcelain", cwd=self.path):
                    return "it holds files that git does not take in"
                kept = tip is None or repository.is_ancestor(tip, commit)
            else:
                kept = False  # no agent has been in it, and nothing in it is anybody's
            self._remove(lock)
            if kept and tip is not None and repository.checked_out(self.branch) is None:
                repository.run("update-ref", "-d", f"refs/heads/{self.branch}", tip)
            return ""

    def admin(self) -> Path:
        """Git's own folder for this tree.  Raises GitFailed where it is none."""
        return admin_within(self.repository.common, self.path)

    def begun(self, admin: Path | None = None) -> Begun | None:
        """None where the tree was never finished: then no agent has been in it.

        Raises GitFailed where nobody can tell: such a tree may hold work, so it is neither taken nor removed.
        """
        try:
            marker = (admin or self.admin()) / MARKER
        except GitFailed:
            return None
        try:
            said = read_plain(marker, LINK_BYTES_MAX).decode()
            return Begun.read(said, self.plan, self.key)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise GitFailed(
                f"{marker} does not say which attempt has worked in {self.path}: {error}",
                f"take what you need from there, then: git worktree remove --force {self.path}",
            ) from error

    def own(self, admin: Path | None = None) -> Begun | None:
        """As `begun`; None also where it is another attempt's by now.  Call it with the repository's lock."""
        begun = self.begun(admin)
        if begun is None or begun.epoch != self.epoch:
            return None
        restore_branch(self.repository, admin or self.admin(), self.head, begun.base)
        return begun

    @property
    def checking(self) -> Path:
        """It is there while a check may leave in the tree what is no part of the work."""
        return self.admin() / _CHECKING

    def sweep(self) -> None:
        """Back to its HEAD, ignored files aside.  Call it with the repository's lock, in a tree of our own."""
        if self.checking.exists():
            self._undo_commits()
        put_back(self.repository, self.path)
        self.repository.run("clean", "-ffdq", cwd=self.path)
        if self.checking.exists():
            # No work of an agent's either.
            note_ignored(self.repository, self.path, self.admin() / _SET_UP, since=self.checking)
            self.checking.unlink()

    def begin_check(self) -> None:
        note_ignored(self.repository, self.path, self.checking)

    def _undo_commits(self) -> None:
        """Of a check or a reviewer: they are no work either, and stay behind a ref of the attempt."""
        begun, repository = self.begun(), self.repository
        kept = self._refs(begun.epoch if begun else self.epoch).kept
        shown, head = repository.commit_of(kept), repository.commit_of("HEAD", self.path)
        if shown is None or shown == head:
            return
        if head is not None:
            self.put(f"{kept}-check", head)
        go_to(repository, self.path, shown, self.head)

    def _remove(self, lock: int) -> None:
        """Whatever ends us on the way: what is half removed is no attempt's work any more."""
        (self.admin() / MARKER).unlink(missing_ok=True)
        self.repository.run("worktree", "remove", "--force", "--force", str(self.path), keep=(lock,))

    def _unlock(self) -> None:
        for name in _STALE:  # whoever made them is dead
            (self.admin() / name).unlink(missing_ok=True)

    def _find_again(self) -> None:
        """Joins the tree to its repository after both were moved; what belongs to no repository is put aside."""
        if self.path.is_symlink() or not self.path.is_dir():
            return
        rejoin(self.path, self.repository.common)
        try:
            self.admin()
        except GitFailed as error:
            if not any(self.path.iterdir()):
                return
            aside = self.path.with_name(f"{self.path.name}-before-{self.epoch}")
            log.warning("%s; it is kept as %s", error.message, aside)
            self.path.rename(aside)
            if (aside / ".git").is_file():  # git in there would write to what the link leads to
                (aside / ".git").unlink()

    def _mark(self, base: str) -> None:
        begun = Begun(self.epoch, base, self.plan, self.key)
        replace_plain(self.admin() / MARKER, begun.said().encode(), lasting=True)

    def _there(self) -> set[str]:
        """All refs of attempts at a task of this name."""
        found = self.repository.run("for-each-ref", "--format=%(refname)", kept_refs(self.plan, self.key))
        return set(found.split())

    def _refs(self, epoch: int, *, begins: bool = False) -> AttemptRefs:
        """Of the task's attempt.  One that begins gets names that nobody has: kept work is never written over."""
        there, task = self._there(), self.path.name
        refs = attempt_refs(self.plan, self.key, epoch, task, there)
        taken = begins and not there.isdisjoint(refs)
        return own_refs(self.plan, self.key, epoch, task) if taken else refs

    def kept_before(self) -> Iterator[tuple[int, str]]:
        """The task's attempts up to this one, the newest first, each with the commit that is kept of it."""
        names = [ref.rpartition("/")[2].partition("-")[0] for ref in self._there()]
        epochs = {int(name) for name in names if name.isdigit()}
        for epoch in sorted((epoch for epoch in epochs if epoch <= self.epoch), reverse=True):
            if commit := self.repository.commit_of(self._refs(epoch).kept):
                yield epoch, commit

    def _choose_start(self) -> tuple[str, int | None]:
        """The commit to begin with, and the epoch of the attempt whose work that is."""
        for epoch, commit in self.kept_before():
            if epoch < self.epoch and self.branched:
                return commit, epoch
        return self._start(), None

    def _start(self) -> str:
        """Where work on this plan begins now: at its branch, where that has what the user's HEAD has not."""
        head, tip = self.repository.run("rev-parse", "HEAD"), self.plan_tip()
        # What a person has merged already, and gone on from, is no place to begin.
        behind = tip is None or self.repository.is_ancestor(tip, head)
        return head if behind else tip or head

    def plan_tip(self) -> str | None:
        return self.plan_branch.tip()

    @property
    def plan_branch(self) -> PlanBranch:
        return PlanBranch(self.repository, self.plan, self.path.parent)

    def _create(self, base: str, lock: int) -> None:
        repository, path = self.repository, self.path
        if path.exists() or path.is_symlink():
            remove(path)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        tip = repository.commit_of(f"refs/heads/{self.branch}") if self.branched else None
        if tip is not None and not repository.is_ancestor(tip, base):
            # Whatever it is, perhaps a person's: the branch is to begin anew, its commits are not to be lost.
            aside = kept_ref(self.plan, self.key, f"before-{tip[:SHORT_HASH_CHARS]}")
            repository.run("update-ref", aside, tip)
        # Forced twice: over the record of a tree that was killed in the making, which is locked.
        add = ("worktree", "add", "--quiet", "--force", "--force")
        if self.branched and repository.checked_out(self.branch) in (None, str(path)):
            repository.run("update-ref", f"refs/heads/{self.branch}", base)
            repository.run(*add, str(path), self.branch, keep=(lock,))
        else:
            repository.run(*add, "--detach", str(path), base, keep=(lock,))
        self.cwd.mkdir(parents=True, exist_ok=True)

    def _keep(self, begun: Begun, deleted: Path | None = None, *, shown: bool = False) -> Work:
        repository, admin = self.repository, deleted or self.admin()
        head = repository.run("rev-parse", f"worktrees/{admin.name}/HEAD")
        if deleted is None:
            self.level_boxes(begun)
        kept, message = self._refs(begun.epoch).kept, self.signature.message(begun.epoch)
        if (admin / _CHECKING).exists():  # with what the check has left, which is no part of the work
            kept += "-check"
        elif shown and self.repository.commit_of(kept):
            kept += "-changed"
        staged = stage(repository, None if deleted else self.path, admin, head)
        commit = staged.commit(repository, admin, head, message, kept)
        self.put(kept, commit)
        stat = repository.run("diff", "--shortstat", begun.base, commit).strip() or "no change"
        commits = int(repository.run("rev-list", "--count", f"{begun.base}..{commit}"))
        return Work(commit, commits, stat, staged.refused)

    def level_boxes(self, begun: Begun) -> None:
        """Of plans, which nobody but Muster and people ticks.  Call it with the repository's lock."""
        if self.plan_files and self.branched:
            level_boxes(self.repository, self.path, self.plan_files, begun.base, self.plan_branch.name)

    def put(self, kept: str, commit: str) -> None:
        """Keeps a commit behind this ref; one that stood there, and is no part of it, gets a name of its own."""
        before = self.repository.commit_of(kept)
        if before is not None and not self.repository.is_ancestor(before, commit):
            self.repository.run("update-ref", f"{kept}-was-{before[:SHORT_HASH_CHARS]}", before)
        self.repository.run("update-ref", kept, commit)

    def _move_on(self) -> None:
        """To where the plan's branch is now: nothing that was changed here is anybody's work."""
        start, path = self._start(), self.path
        self.sweep()
        self.repository.run("checkout", "--quiet", "--detach", start, cwd=path)

    def _catch_up(self) -> str:
        tip, begun = self.plan_tip(), self.begun()
        if tip is None or begun is None:
            return ""

        def keep() -> tuple[str, str]:
            work = self._keep(begun)
            return work.commit, work.refused

        plans, message = self.plan_files, self.message()
        return merge_plan(self.repository, self.path, tip=tip, keep=keep, message=message, plans=plans)

    def level_base(self, *, begins: bool = False) -> None:
        """What others have published and was merged into this is where it begins, and no work of its own; for an
        attempt that `begins`, what the task itself has published as well.  Call it with the repository's lock.
        """
        repository, path, begun = self.repository, self.path, self.own()
        # A person may have merged the branch, and have deleted it.
        tip = self.plan_tip() or (repository.run("rev-parse", "HEAD") if begins else None)
        if begun is None or tip is None:
            return
        head = repository.commit_of("MERGE_HEAD", path) or repository.run("rev-parse", "HEAD", cwd=path)
        own = () if begins else (commit for _, commit in self.kept_before())
        base = base_now(repository, begun.base, head=head, tip=tip, own=own)
        if base != begun.base:
            repository.run("update-ref", self.base, base)
            self._mark(base)

    def _hand_over(self, origin: int | None) -> str:
        aside = self._set_aside and f"What stood in this folder before is in {self._set_aside}."
        if origin is None:
            return aside
        return (
            f"An earlier attempt (#{origin}) has worked in this folder.  What it left is here; "
            f"what it has changed: git diff {self._refs(self.epoch).base}.  Go on from there."
        ) + (aside and f"  {aside}")
