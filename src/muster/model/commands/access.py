"""What is said of workspaces, their members and tokens."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster.model import patterns
from muster.model.access import Right, Role
from muster.model.commands.base import Command
from muster.model.scalars import Id, Name, TokenHash, TokenSeconds

MemberName = Annotated[str, Meta(pattern=patterns.MEMBER.regex)]
WorkspaceName = Annotated[str, Meta(pattern=patterns.WORKSPACE.regex)]


class AddWorkspace(Command, frozen=True, kw_only=True):
    name: WorkspaceName
    actor: Name


class SetMember(Command, frozen=True, kw_only=True):
    """Adds a member, or gives one another role."""

    name: MemberName
    role: Role
    actor: Name


class RemoveMember(Command, frozen=True, kw_only=True):
    """Revokes the member's tokens as well."""

    name: MemberName
    actor: Name


class AddToken(Command, frozen=True, kw_only=True):
    name: Name
    """What it is for."""
    member: MemberName
    role: Role
    scopes: tuple[Right, ...] = ()
    token_hash: TokenHash
    expires_s: TokenSeconds | None = None
    """None: never."""
    actor: Name


class RevokeToken(Command, frozen=True, kw_only=True):
    token_id: Id
    actor: Name


class NoteTokenUse(Command, frozen=True, kw_only=True):
    token_id: Id
