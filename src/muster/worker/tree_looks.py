"""What a running attempt has changed in its tree so far, told to those who decide what may run beside it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.touches import patterns_of
from muster.worker.git import GitFailed
from muster.worker.worktree import Worktree

log = logging.getLogger(__name__)

LOOK_S = 10.0
LOOK_PART = 0.01
"""Of the time is spent on looking, at most: a large tree is looked at more rarely."""
GIT_S_MAX = 2.0
"""So long a look may keep the attempt's thread from its watch."""


class TreeLooks:
    def __init__(self, tree: Worktree, every_s: float) -> None:
        self._tree = tree
        self._every_s = every_s
        self._next_s = time.monotonic() + every_s
        self._told = ""

    def tell(self, job: ClaimedJob, send: Callable[[c.AttemptCommand], object]) -> None:
        """Call it when the agent's output has moved: it looks where its time has come, and sends what is new."""
        begun_s = time.monotonic()
        if begun_s < self._next_s:
            return
        files = self._files()
        now_s = time.monotonic()
        self._next_s = now_s + max(self._every_s, (now_s - begun_s) / LOOK_PART)
        if files != self._told:
            send(c.LiveDiff(task_id=job.task_id, epoch=job.epoch, files=files))
            self._told = files

    def _files(self) -> str:
        try:
            return patterns_of(changed_files(self._tree, GIT_S_MAX))
        except (GitFailed, OSError) as error:
            log.info("what was changed in %s is not known: %s", self._tree.path, error)
            return self._told


def changed_files(tree: Worktree, within_s: float) -> set[str]:
    """Of the project's folder: what is neither as the task has found it, nor as others have published it.

    Without files of plans, which all may write to at a time.  Raises GitFailed, also where git takes longer than
    that.
    """

    def names(*arguments: str) -> set[str]:
        told = tree.repository.run(*arguments, cwd=tree.cwd, within_s=within_s)
        return set(filter(None, told.split("\0")))

    diff = ("diff", "--name-only", "--relative", "--no-renames", "-z")
    changed = names(*diff, tree.base, "--")
    if changed and (tip := tree.plan_tip()) is not None:
        changed &= names(*diff, tip, "--")
    changed |= names("ls-files", "--others", "--exclude-standard", "-z")
    return {name for name in changed if str(tree.repository.prefix / name) not in tree.plan_files}
