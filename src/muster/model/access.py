"""Who may do what: members of a workspace with their roles, and tokens that prove who asks."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

from msgspec import Struct

BROWSER = "a browser"
"""What the token of a browser's session is called.  Retention drops those that have ended."""


class Role(StrEnum):
    """Of a member, the least first."""

    VIEWER = "VIEWER"
    MEMBER = "MEMBER"
    ADMIN = "ADMIN"
    OWNER = "OWNER"

    def covers(self, other: Role) -> bool:
        """Whoever has this one may give the other one, and take it away."""
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(other)


class Right(StrEnum):
    """What an operation needs; a token may be limited to some of them."""

    READ = "read"
    WORK = "work"
    """Tasks, plans and claims."""
    CREW = "crew"
    """The crew, its workers, providers and budgets."""
    SERVE = "serve"
    """To be a worker."""
    PEOPLE = "people"
    """Members and tokens."""
    STORE = "store"
    """Workspaces, and what concerns the store and its process."""


_VIEWER = frozenset({Right.READ})
_MEMBER = _VIEWER | {Right.WORK}
_ADMIN = _MEMBER | {Right.CREW, Right.SERVE, Right.PEOPLE}
RIGHTS: dict[Role, frozenset[Right]] = {
    Role.VIEWER: _VIEWER,
    Role.MEMBER: _MEMBER,
    Role.ADMIN: _ADMIN,
    Role.OWNER: _ADMIN | {Right.STORE},
}


class Member(Struct, frozen=True, rename="camel"):
    name: str
    role: Role
    created_at_ms: int


class Token(Struct, frozen=True, rename="camel"):
    """What proves who asks.  Its secret is known to nobody but who was given it."""

    id: int
    workspace_id: int
    name: str
    member: str
    role: Role
    """At most its member's: the less of both counts."""
    scopes: tuple[Right, ...]
    """Empty: all that the role may."""
    created_by: str
    created_at_ms: int
    expires_at_ms: int | None
    revoked_at_ms: int | None
    last_used_at_ms: int | None

    def refused(self, wall_ms: int) -> str:
        """Why it counts for nothing; empty where it counts."""
        if self.revoked_at_ms is not None:
            return "was revoked"
        if self.expires_at_ms is not None and self.expires_at_ms <= wall_ms:
            return "has expired"
        return ""


class Vouched(Struct, frozen=True):
    """What a worker's own token says of it."""

    worker_id: str
    spoken_by: str
    """As in its row."""
    agents: frozenset[str]


class Caller(Struct, frozen=True):
    """Who asks."""

    workspace_id: int
    actor: str
    role: Role
    rights: frozenset[Right]
    expires_at_ms: int | None = None
    """When this ends to count; None: never."""
    scopes: tuple[Right, ...] = ()
    """Of the token, as in Token."""
    member_role: Role | None = None
    """The member's own, which may be more than `role`; None where it is the word of no member."""
    attempt: tuple[str, str] | None = None
    """Task and epoch, where it is the word of an attempt."""
    agent: str = ""
    """Its name, where it is the word of an agent that serves itself."""
    worker: Vouched | None = None
    """Where it is the word of a worker over the network."""


def rights_of(role: Role, scopes: Collection[Right], *, guest: bool) -> frozenset[Right]:
    """`guest`: in another workspace than the folder's own, whose store and process they are."""
    rights = RIGHTS[role] - {Right.STORE} if guest else RIGHTS[role]
    return rights & frozenset(scopes) if scopes else rights
