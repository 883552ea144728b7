"""What tasks have made, in the repository of this project, for people who look at it from elsewhere."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from muster.model.works import PlanMerged, PullOpened, PullProposed


class WorkChange(NamedTuple):
    base: str
    """The commit before it."""
    head: str
    listing: bytes
    """All of its files, by `git diff --raw --numstat -z`."""
    patch: bytes
    whole: bool
    """False: the patch is longer than this."""


class WorkSeen(NamedTuple):
    """What somebody has been shown who wants it to go on; of None it does not matter what it is by now."""

    tip: str | None
    """The commit where the branch was."""
    into: str | None
    """The branch that it was to go into; empty: none was checked out."""
    onto: str | None = None
    """The commit where that was; it may have gone forward since."""


class PullKnown(NamedTuple):
    """A pull request that was opened from here, as the forge was last heard of it."""

    url: str
    """The forge's word, which may be anything."""
    state: str
    looked_at_ms: int
    """0: it was not asked since it was opened."""


class Works(Protocol):
    async def of_attempt(self, plan: str, key: str, task_id: int, epoch: int) -> WorkChange:
        """What the task had changed when this attempt ended.  Raises NotFound."""

    async def of_plan(self, plan: str) -> WorkChange:
        """What the plan's branch has that the branch it would go into has not.  Raises NotFound."""

    async def authors(self, head: str, path: str, line: int | None) -> list[str]:
        """`plan/key` of those whose work this place of a plan's branch may be, the likeliest first."""

    async def coming(self, plan: str, source: str | None, done: Collection[str]) -> PlanMerged:
        """What `merge` would bring.  `source` is the plan's file, `done` the boxes that are completed."""

    async def merge(self, plan: str, source: str | None, done: Collection[str], seen: WorkSeen) -> PlanMerged:
        """Into the branch that is checked out, or that the repository of several servers begins with.

        Raises Conflict where that is not possible without a person, and PreconditionFailed where it is other
        work, or another branch, than was `seen`."""

    async def proposed(self, ref: str) -> PullProposed:
        """What `pull_request` would push.  Raises NotFound and Conflict where it would push nothing."""

    async def pull_request(self, ref: str, seen: WorkSeen) -> PullOpened:
        """Pushes the branch of a plan or a task, and opens its pull request or brings it up to date.

        Raises PreconditionFailed as `merge` does."""

    async def pull_known(self, ref: str, *, task: bool) -> PullKnown | None:
        """That of a plan, or of a `task` by its `plan/key`.  No forge is asked."""
