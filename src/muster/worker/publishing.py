"""What an attempt has left, on its way to the branch of its plan: collected, merged, and moved there in one step.

Nothing is published that is not whole: what git would not take in, what is half merged, or what holds conflict
markers goes back to the agent, or to a person, with the reason.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from muster.model.blackout import Blackout
from muster.model.file_names import in_shell, in_words
from muster.worker.commits import GITLINK, Staged, changed_files, sizes, stage
from muster.worker.conflicts import HOW_TO_KEEP, MARKER_BEGINS, marked, resolve
from muster.worker.git import GitFailed
from muster.worker.merging import NAMED_MAX, forget_merge
from muster.worker.plan_boxes import merged_by_boxes
from muster.worker.sparse import go_to, read_in
from muster.worker.submodules import left_behind, links, unfinished
from muster.worker.tree_marker import Begun
from muster.worker.upstream import AttemptUpstream
from muster.worker.worktree import Worktree

LARGE_BYTES = 10_000_000
"""Files above this are named to people."""
FILE_BYTES_MAX = 100_000_000
"""Files above this are for a person to decide on.  GitHub refuses them (docs.github.com, "About large files")."""
_UNDER_WAY = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}
Changed = Mapping[str, tuple[str, str]]
"""Mode and object, by path."""
_SIGNED = "%P%n%s%n%(trailers:key=Task,valueonly,separator=%x20)"
_SAID_MAX = 500
_ID_CHARS = 12
_USAGE = 129
"""Git's exit code where it does not know an option."""


class NotPublished(Exception):
    """Work that is done does not reach its plan's branch now; `hint` says what would help."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def words(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class SentBack(NotPublished):
    """The work cannot be taken as it is.  Its agent is told why, and goes on with it."""


class ForReview(NotPublished):
    """No agent can say what is to become of this work: a person has to."""


class Collected(NamedTuple):
    commit: str
    large: tuple[str, ...]
    """Files of more than LARGE_BYTES, with their sizes."""
    left_out: str
    """Files that git ignores, and where they are kept; empty: none that anybody would miss."""
    mended: str = ""
    """Files that are other than its person was shown, where that was told to mend them."""


class Merged(NamedTuple):
    old: str | None
    """Where the plan's branch stood; None: it does not exist yet."""
    new: str
    changed: bool
    """The branch gets something by it."""
    others: tuple[str, ...] = ()
    """Commits that stood there, and that were not published by a task."""
    there: bool = False
    """It gets nothing, because all that the task has changed stood there already."""


class Publishing(Struct, frozen=True):
    tree: Worktree
    file_bytes_max: int
    """A larger file is for a person to decide on."""
    accepted: int | None = None
    """The attempt whose work a person has looked at and accepted, as it was shown then."""
    mended: bool = False
    """That person was told to mend it: it is accepted as it is now."""
    droppings: tuple[str, ...] = ()
    """Names of ignored files that nobody misses."""
    upstream: AttemptUpstream | None = None
    """Who moves the plan's branch; None: we do."""
    blackout: Blackout = Blackout()
    """Of what nobody is to read in the plan's history."""

    @property
    def _git(self) -> str:
        """For commands that people copy: its agent stands in the tree, they do not."""
        return f"git -C {in_shell(str(self.tree.path))}"

    def collect(self) -> Collected:
        """Commits all that is in the tree, at its HEAD and behind the attempt's ref.

        Raises SentBack, ForReview, and GitFailed where a later attempt has the tree.
        """
        tree, repository = self.tree, self.tree.repository
        with repository.locked():
            tree.level_base()  # its agent may have merged the plan's branch by itself
            begun, admin = self._begun(), tree.admin()
            for name, what in _UNDER_WAY.items():
                if (admin / name).exists():
                    raise SentBack(
                        f"a {what} is under way in its working tree, so its work is half done",
                        f"finish it: {self._git} {what} --continue; or undo it: {self._git} {what} --abort",
                    )
            if self.accepted is None:
                self._refuse_stashed(admin)
            tree.level_boxes(begun)
            head = repository.run("rev-parse", "HEAD", cwd=tree.path)
            staged = stage(repository, tree.path, admin, head)
            if staged.refused:
                raise _not_taken_in(staged.refused)
            tip = tree.plan_tip()
            self._refuse_secrets(begun.base, head, tip)
            # What others have published is not this one's to mend.
            others = [begun.base, *([tip] if tip else [])]
            changed = staged.changed(repository, *others)
            if self._forget_repositories(changed, staged):
                staged = stage(repository, tree.path, admin, head)
                changed = staged.changed(repository, *others)
            self._refuse_repositories(changed, staged)
            if self.accepted is not None:
                staged = staged._replace(undecided=())
            else:
                self._refuse_conflicts(begun.base, changed, staged)
                self._refuse_left_behind(head, staged)
            large = self._large(changed)
            commit = staged.commit(repository, admin, head, tree.message(), tree.kept)
            tree.put(tree.kept, commit)
            if commit != head:
                repository.run(
                    "update-ref", "-m", "muster: what was not committed", "HEAD", commit, cwd=tree.path
                )
            read_in(repository, tree.path, commit)
            forget_merge(tree.path)
            left = self._status()
            inner = self._refuse_uncommitted(left)
            if left := [line for line in left if line[3:] not in inner]:
                raise ForReview(
                    f"git does not take in all of its work: {_named(map(in_words, left))}",
                    f"look at it: {self._git} diff; git ls-files -v there tells which files git was told to "
                    "pass over; accepted, what git takes in is published",
                )
            if repository.checked_out(tree.branch) in (None, str(tree.path)):
                repository.run("update-ref", f"refs/heads/{tree.branch}", commit)
            ignored = tree.ignored(self.droppings)
            left_out = f"{_named(ignored)}; it is kept in {tree.path}" if ignored else ""
            return Collected(commit, large, left_out, self._mended(commit))

    def _mended(self, commit: str) -> str:
        """Files that are other than was shown.  Raises ForReview where nobody was told to mend them."""
        if self.accepted is None:
            return ""
        tree = self.tree
        # Where nothing is known of what was shown, nobody has seen any of it.
        changed = changed_files(tree.repository, tree.left_by(self.accepted) or tree.base, commit)
        # The boxes of plans are ticked meanwhile.
        names = [in_words(name) for name in changed if name not in tree.plan_files]
        if names and not self.mended:
            raise ForReview(
                f"files were changed after its work was shown for review: {_named(names)}; nothing was published",
                "look at it once more, and accept it as it is now, or send it back",
            )
        return _named(names)

    def merge(self, commit: str) -> Merged:
        """The commit that the plan's branch would move to, and that nothing points to yet.  Raises SentBack."""
        tree, repository = self.tree, self.tree.repository
        base = repository.run("rev-parse", tree.base)
        tip = tree.plan_tip()
        start, others = tip or base, tree.plan_branch.others()
        if repository.is_ancestor(commit, start):
            # An earlier attempt may have been killed after it had moved the branch.
            return Merged(tip, start, not repository.is_ancestor(commit, base), others)
        parents, *signs = repository.says(commit, _SIGNED).split("\n")
        ours = parents.startswith(start) and tuple(signs) == tree.signature.signs
        new = commit if ours else self._merged(start, commit)
        changed = not repository.same_tree(start, new)
        there = not changed and self._stands(start, commit)
        return Merged(tip, new if changed else start, changed, others, there)

    def _stands(self, start: str, commit: str) -> bool:
        """Whether the task's last own commit has changed something, all of which `start` has as well.

        Whoever has solved a conflict by the branch's side alone has changed nothing.
        """
        repository = self.tree.repository
        own = repository.run("rev-list", "--topo-order", "--no-merges", "-1", commit, f"^{start}")
        if not own or repository.same_tree(repository.run("merge-base", start, own), own):
            return False
        merged = repository.ask("merge-tree", "--write-tree", "--no-messages", start, own)
        return merged.returncode == 0 and merged.stdout.strip() == repository.run(
            "rev-parse", f"{start}^{{tree}}"
        )

    def hand_in(self) -> None:
        """The work is done, and stays on the task's own branch.  Raises GitFailed."""
        if self.upstream is not None:
            self.upstream.hand_in(self.tree)

    def changed(self, commit: str) -> bool:
        """Whether the task has changed anything since it began."""
        tree = self.tree
        return not tree.repository.same_tree(tree.base, commit)

    def show(self, commit: str) -> None:
        """Puts this commit into the tree, for a check.  All that is there has been collected.

        Raises GitFailed where a later attempt has the tree.
        """
        tree, repository = self.tree, self.tree.repository
        with repository.locked():
            self._begun()
            tree.sweep()
            tree.begin_check()
            if repository.run("rev-parse", "HEAD", cwd=tree.path) == commit:
                return
            go_to(repository, tree.path, commit, tree.head)
            tree.put(tree.kept, commit)

    def tidy(self) -> None:
        """Removes what a check has left; the tree of a later attempt is that one's to tidy."""
        with self.tree.repository.locked():
            if self.tree.own() is not None:
                self.tree.sweep()

    def _begun(self) -> Begun:
        """Call it with the repository's lock.  Raises GitFailed where a later attempt has the tree."""
        tree = self.tree
        tree.admin()  # it tells why, where the tree is not of this repository any more
        if (begun := tree.own()) is None:
            raise GitFailed(f"attempt {tree.epoch} has no part in {tree.path} any more")
        return begun

    def advance(self, merged: Merged, intend: Callable[[str, str, str], bool]) -> bool:
        """Moves the plan's branch; False where it has moved meanwhile, so that the merge is to be made again.

        `intend(branch, old, new)` notes what is about to happen, and says whether the attempt may still do it; no
        one else moves a branch of this repository's plans between that and the move.  Raises Over where it may
        not, and GitFailed where a person has the branch checked out.
        """
        tree, repository = self.tree, self.tree.repository
        branch = tree.plan_branch.name
        if self.upstream is not None and merged.changed:
            return self.upstream.advance(tree, merged.old, merged.new)
        with repository.locked():
            tip = tree.plan_tip()
            if tip != merged.old:
                return False
            if merged.new == tip or not merged.changed:
                if tip is not None and merged.others:
                    tree.plan_branch.move(tip, tip)  # they are known by now
                return True
            tree.plan_branch.refuse_checked_out()
            if not intend(branch, tip or "0" * len(merged.new), merged.new):
                raise Over(f"attempt {tree.epoch} of {tree.plan}/{tree.key} is over")
            tree.plan_branch.move(tip, merged.new)
        return True

    def _merged(self, ours: str, theirs: str) -> str:
        tree, repository = self.tree, self.tree.repository
        if repository.ask("merge-base", ours, theirs).returncode == 1:
            raise SentBack(
                f"its commits do not come from where it began, so they cannot be merged with what is on branch "
                f"{tree.plan_branch.name}: git finds no commit that both have",
                f"put its work where it began, no file is changed by it: {self._git} reset --soft {tree.base}",
            )
        done = repository.ask(
            "merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", ours, theirs
        )
        content, *files = done.stdout.rstrip("\0").split("\0")
        if done.returncode == 1 and (settled := self._by_boxes(content, files, ours, theirs)):
            content = settled
        elif done.returncode == 1:
            raise SentBack(
                f"its work does not merge with branch {tree.plan_branch.name}: "
                f"{_named(map(in_words, files))}",
                f"by hand: {self._git} merge {tree.plan_branch.name}, then decide on both sides of each file",
            )
        elif done.returncode:
            old = done.returncode == _USAGE
            raise GitFailed(
                f"git merge-tree failed: {done.stderr.strip()[-_SAID_MAX:]}",
                "it needs git 2.38 or newer" if old else f"try it by hand: git merge {tree.branch}",
            )
        return repository.run("commit-tree", content, "-p", ours, "-p", theirs, "-m", tree.message())

    def _by_boxes(self, content: str, files: list[str], ours: str, theirs: str) -> str:
        """The tree of a merge whose conflicts are all in plans, and between boxes; else empty."""
        tree, repository = self.tree, self.tree.repository
        if not tree.plan_files or not set(files) <= {*tree.plan_files}:
            return ""
        base = repository.run("merge-base", ours, theirs)
        with tempfile.TemporaryDirectory() as folder:
            index = Path(folder, "index")
            repository.run("read-tree", content, index=index)
            for file in files:
                sides = {"base": f"{base}:{file}", "ours": f"{ours}:{file}", "theirs": f"{theirs}:{file}"}
                name = merged_by_boxes(repository, tree.path, file, **sides)
                mode = repository.run("ls-tree", "--full-tree", ours, "--", file).partition(" ")[0]
                if not name:
                    return ""
                resolve(repository, index, [(file, f"{mode} {name}")])
            return repository.run("write-tree", index=index)

    def _refuse_stashed(self, admin: Path) -> None:
        """All trees share one stash, so it is no place for a part of the work."""
        tree, repository = self.tree, self.tree.repository
        begun_s = int((admin / "commondir").stat().st_mtime)  # git has made it with the tree
        here = repository.ask("symbolic-ref", "--quiet", "--short", "HEAD", cwd=tree.path).stdout.strip()
        for number, line in enumerate(repository.run("stash", "list", "--format=%ct %gs").splitlines()):
            name, (at, said) = f"stash@{{{number}}}", line.split(" ", 1)
            branch = said.partition(":")[0].removeprefix("WIP on ").removeprefix("On ")
            if branch in (tree.branch, here) and int(at) >= begun_s:
                raise SentBack(
                    f"a part of its work is in git's stash, which all working trees share: {name}, {said}",
                    f"bring it back: {self._git} stash pop {name}; or throw it away: git stash drop {name}",
                )

    def _refuse_secrets(self, base: str, head: str, tip: str | None) -> None:
        """In what the agent's own commits say: nobody can take that back once the plan's branch has it."""
        if not self.blackout:
            return
        told = ("--encoding=UTF-8", "--no-show-signature", "--format=%H%n%an%n%ae%n%cn%n%ce%n%B")
        before = [f"^{commit}" for commit in (base, tip) if commit]
        listed = self.tree.repository.run("log", "-z", "--topo-order", *told, head, *before)
        found = [text[:_ID_CHARS] for text in listed.split("\0") if self.blackout.of(text) != text]
        if not found:
            return
        why = f"its own commits tell a secret in their messages or names: {_named(found)}"
        how = (
            f"make them anew without it: {self._git} reset --soft {found[-1]}^; {self._git} commit -m MESSAGE"
        )
        # No acceptance takes it: who looked at files has not seen it.
        if self.accepted is None:
            raise SentBack(why, how)
        raise ForReview(why, f"{how}; then accept it")

    def _forget_repositories(self, changed: Changed, staged: Staged) -> bool:
        """Whether there was a repository whose own folder is gone: git takes its files in once it is told so."""
        path = self.tree.path
        linked = (name for name, (mode, _) in changed.items() if mode == GITLINK)
        if gone := {name for name in linked if not (path / name / ".git").exists()}:
            gone -= self._submodules(staged)
        if gone:
            told = "".join(f"{name}\0" for name in gone)
            forget = ("update-index", "--force-remove", "-z", "--stdin")
            self.tree.repository.run(*forget, cwd=path, given=told)
        return bool(gone)

    def _submodules(self, staged: Staged) -> set[str]:
        """That are declared."""
        named = ("config", "--blob", f"{staged.tree}:.gitmodules", "-z", "--get-regexp", r"\.path$")
        return {line.partition("\n")[2] for line in self.tree.repository.ask(*named).stdout.split("\0")}

    def _refuse_repositories(self, changed: Changed, staged: Staged) -> None:
        """Of a repository within this one git keeps no more than a commit's name, so its files would be lost."""
        tree, repository = self.tree, self.tree.repository
        for path, (mode, commit) in changed.items():
            if mode != GITLINK or any(path == each.path for each in staged.undecided):
                continue
            inner = tree.path / path
            elsewhere = (
                repository.ask("branch", "--remotes", "--contains", commit, cwd=inner)
                if inner.is_dir()
                else None
            )
            if elsewhere is not None and elsewhere.returncode == 0 and elsewhere.stdout.strip():
                continue  # a submodule at a commit that others can get as well
            if path in self._submodules(staged):
                raise SentBack(
                    f"submodule {in_words(path)} stands at commit {commit[:12]}, which its remote does not have",
                    f"push its commit: git -C {in_shell(str(inner))} push origin HEAD:refs/heads/NAME",
                )
            folder = in_shell(str(inner / ".git"))
            raise SentBack(
                f"{in_words(path)} is a git repository of its own, of which only a commit's name would be kept",
                f"if its files belong to this work: rm -rf {folder}; else move it out of the working tree",
            )

    def _refuse_left_behind(self, head: str, staged: Staged) -> None:
        tree = self.tree
        for name, commit in left_behind(tree.repository, tree.path, head, staged.tree).items():
            at = commit[:_ID_CHARS]
            raise SentBack(
                f"submodule {in_words(name)} is not at commit {at}, which others have published meanwhile",
                f"go on from there: {self._git} submodule update -- {in_shell(name)}",
            )

    def _refuse_uncommitted(self, left: list[str]) -> set[str]:
        """What is changed within submodules reaches no commit of ours; those whose changes are left out.

        `left` is as `_status` tells it.
        """
        tree, repository = self.tree, self.tree.repository
        linked = links(repository, tree.path)
        inner = unfinished(repository, tree.path, linked)
        if self.accepted is not None or not linked:
            return inner
        if lost := tree.lost(self.droppings):
            raise SentBack(
                f"no commit takes in what lies in a submodule that is not set up here: {_named(lost)}",
                "move it out of there to where it belongs; if that is the submodule, then set it up first: "
                f"{self._git} submodule update --init, and commit and push in it",
            )
        seen = {line[3:] for line in left}
        if found := sorted(inner & seen):  # others are not to be heard of: they are named as left out
            first = in_shell(str(tree.path / found[0]))
            raise SentBack(
                f"there are changes in submodules that these have not committed: {_named(map(in_words, found))}",
                f"commit and push them there, or undo them; look at them: git -C {first} status",
            )
        return set()

    def _status(self) -> list[str]:
        """What its tree has and HEAD has not: two letters each, a blank and the name, as it is."""
        asked = ("status", "--porcelain", "-z", "--no-renames")
        return [line for line in self.tree.repository.run(*asked, cwd=self.tree.path).split("\0") if line]

    def _refuse_conflicts(self, base: str, changed: Changed, staged: Staged) -> None:
        repository = self.tree.repository
        options = ("-r", "--text", "--no-textconv", "--name-only", "--no-renames", "-z", f"-G{MARKER_BEGINS}")
        begun = repository.run("diff-tree", *options, base, staged.tree).split("\0")
        half = marked(repository, staged.tree, (path for path in begun if path in changed))
        other = "what others have published"
        kinds = [each.words(other, markers=False) for each in staged.undecided if each.path not in half]
        why, what = [], []
        if half:
            named = _named(f"{in_words(path)}:{line}" for path, line in half.items())
            why.append(f"there are conflict markers in what it has changed: {named}")
            what.append(
                "decide on each side, and remove the lines that begin with <<<<<<<, ======= and >>>>>>>"
            )
        if kinds:
            why.append(f"nobody has decided on both sides of {_named(kinds)}")
            what.append(HOW_TO_KEEP)
        if why:
            raise SentBack("; ".join(why), "; ".join(what))

    def _large(self, changed: Changed) -> tuple[str, ...]:
        found = sizes(self.tree.repository, changed)
        too_large = [_sized(path, size) for path, size in found if size > self.file_bytes_max]
        if too_large and self.accepted is None:
            raise ForReview(
                f"it has made files of more than {self.file_bytes_max / 1e6:,.0f} MB: {_named(too_large)}",
                "git.max_file of muster.toml is the limit",
            )
        return tuple(_sized(path, size) for path, size in found if size > LARGE_BYTES)


class Over(NotPublished):
    """Another attempt has the task, or it has ended: ours goes no further."""


def _not_taken_in(said: str) -> NotPublished:
    message = f"git cannot take in all of its work: {said}"
    if "filter" in said:
        return ForReview(message, "install what the filter of .gitattributes runs, then accept it")
    return SentBack(message, "remove what does not belong to the work, or make it readable")


def _sized(path: str, size: int) -> str:
    return f"{in_words(path)} ({size / 1e6:,.0f} MB)"


def _named(names: Iterable[str]) -> str:
    listed = [name.strip() for name in names]
    more = f" and {len(listed) - NAMED_MAX} more" if len(listed) > NAMED_MAX else ""
    return ", ".join(listed[:NAMED_MAX]) + more
