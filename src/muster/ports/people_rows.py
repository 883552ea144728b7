"""What members and their tokens need of a store."""

from __future__ import annotations

from typing import Protocol

from muster.model.access import Member, Token


class PeopleCommon(Protocol):
    async def members(self) -> list[Member]: ...

    async def tokens(self) -> list[Token]:
        """Also those that count for nothing any more, the oldest first."""

    async def token_of_id(self, token_id: int) -> Token | None: ...


class PeopleTx(Protocol):
    async def put_member(self, member: Member) -> None: ...

    async def drop_member(self, name: str) -> None: ...

    async def add_token(self, token: Token, token_hash: str) -> bool:
        """False where there is one with this hash; nothing is changed then."""

    async def update_token(self, token: Token) -> None:
        """When it was revoked, and used last."""


class PeopleReads(Protocol):
    async def token(self, token_hash: str) -> tuple[Token, Member | None] | None:
        """Of whichever workspace, with its member, who may be gone."""
