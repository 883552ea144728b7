"""What tasks have made, as people look at it before it goes on: answers of `/api/v1`."""

from __future__ import annotations

from muster.model.answers import Answer


class WorkDiff(Answer, frozen=True, kw_only=True):
    base: str
    """The commit before the work; empty: there is none."""
    head: str
    """The commit with the work."""
    diff: str
    whole: bool
    """False: it is longer than this."""
    listing: str = ""
    """All of its files, by `git diff --raw --numstat -z`."""


class BroughtCommit(Answer, frozen=True, kw_only=True):
    commit: str
    task: str | None
    """Whose work it is; null for a commit that is not Muster's."""
    subject: str


class BroughtFile(Answer, frozen=True, kw_only=True):
    change: str
    """A (added), M (changed) or D (removed)."""
    path: str


class PlanMerged(Answer, frozen=True, kw_only=True):
    """What a merge of a plan's branch would bring, or has brought."""

    plan: str
    branch: str
    into: str | None
    """The branch that it goes into; null where none is checked out."""
    commit: str | None
    """The merge; null: nothing was merged."""
    commits: tuple[BroughtCommit, ...]
    files: tuple[BroughtFile, ...]
    conflicts: tuple[str, ...]
    """Files that a person would have to merge by hand."""
    tip: str
    """The commit where the plan's branch is."""
    onto: str
    """The commit where the branch is that it goes into."""


class PullProposed(Answer, frozen=True, kw_only=True):
    """What a pull request of a plan's or a task's branch would be of."""

    ref: str
    """Its plan, or `plan/key` of its one task."""
    branch: str
    tip: str
    """The commit that would be pushed."""
    remote: str
    base: str
    commits: tuple[BroughtCommit, ...]
    """Those that the base has not, as far as is known here."""


class PullOpened(Answer, frozen=True, kw_only=True):
    ref: str
    """Its plan, or `plan/key` of its one task."""
    url: str
    branch: str
    base: str
    new: bool
    """False: it was open already."""
    pushed: bool
    remarks: tuple[str, ...] = ()
    """What else there is to know, like what has become of an earlier one."""
