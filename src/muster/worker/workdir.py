"""Where an attempt works: in the project's folder, or in a working tree of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from muster.model.answers import ClaimedJob
from muster.worker.git import GitFailed, Repository
from muster.worker.worktree import Work, Worktree

log = logging.getLogger(__name__)


class Workdir(Protocol):
    @property
    def cwd(self) -> Path: ...

    @property
    def apart(self) -> bool:
        """What is done here is to be published, and then cleared away, which takes its time."""

    @property
    def env(self) -> Mapping[str, str]: ...

    @property
    def told(self) -> str:
        """What the agent should know of what it finds there."""

    def begin(self) -> None:
        """Makes it.  Raises GitFailed, WorkMissing."""

    def setup(self) -> str:
        """The shell command that has to succeed before the agent begins; empty where there is none."""

    def was_set_up(self) -> None: ...

    def keep(self) -> Work | None:
        """Puts away what the attempt has left.  Never raises."""

    def publish(self) -> None:
        """Hands kept work on.  Raises MergeConflict, GitFailed."""

    def clear(self) -> None:
        """After work that was accepted.  Never raises."""


class Folder:
    """The project's own: whatever is written there is there."""

    told = ""
    apart = False

    def __init__(self, root: Path) -> None:
        self.cwd = root
        self.env: Mapping[str, str] = {}

    def begin(self) -> None: ...

    def setup(self) -> str:
        return ""

    def was_set_up(self) -> None: ...

    def keep(self) -> Work | None:
        return None

    def publish(self) -> None: ...

    def clear(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Trees:
    """How the agents that write get trees of their own."""

    repository: Repository
    folder: Path
    writers: frozenset[str]
    setup: str = ""
    merge: bool = True
    keep: bool = False


@dataclass
class Tree:
    rules: Trees
    tree: Worktree
    publishes: int | None = None
    """Whose work is only to be published."""
    told: str = field(default="", init=False)
    apart: bool = field(default=True, init=False)

    @property
    def cwd(self) -> Path:
        return self.tree.cwd

    @property
    def env(self) -> Mapping[str, str]:
        return {"MUSTER_BRANCH": self.tree.branch}

    def begin(self) -> None:
        self.told = self.tree.prepare()
        if self.publishes is not None:
            self.tree.check_work_of(self.publishes)

    def setup(self) -> str:
        return self.rules.setup if self.tree.needs_setup else ""

    def was_set_up(self) -> None:
        self.tree.was_set_up()

    def keep(self) -> Work | None:
        try:
            return self.tree.keep()
        except (GitFailed, OSError) as error:
            # The tree stays, and the next attempt tries again.
            log.warning("the work in %s could not be kept: %s", self.tree.path, error)
            return None

    def publish(self) -> None:
        self.tree.publish(merge=self.rules.merge)

    def clear(self) -> None:
        if self.rules.keep:
            return
        try:
            self.tree.clear()
        except (GitFailed, OSError) as error:
            log.warning("%s could not be removed: %s", self.tree.path, error)


def workdir_of(job: ClaimedJob, root: Path, trees: Trees | None) -> Workdir:
    if trees is None:
        return Folder(root)
    path = trees.folder / str(job.task_id)
    # What was done is published also where its agent does not write any more, or is not known.
    if job.agent not in trees.writers and not (job.publishes is not None and path.is_dir()):
        return Folder(root)
    return Tree(
        trees, Worktree(trees.repository, path, job.plan, job.key, job.epoch, job.title), job.publishes
    )
