"""Where an attempt works: in the project's folder, or in a working tree of its own."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from muster.hosts.full_disk import NO_SPACE
from muster.model.answers import ClaimedJob
from muster.worker.commits import Signature, Work
from muster.worker.git import DiskFull, GitFailed, Repository
from muster.worker.plan_boxes import plan_paths
from muster.worker.publishing import FILE_BYTES_MAX, Publishing
from muster.worker.shared_settings import changed_since, shared_settings
from muster.worker.tree_looks import LOOK_S, TreeLooks
from muster.worker.upstream import AttemptUpstream
from muster.worker.worktree import Worktree

log = logging.getLogger(__name__)


class Workdir(Protocol):
    @property
    def cwd(self) -> Path: ...

    @property
    def apart(self) -> bool:
        """It is made for the attempt, and cleared away after it, which takes its time."""

    @property
    def env(self) -> Mapping[str, str]: ...

    @property
    def told(self) -> str:
        """What the agent should know of what it finds there."""

    def begin(self) -> None:
        """Makes it.  Raises GitFailed, WorkMissing."""

    @property
    def place(self) -> str:
        """Where its work is while nobody else has it; empty where it is at hand for everybody."""

    def setup(self) -> str:
        """The shell command that has to succeed before the agent begins; empty where there is none."""

    def was_set_up(self) -> None: ...

    def sign(self, signature: Signature) -> None:
        """For the commits of what is done here."""

    def diff(self) -> str:
        """What earlier attempts have changed here; empty where nothing is known of that."""

    def decide(self, paths: Sequence[str]) -> None:
        """These files of a merge that is under way here are right as they lie here.  Never raises."""

    def keep(self, *, whole: bool = False, judged: bool = False) -> Work | None:
        """Puts away what the attempt has left.

        `whole`: returns once whoever publishes it can have it.  `judged`: people are shown it as it is now, and
        accept that.

        Raises DiskFull where there is no room for it, and with `whole` what the server has to say; else nothing.
        """

    def keep_later(self) -> None:
        """Once there is room for it.  Never raises."""

    def publishing(self) -> Publishing | None:
        """How work that is done goes on from here; None: it does not."""

    def looks(self) -> TreeLooks | None:
        """How others are told what is changed here while the attempt runs; None: they are not."""

    def clear(self) -> None:
        """After work that was accepted.  Never raises."""


class Folder:
    """The project's own: whatever is written there is there."""

    told = place = ""
    apart = False

    def __init__(self, root: Path) -> None:
        self.cwd = root
        self.env: Mapping[str, str] = {}

    def begin(self) -> None: ...

    def setup(self) -> str:
        return ""

    def was_set_up(self) -> None: ...

    def sign(self, signature: Signature) -> None: ...

    def diff(self) -> str:
        return ""

    def decide(self, paths: Sequence[str]) -> None: ...

    def keep(self, *, whole: bool = False, judged: bool = False) -> Work | None:  # noqa: ARG002 - there is none
        return None

    def keep_later(self) -> None: ...

    def publishing(self) -> Publishing | None:
        return None

    def looks(self) -> TreeLooks | None:
        return None

    def clear(self) -> None: ...


class Trees(Struct, frozen=True, kw_only=True):
    """How the agents that write get trees of their own."""

    repository: Repository
    folder: Path
    writers: frozenset[str] = frozenset()
    """Agents whose work is to change files."""
    readers: frozenset[str] = frozenset()
    """Agents that change nothing: they see what the plan's branch has, and what they leave goes nowhere."""
    here: frozenset[str] = frozenset()
    """Agents that work in the project's own folder all the same."""
    setup: str = ""
    merge: bool = True
    keep: bool = False
    file_bytes_max: int = FILE_BYTES_MAX
    droppings: tuple[str, ...] = ()
    """Names of ignored files that nobody misses."""
    protects: bool = True
    """Boxes of plans that an agent ticks in its tree are put back."""
    look_s: float = LOOK_S
    """Between two looks at what a running attempt has changed."""
    upstream: AttemptUpstream | None = None
    """Where the repository is that this one is a part of; None: it is the project's own."""


class Tree(Struct):
    rules: Trees
    tree: Worktree
    publishes: int | None = None
    """Whose work is only to be published."""
    accepted: int | None = None
    """As in ClaimedJob."""
    mended: bool = False
    """As in Publishing."""
    told: str = ""
    apart: bool = True
    settings: frozenset[str] | None = None
    """Those that its tree shares with the user's folder, as they were when its agent began."""

    @property
    def cwd(self) -> Path:
        return self.tree.cwd

    @property
    def env(self) -> Mapping[str, str]:
        return {"MUSTER_BRANCH": self.tree.branch} if self.tree.branched else {}

    @property
    def place(self) -> str:
        upstream = self.rules.upstream
        return upstream.place(self.tree) if upstream is not None and self.tree.branched else ""

    def begin(self) -> None:
        self.told = self.tree.prepare(merge=self.publishes is None, shown=self.accepted)
        if self.publishes is not None:
            upstream = self.rules.upstream
            away = upstream.upstream.away.get(upstream.job.task_id, {}) if upstream is not None else {}
            self.tree.check_work_of(self.publishes, away.get(str(self.publishes), ""))
        self.settings = shared_settings(self.tree.repository)

    def setup(self) -> str:
        return self.rules.setup if self.tree.needs_setup else ""

    def was_set_up(self) -> None:
        self.tree.was_set_up()
        self.settings = shared_settings(self.tree.repository)

    def sign(self, signature: Signature) -> None:
        self.tree = replace(self.tree, signature=signature)

    def diff(self) -> str:
        try:
            return self.tree.diff()
        except (GitFailed, OSError) as error:
            log.info("what was changed in %s is not known: %s", self.tree.path, error)
            return ""

    def decide(self, paths: Sequence[str]) -> None:
        try:
            self.tree.decide(paths)
        except (GitFailed, OSError) as error:
            # Nothing is decided by that: it is asked again.
            log.warning("what is decided on %s could not be noted: %s", ", ".join(paths), error)

    def keep(self, *, whole: bool = False, judged: bool = False) -> Work | None:
        upstream = self.rules.upstream
        try:
            work = self.tree.keep()
            if work is not None and judged:
                self.tree.show_to_people(work.commit)
            if work is not None and self.settings is not None:
                work = work._replace(besides=changed_since(self.tree.repository, self.settings))
            if work is None or upstream is None:
                return work
            where = upstream.keep(self.tree)
            if where and whole:
                upstream.send(self.tree)
                where = ""
            return work._replace(where=where)
        except DiskFull:
            raise
        except (GitFailed, OSError) as error:
            if isinstance(error, OSError) and error.errno in NO_SPACE:
                raise DiskFull(self.tree.path, str(error)) from error
            # The tree stays, and the next attempt tries again.
            log.warning("the work in %s could not be kept: %s", self.tree.path, error)
            return None

    def keep_later(self) -> None:
        if self.rules.upstream is not None:
            self.rules.upstream.upstream.keep_later(self.tree)

    def publishing(self) -> Publishing | None:
        if not self.tree.branched:
            return None
        rules = self.rules
        return Publishing(
            self.tree,
            rules.file_bytes_max,
            self.accepted,
            self.mended,
            droppings=rules.droppings,
            upstream=rules.upstream,
        )

    def looks(self) -> TreeLooks | None:
        return TreeLooks(self.tree, self.rules.look_s) if self.tree.branched else None

    def clear(self) -> None:
        if self.rules.keep:
            return
        try:
            self.tree.clear()
        except (GitFailed, OSError) as error:
            log.warning("%s could not be removed: %s", self.tree.path, error)


def workdir_of(job: ClaimedJob, root: Path, trees: Trees | None, plans: Sequence[str] = ()) -> Workdir:
    """`plans` are the files of plans, from the project's folder."""
    if trees is None or (job.agent in trees.here and job.publishes is None):
        return Folder(root)
    tree = Worktree(
        trees.repository,
        trees.folder / str(job.task_id),
        job.plan,
        job.key,
        job.epoch,
        Signature(task=f"{job.plan}/{job.key}", title=job.title, agent=job.agent),
        # What was done is published also where its agent does not write any more.
        branched=job.agent not in trees.readers or job.publishes is not None,
        plan_files=plan_paths(trees.repository, plans) if trees.protects else (),
    )
    return Tree(trees, tree, job.publishes, job.accepted, bool(job.sent_back))
