"""What the REST APIs of forges answer, as much of it as is read; what may be missing or null has a default."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class HubRepository(Struct, frozen=True):
    id: int | None = None
    full_name: str | None = None


class HubSide(Struct, frozen=True):
    """The head or the base of a pull request, of GitHub or Gitea."""

    ref: str | None = None
    sha: str | None = None
    repo: HubRepository | None = None
    """None: it was deleted since."""
    repo_id: int | None = None
    """Gitea's; below 0 for one that was deleted."""


class HubPull(Struct, frozen=True):
    number: int
    html_url: str
    state: str
    base: HubSide
    head: HubSide | None = None
    merged: bool | None = None
    merged_at: str | None = None
    body: str | None = None

    @property
    def own(self) -> bool:
        """Its branch is one of the repository that it is to go into, and not of a fork with such a branch."""
        head, base = self.head or HubSide(), self.base
        ids = _id(head), _id(base)
        if None not in ids:
            return ids[0] == ids[1]
        names = [side.repo.full_name for side in (head, base) if side.repo and side.repo.full_name]
        return len(names) == 2 and names[0].casefold() == names[1].casefold()


def _id(side: HubSide) -> int | None:
    if side.repo_id is not None or side.repo is None:
        return side.repo_id
    return side.repo.id


class HubOutput(Struct, frozen=True):
    title: str | None = None
    summary: str | None = None


class HubRun(Struct, frozen=True):
    """A check run, or a run of Actions."""

    status: str | None = None
    name: str | None = None
    conclusion: str | None = None
    html_url: str | None = None
    output: HubOutput | None = None


class HubStatus(Struct, frozen=True):
    context: str
    state: str | None = None
    status: str | None = None
    description: str | None = None
    target_url: str | None = None


class HubStatuses(Struct, frozen=True):
    statuses: list[HubStatus] | None


class HubUser(Struct, frozen=True):
    login: str | None = None
    type: str | None = "User"


class HubRemark(Struct, frozen=True):
    """A review, or a comment on a line or on the whole."""

    id: int
    user: HubUser | None = None
    state: str | None = None
    body: str | None = None
    path: str | None = None
    line: int | None = None
    original_line: int | None = None
    position: int | None = None
    html_url: str | None = None
    resolver: Any = None


class HubPermission(Struct, frozen=True):
    permission: str | None


class LabRequest(Struct, frozen=True):
    iid: int
    web_url: str
    state: str
    target_branch: str
    source_branch: str | None = None
    source_project_id: int | None = None
    """None: that project was deleted since."""
    target_project_id: int | None = None
    sha: str | None = None
    description: str | None = None

    @property
    def own(self) -> bool:
        """As with HubPull."""
        return self.source_project_id is not None and self.source_project_id == self.target_project_id


class LabStatus(Struct, frozen=True):
    name: str
    status: str | None = None
    allow_failure: bool | None = None
    description: str | None = None
    target_url: str | None = None


class LabAuthor(Struct, frozen=True):
    id: int
    username: str
    bot: bool | None = None


class LabPosition(Struct, frozen=True):
    new_path: str | None = None
    new_line: int | None = None


class LabNote(Struct, frozen=True):
    id: int
    author: LabAuthor
    body: str | None = None
    system: bool | None = None
    resolved: bool | None = None
    position: LabPosition | None = None


class LabMember(Struct, frozen=True):
    access_level: int
