"""From the files of a working tree to a commit: staged beside the tree's own index, and put into words."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from muster.worker.git import Repository

SUBJECT_CHARS_MAX = 72
"""A line of `git log` shows no more."""
BODY_CHARS_MAX = 2000
_INDEX = "muster-index"


class Staged(NamedTuple):
    tree: str
    refused: str
    """What git said of files that it could not take in; empty where it took all."""

    def changed(self, repository: Repository, base: str) -> Iterator[tuple[str, str, str]]:
        """(mode, object, path) of everything that is not as in `base`, without what is gone."""
        raw = repository.run("diff", "--raw", "-z", "--no-renames", "--no-abbrev", base, self.tree)
        fields = iter(raw.split("\0"))
        for said, path in zip(fields, fields, strict=False):
            _, mode, _, name, _ = said.removeprefix(":").split(" ")
            if mode != "000000":
                yield mode, name, path

    def commit(self, repository: Repository, admin: Path, head: str, message: str, kept: str) -> str:
        """The commit with all of it, on `head` and on what is being merged in the tree with this folder of git's.

        Where the ref `kept` has it already, that one: people may have been told its name.
        """
        other = repository.commit_of(f"worktrees/{admin.name}/MERGE_HEAD")
        if other is None and self.tree == repository.run("rev-parse", f"{head}^{{tree}}"):
            return head
        # What was there before comes first, as in any merge into the plan's branch.
        parents = [parent for parent in (other, head) if parent is not None]
        if repository.says(kept, "%T %P") == " ".join((self.tree, *parents)):
            return repository.run("rev-parse", kept)
        named = [part for parent in parents for part in ("-p", parent)]
        return repository.run("commit-tree", self.tree, *named, "-m", message)

    def sizes(self, repository: Repository, base: str) -> list[tuple[str, int]]:
        """(path, bytes) of every changed file."""
        files = [(path, name) for mode, name, path in self.changed(repository, base) if mode != "160000"]
        if not files:
            return []
        asked = "".join(f"{name}\n" for _, name in files)
        told = repository.ask("cat-file", "--batch-check=%(objectsize)", given=asked).stdout.split()
        return [(path, int(size)) for (path, _), size in zip(files, told, strict=True)]


def stage(repository: Repository, path: Path | None, admin: Path, head: str) -> Staged:
    """Writes all that is in the tree as a git tree, ignored files aside; its own index stays as it is.

    `path` is None where the tree was deleted: then what was staged.

    Raises GitFailed where not even a part of it can be written.
    """
    index = admin / _INDEX
    index.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # with what git knows of the files it need not read them all
        # With its time: git reads those files again that may have changed since in the same second.
        shutil.copy2(admin / "index", index)
    try:
        if not index.exists():
            repository.run("read-tree", head, cwd=path, index=index)
        refused = ""
        if path is not None:
            added = repository.ask("add", "--all", "--ignore-errors", "--", ":/", cwd=path, index=index)
            refused = "" if added.returncode == 0 else " ".join(added.stderr.split())[-500:] or "no reason"
        return Staged(repository.run("write-tree", cwd=path, index=index), refused)
    finally:
        index.unlink(missing_ok=True)


@dataclass(frozen=True, kw_only=True)
class Signature:
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
