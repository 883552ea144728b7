"""From the files of a working tree to a commit: staged beside the tree's own index, and put into words."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from muster.hosts.full_disk import NO_SPACE
from muster.worker.conflicts import Unmerged, conflicts, ours, resolve, undecided
from muster.worker.git import DiskFull, Repository, refuse_full
from muster.worker.sparse import is_sparse, read_anew

SHORT_HASH_CHARS = 12
SUBJECT_CHARS_MAX = 72
"""A line of `git log` shows no more."""
BODY_CHARS_MAX = 2000
GITLINK = "160000"
DIFF_LINES_MAX = 20_000
_LINES = re.compile(r"(\d+) (?:insertion|deletion)")
_INDEX = "muster-index"
_FILTER = re.compile(r"clean filter '(.+)' failed")


class Work(NamedTuple):
    """What an attempt left, for people."""

    commit: str
    commits: int
    stat: str
    refused: str = ""
    """What git says of files that it takes in only for safe keeping, or not at all."""
    where: str = ""
    """The host that has it, where the server has not."""
    besides: str = ""
    """What people should know that was changed meanwhile, and that is in no commit."""

    def __str__(self) -> str:
        told = f"commit {self.commit[:SHORT_HASH_CHARS]}, {self.commits} since its start, {self.stat}"
        return "; ".join(filter(None, (told, self.where, self.besides)))


class Staged(NamedTuple):
    tree: str
    refused: str
    """What git said of files that it could not take in; empty where it took all."""

    undecided: tuple[Unmerged, ...] = ()
    """Of the merge that is under way: it is no merge before somebody has decided on them."""
    aside: str = ""
    """As `tree`, with our side of what is undecided: a merge that is begun on it anew finds it again."""

    def changed(self, repository: Repository, *others: str) -> dict[str, tuple[str, str]]:
        """Mode and object of everything that is as in none of these commits, by path, without what is gone."""
        found = [self._changed(repository, other) for other in others]
        return {path: entry for path, entry in found[0].items() if all(path in each for each in found)}

    def _changed(self, repository: Repository, other: str) -> dict[str, tuple[str, str]]:
        # Not `git diff`, which leaves out what a person, or .gitmodules, does not want to see of submodules.
        raw = repository.run(
            "diff-tree", "-r", "--raw", "-z", "--no-renames", "--no-abbrev", other, self.tree
        )
        fields = iter(raw.split("\0"))
        words = (
            (said.removeprefix(":").split(" "), path) for said, path in zip(fields, fields, strict=False)
        )
        return {path: (mode, name) for (_, mode, _, name, _), path in words if mode != "000000"}

    def commit(self, repository: Repository, admin: Path, head: str, message: str, kept: str) -> str:
        """The commit with all of it, on `head` and on what is being merged in the tree with this folder of git's.

        Where the ref `kept` has it already, that one: people may have been told its name.
        """
        other, tree = None, self.aside
        if not self.undecided:
            other, tree = repository.commit_of(f"worktrees/{admin.name}/MERGE_HEAD"), self.tree
        if other is None and tree == repository.run("rev-parse", f"{head}^{{tree}}"):
            return head
        # What was there before comes first, as in any merge into the plan's branch.
        parents = [parent for parent in (other, head) if parent is not None]
        if repository.says(kept, "%T %P") == " ".join((tree, *parents)):
            return repository.run("rev-parse", kept)
        named = [part for parent in parents for part in ("-p", parent)]
        return repository.run("commit-tree", tree, *named, "-m", message)


def changed_files(repository: Repository, before: str, after: str) -> list[str]:
    """In which these two commits differ."""
    compare = ("diff-tree", "-r", "--no-renames", "--name-only", "-z", before, after)
    return [name for name in repository.run(*compare).split("\0") if name]


def sizes(repository: Repository, changed: Mapping[str, tuple[str, str]]) -> list[tuple[str, int]]:
    """(path, bytes) of every changed file."""
    files = {path: name for path, (mode, name) in changed.items() if mode != GITLINK}
    if not files:
        return []
    asked = "".join(f"{name}\n" for name in files.values())
    told = repository.ask("cat-file", "--batch-check=%(objectsize)", given=asked).stdout.split()
    return [(path, int(size)) for path, size in zip(files, told, strict=True)]


def stage(repository: Repository, path: Path | None, admin: Path, head: str) -> Staged:
    """Writes all that is in the tree as a git tree, ignored files aside; its own index stays as it is.

    `path` is None where the tree was deleted: then what was staged.

    Raises GitFailed where not even a part of it can be written, DiskFull where there is no room for all of it.
    """
    index = admin / _INDEX
    _copy_index(admin, index)
    try:
        if not index.exists() and path is not None:
            read_anew(repository, path, head, index)
        elif not index.exists():
            repository.run("read-tree", head, index=index)
        found = conflicts(repository, index)
        # Git writes no tree with them; whatever lies there in their place is added after that.
        resolve(repository, index, ((each.path, each.left) for each in found))
        refused, options = ("", []) if path is None else _add_all(repository, path, index)
        tree = repository.run(*options, "write-tree", cwd=path, index=index)
        unclear = undecided(repository, admin, found, tree)
        if not unclear:
            return Staged(tree, refused)
        resolve(repository, index, ours(repository, head, unclear))
        aside = repository.run(*options, "write-tree", cwd=path, index=index)
        return Staged(tree, refused, unclear, aside)
    finally:
        index.unlink(missing_ok=True)


def _copy_index(admin: Path, index: Path) -> None:
    """With what git knows of the files it need not read them all; whoever has left one there was killed."""
    for left in (index, index.with_name(f"{index.name}.lock")):
        left.unlink(missing_ok=True)
    try:
        # With its time: git reads those files again that may have changed since in the same second.
        shutil.copy2(admin / "index", index)
    except OSError as error:
        index.unlink(missing_ok=True)  # half of one is none
        if error.errno in NO_SPACE:
            raise DiskFull(admin, str(error)) from error


def _add_all(repository: Repository, path: Path, index: Path) -> tuple[str, list[str]]:
    """What git says of files that it refuses, and the options with which it takes in those of a filter.

    They are taken in unfiltered, which is good enough to be kept.
    """
    options: list[str] = []
    refused = ""
    # Files outside of the part that is checked out as well; an older git does not know the word.
    add = ("add", "--all", "--ignore-errors", *(("--sparse",) if is_sparse(index.parent) else ()), "--", ":/")
    while True:
        added = repository.ask(*options, *add, cwd=path, index=index)
        if added.returncode == 0:
            return refused, options
        refuse_full(path, added.stderr)
        refused = refused or " ".join(added.stderr.split())[-500:] or "no reason"
        broken = _FILTER.search(added.stderr)
        # Git ends at once where it is required.
        option = f"filter.{broken[1]}.required=false" if broken else ""
        if not option or option in options:
            return refused, options
        options += ["-c", option]


def difference(repository: Repository, base: str, tree: str) -> str:
    """For whoever goes on with it: line by line, or only the files where there are very many lines."""
    options = ("-c", "core.bigFileThreshold=1m", "diff", "--no-ext-diff", "--no-textconv", "--no-color")
    lines = map(int, _LINES.findall(repository.run(*options, "--shortstat", base, tree, "--")))
    how = "-p" if sum(lines) <= DIFF_LINES_MAX else "--stat-count=1000"
    return repository.run(*options, "--stat", how, base, tree, "--")


class Signature(Struct, frozen=True, kw_only=True):
    """What a commit says of the attempt whose work it is."""

    task: str
    """`plan/key`."""
    title: str = ""
    agent: str = ""
    said: str = ""
    """The agent's own last words."""
    cost: str = ""

    @property
    def subject(self) -> str:
        title = " ".join(self.title.split()) or self.task
        return title if len(title) <= SUBJECT_CHARS_MAX else f"{title[: SUBJECT_CHARS_MAX - 3].rstrip()}..."

    @property
    def signs(self) -> tuple[str, str]:
        """What every commit of its task has, and one of the agent's own has not: subject and task."""
        return self.subject, self.task

    def message(self, epoch: int) -> str:
        trailers = {"Task": self.task, "Attempt": str(epoch), "Agent": self.agent, "Cost": self.cost}
        signed = "\n".join(f"{name}: {value}" for name, value in trailers.items() if value)
        body = self.said.strip().replace("\0", "")[:BODY_CHARS_MAX]
        return "\n\n".join(filter(None, (self.subject, body, signed)))


NOBODY = Signature(task="")
