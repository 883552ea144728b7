"""The merge itself, in the user's folder: all that `git merge` would do, or nothing.

Only what is seen to be Muster's own is committed, or undone: the marks of a merge are git's, and somebody else
may begin one at any moment.
"""

from __future__ import annotations

import os
import shlex
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from subprocess import CompletedProcess

from muster.app.merge_folder import (
    Before,
    changes_to,
    edited,
    hidden_edits,
    named,
    refuse_in_the_way,
    staged,
    unmerged,
)
from muster.app.plan_merge import Incoming, PlanFile, Settled, merged, other_of, settle, three_way
from muster.app.seen_work import called
from muster.hosts.git_head import under_way
from muster.hosts.user_git import UserGit, end_session, said, text_of
from muster.model.errors import Conflict, MusterError, PreconditionFailed
from muster.model.file_names import in_shell
from muster.plans.files import LocalPlanFiles

STEP_S = 180.0
"""How long git, a hook or a signature may take where whoever asks is not at the folder."""
_STOP_S = 10.0
_LOCAL_CHANGES = "would be overwritten by merge"
_NO_OPTIONS = "MUSTER_NO_OPTIONS"
_MERGE = (
    *("merge", "--no-ff", "--no-squash", "--no-commit", "--no-autostash", "--no-log", "--quiet"),
    "--strategy=ort",
)
"""What settings such as `merge.ff` and `pull.twohead` would bend."""
_STEPS = (("hook", "run", "--ignore-missing", "pre-merge-commit"), ("commit", "--quiet", "--no-edit"))
_ABORT = "git merge --abort"
_SHORT = 12


class Elsewhere:
    """For whoever merges and is not at the folder: a step that takes too long has failed, and whatever fails, the
    merge is undone.
    """

    def __init__(self, within_s: float) -> None:
        self.within_s = within_s
        self.ending = False
        self._running: UserGit | None = None
        self._through = threading.Event()

    @contextmanager
    def at_work(self, git: UserGit) -> Iterator[None]:
        self._running = git
        self._through.clear()
        try:
            yield
        finally:
            self._running = None
            self._through.set()

    def end(self) -> None:
        """The process is about to: what a merge waits for is ended, and that merge undone."""
        self.ending = True
        if (git := self._running) is not None:
            if (running := git.running) is not None and running.poll() is None:
                end_session(running)
            self._through.wait(_STOP_S)


def merge(git: UserGit, found: Incoming, message: str, elsewhere: Elsewhere | None = None) -> str:
    """The merge commit, of both parents.  To be called under `one_merge`, as the look before it.

    Raises Conflict: where git refuses, then nothing was changed; or where files are left for the person, or the
    commit is refused, then the merge is under way; never for those `elsewhere`.
    """
    _refuse_under_way(git, found)
    if found.plan is not None and not found.plan.clean:
        for ours in (found.plan.ours, found.plan.here):
            if merged(git, found.plan, ours).conflict:
                raise Conflict(
                    f"the text of {found.plan.path} was changed on {found.branch} and in your folder, and yours "
                    "is not committed; nothing was changed",
                    f"git add {found.plan.path} && git commit, then again",
                )
    return _Merge(git, found, elsewhere).run(message)


class _Merge:
    def __init__(self, git: UserGit, found: Incoming, elsewhere: Elsewhere | None) -> None:
        self._git, self._found, self._elsewhere = UserGit(git.folder, {_NO_OPTIONS: ""}), found, elsewhere
        self._other = other_of(git, found)
        told = git.ask(
            "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", "HEAD", self._other
        )
        if told.returncode not in (0, 1):
            raise MusterError(f"git merge-tree failed: {said(told)}; nothing was changed", "try it by hand")
        self._tree, *names = text_of(told.stdout).split("\0")
        self._conflicts = list(filter(None, names))
        self._changes = changes_to(git, self._tree)
        self._touched = {change.path for change in self._changes}
        self._mark = git.folder / git.run("rev-parse", "--git-path", "MERGE_HEAD")
        self._settled = Settled()

    def run(self, message: str) -> str:
        hidden = hidden_edits(self._git)
        others = refuse_in_the_way(self._git, self._changes, hidden)
        self._before = Before(self._git, self._changes, (*hidden, *others))
        try:
            with nullcontext() if self._elsewhere is None else self._elsewhere.at_work(self._git):
                return self._run(message)
        finally:
            self._before.drop()

    def _run(self, message: str) -> str:
        try:
            self._begin(message)
            return self._commit()
        except KeyboardInterrupt as interrupt:
            with _undisturbed():
                interrupt.add_note(self._left_by_interrupt())
            raise
        except BaseException:
            if self._elsewhere is not None and self._is_ours():
                self._undo()
            raise

    def _begin(self, message: str) -> None:
        """To the point where only the commit is missing."""
        self._refuse_moved()
        # Its options may be `--squash` or `-s ours`; only in this form may the name hold any character.
        unbent = (f"--config-env=branch.{self._found.into}.mergeOptions={_NO_OPTIONS}",)
        words = (*(unbent if self._found.into else ()), *_MERGE, "-m", message, self._other)
        done = self._ask(*words)
        if self._heads() != [self._other]:
            raise self._failed(done, self._before.put_back())
        self._before.begun()
        if not self._conflicts:
            self._refuse_crossed()
        if self._found.plan is not None:
            try:
                settle(self._git, self._found, self._settled, conflicts=bool(unmerged(self._git)))
            except BaseException:
                self._undo()
                raise
        if self._conflicts or unmerged(self._git):
            raise self._conflict()

    def _conflict(self) -> Conflict:
        if files := unmerged(self._git):
            what, do = f"there are conflicts in {named(files)}", "edit them, then: git add FILE && git commit"
        else:
            what = f"git has resolved the conflicts in {named(self._conflicts)} as they were before (rerere)"
            do = "look at it: git diff HEAD; then: git commit"
        at_folder = f"{what}; the merge is under way, the rest of it is done"
        return self._stopped(at_folder, what, f"{do}; or undo it all: {_ABORT}")

    def _commit(self) -> str:
        for step in _STEPS:
            if self._heads() != [self._found.tip]:
                raise _crossed("MERGE_HEAD is another one by now; this merge was not committed")
            done = self._ask(*step)
            if done.returncode and not self._made():
                raise self._stopped(
                    f"the merge is made and not committed: {said(done)}",
                    f"the merge could not be committed: {said(done)}",
                    f"git commit; or undo it: {_ABORT}",
                )
        if not (made := self._made()):
            head = self._git.commit_of("HEAD")
            raise _crossed(f"HEAD is {head[:_SHORT]} now, and no merge of {self._found.branch} is in it")
        self._ask("hook", "run", "--ignore-missing", "post-merge", "--", "0")
        return made

    def _ask(self, *words: str) -> CompletedProcess[bytes]:
        if self._elsewhere is None:
            return self._git.ask(*words)
        if self._elsewhere.ending:
            return CompletedProcess(words, 1, b"", b"the server is about to end")
        return self._git.ask(*words, within_s=self._elsewhere.within_s)

    def _stopped(self, at_folder: str, elsewhere: str, hint: str) -> Conflict:
        """Whoever is at the folder goes on there; for anybody else all of it is undone."""
        if self._elsewhere is None:
            self._keep_abort_possible()
            return Conflict(at_folder, hint)
        left, kept = self._undo()
        if left:
            told = f"{elsewhere}; it could not be undone: {named(left)}"
            return Conflict(told, f"in the folder itself: git status, {_ABORT}")
        return Conflict(
            f"{elsewhere}; it was undone, nothing was changed{kept}",
            "mend that; or in the folder itself, where you can go on by hand: muster plan merge PLAN",
        )

    def _made(self) -> str:
        """The merge in HEAD, also below what a hook has committed on top of it; empty where there is none."""
        form = ("log", "--merges", "--format=%H %P", f"{self._found.onto}..HEAD")
        parents = f"{self._found.onto} {self._found.tip}"
        for line in text_of(self._git.ask(*form).stdout).splitlines():
            commit, _, found = line.partition(" ")
            if found == parents:
                return commit
        return ""

    def _refuse_moved(self) -> None:
        """Raises PreconditionFailed where something else is checked out than was looked at."""
        into, onto = self._git.branch(), self._git.commit_of("HEAD")
        if into != self._found.into:
            now = f"{called(into)} is checked out by now, and not {called(self._found.into)}"
        elif onto != self._found.onto:
            now = f"{called(into)} is at {onto[:_SHORT]} by now"
        else:
            return
        raise PreconditionFailed(f"{now}; nothing was changed", "the same once more")

    def _refuse_crossed(self) -> None:
        """Two gits at once may leave the parent of one merge and the files of another."""
        tree = self._git.ask("write-tree")
        if text_of(tree.stdout) != self._tree or self._git.commit_of("HEAD") != self._found.onto:
            raise _crossed("git's index is not what this merge makes; it was not committed")

    def _heads(self) -> list[str]:
        try:
            return self._mark.read_text().split()
        except FileNotFoundError:
            return []

    def _is_ours(self) -> bool:
        """It is under way, and nobody has committed meanwhile."""
        ours = self._heads() in ([self._other], [self._found.tip])
        return ours and self._git.commit_of("HEAD") == self._found.onto

    def _failed(self, done: CompletedProcess[bytes], left: list[str]) -> Conflict:
        """In fewer words than git's."""
        words = text_of(done.stderr)
        files = [line.strip() for line in words.splitlines() if line.startswith("\t")]
        if files and _LOCAL_CHANGES in words and set(files) >= set(left):
            return Conflict(
                f"it would overwrite what you have not committed: {named(files)}; nothing was changed",
                "commit it, or put it aside: git stash",
            )
        if left:
            return Conflict(
                f"git could not merge: {said(done)}; what it had written was put back, but not what somebody has "
                f"changed there meanwhile: {named(left)}",
                "look at it: git status",
            )
        if self._heads():
            return Conflict(
                f"somebody has begun another merge in {self._git.folder} meanwhile; nothing was changed",
                f"finish it, or undo it: {_ABORT}",
            )
        return Conflict(f"git could not merge: {said(done)}; nothing was changed", "mend that, then again")

    def _keep_abort_possible(self) -> None:
        """`git merge --abort` refuses where a file is in the index otherwise than in HEAD and in the folder: so
        is a plan that has what nobody has committed.  Its text stays in the folder, and is not in the merge.
        """
        plan = self._found.plan
        if plan is not None and not unmerged(self._git) and is_between(self._git, plan.path):
            self._unstage_plan()

    def _unstage_plan(self) -> None:
        plan = self._found.plan
        assert plan is not None
        if plan.tracked:
            entry = text_of(self._git.ask("rev-parse", f"{self._found.onto}:{plan.path}").stdout)
            self._git.ask("update-index", "--add", "--cacheinfo", f"{plan.mode},{entry},{plan.path}")
        else:
            self._git.ask("update-index", "--force-remove", "--", plan.path)

    def _undo(self) -> tuple[list[str], str]:
        """The files that are not as they were, and in words what they held that was neither's."""
        if self._found.plan is not None:
            self._unstage_plan()
        # What others have staged meanwhile is theirs: an abort would remove it from the folder as well.
        others = set(staged(self._git, self._tree)) | set(edited(self._git))
        self._over(sorted(set(staged(self._git)) - self._touched), "reset", "--quiet")
        kept = ""
        if files := sorted(others & self._touched):  # hooks have changed them, or people have
            commit = text_of(self._git.ask("stash", "create").stdout)
            if commit:  # else nothing has it but the folder, and git refuses to undo the rest
                kept = f"; what {named(files)} held by then: git show {commit[:_SHORT]}:FILE"
                self._over(files, "add")
        self._git.ask("merge", "--abort")
        left = sorted(self._touched) if self._heads() else self._before.put_back()
        if self._found.plan is not None:
            if self._heads() == [self._found.tip]:  # who commits that by hand has not merged the plan's file
                self._mark.write_text(f"{self._other}\n")
            try:
                self._put_plan_back(self._found.plan)
            except MusterError:  # another program keeps writing it
                left.append(self._found.plan.path)
        return left, kept

    def _over(self, files: list[str], *words: str) -> None:
        if files:
            given = b"".join(os.fsencode(path) + b"\0" for path in files)
            self._git.ask(*words, "--pathspec-from-file=-", "--pathspec-file-nul", given=given)

    def _put_plan_back(self, plan: PlanFile) -> None:
        """Not what was edited, or ticked, since."""
        seen, left = self._settled.seen, self._settled.left
        if left is None:
            return

        def edit(data: bytes) -> bytes:
            return seen if data == left else three_way(self._git, left, data, seen) or data

        LocalPlanFiles().rewrite(str(plan.file), edit)

    def _left_by_interrupt(self) -> str:
        if made := self._made():
            return f"interrupted; the merge is done: {made[:_SHORT]}"
        if self._is_ours() and self._heads() == [self._found.tip]:
            self._keep_abort_possible()
            return f"interrupted; the merge is made and not committed: git commit; or undo it: {_ABORT}"
        left = self._undo()[0] if self._is_ours() else self._before.put_back()
        return (
            f"interrupted; look at {named(left)}: git status" if left else "interrupted; nothing was changed"
        )


def is_between(git: UserGit, path: str) -> bool:
    """The index has this file otherwise than HEAD, and than the folder."""
    diff = ("diff", "--quiet", "--no-ext-diff")
    asked = ((*diff, "--cached", "HEAD"), diff)
    return all(git.ask(*words, "--", f":(literal){path}").returncode for words in asked)


def _crossed(what: str) -> Conflict:
    return Conflict(f"another git was at work in this folder: {what}", "look at it: git status")


def _refuse_under_way(git: UserGit, found: Incoming) -> None:
    lock = git.folder / git.run("rev-parse", "--git-path", "index.lock")
    if lock.exists():  # git finds it after it has written files
        raise Conflict(
            f"git's index is locked: {lock}: File exists; another git is at work, or was killed; "
            "nothing was changed",
            f"if no git is at work: rm {shlex.quote(str(lock))}, then again",
        )
    if what := under_way(git.folder / git.run("rev-parse", "--git-dir")):
        undo = f"git {what} --abort"
        plan = found.plan
        if what == "merge" and plan is not None and not unmerged(git) and is_between(git, plan.path):
            undo = f"git reset --quiet -- {in_shell(f':/{plan.path}')} && {undo}"  # as a killed one leaves it
        raise Conflict(
            f"a {what} is under way in {git.folder}; nothing was changed", f"finish it, or undo it: {undo}"
        )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """By a second Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
