"""Commits on their way between a server's repository and a worker of another host, in parts of a git bundle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from muster.model import patterns
from muster.model.answers import Answer
from muster.model.commands import AttemptCommand
from muster.model.scalars import Count, Id

PART_BYTES_MAX = 512 << 10
BUNDLE_BYTES_MAX = 1 << 30
HAVES_MAX = 500
Commit = Annotated[str, Meta(pattern=patterns.COMMIT.regex)]
Digest = Annotated[str, Meta(pattern=patterns.SHA256.regex)]


class GitFetch(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What is asked for a task that is to begin: the branch of its plan, and what earlier attempts have left."""

    task_id: Id
    have: Annotated[tuple[Commit, ...], Meta(max_length=HAVES_MAX)] = ()
    """Commits that are there already."""
    bundle: Digest | None = None
    """Goes on with this one, from `offset`."""
    offset: Count = 0


class GitPart(Answer, frozen=True, kw_only=True):
    """A part of a bundle, and what is to be known of the repository."""

    repository: bool
    """False: tasks have no working trees there, and nothing else is told."""
    project: str = ""
    prefix: str = ""
    """The project's folder in it."""
    head: str = ""
    tip: str = ""
    """Where the plan's branch stands; empty: it does not exist yet."""
    published: str = ""
    """What Muster has published there last."""
    refs: Mapping[str, str] = {}
    """Of the task's attempts, by name."""
    away: Mapping[str, str] = {}
    """Where the work of attempts is that is not here, by their epochs."""
    bundle: str = ""
    """Its name; empty: everything is there already."""
    sha256: str = ""
    size: int = 0
    data: bytes = b""


class GitSend(AttemptCommand, frozen=True, kw_only=True):
    """A part of the bundle with what an attempt has left; the last one is answered once all of it is kept."""

    base: Commit
    """Where the task began."""
    kept: Commit
    merged: Commit | None = None
    """What its plan's branch is to move to."""
    branch: bool = False
    """Its task's own branch moves to `kept`: the work is done, and goes no further."""
    large: Commit | None = None
    """Has the files of git-lfs that those commits point to, each named by its digest."""
    sha256: Digest
    size: Annotated[int, Meta(ge=0, le=BUNDLE_BYTES_MAX)]
    offset: Count
    data: Annotated[bytes, Meta(max_length=PART_BYTES_MAX)]


class GitReceived(Answer, frozen=True, kw_only=True):
    received: int
    """Go on from here."""
    whole: bool
    """All of it is in the repository, behind the attempt's refs."""


class GitPublish(AttemptCommand, frozen=True, kw_only=True):
    """Moves the plan's branch, for the attempt that has the task now."""

    old: Commit | None
    """None: it does not exist."""
    new: Commit


class GitMoved(Answer, frozen=True, kw_only=True):
    moved: bool
    """False without a reason: it has moved on meanwhile, so the merge is to be made again."""
    why: str = ""
    hint: str = ""
