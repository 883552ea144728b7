"""Workspaces, members and tokens."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from muster.engine.notes import note
from muster.engine.view import View
from muster.engine.views import Views
from muster.model import commands as c
from muster.model.access import Member, Role, Token
from muster.model.answers import Done, TokenAdded, WorkspaceAdded
from muster.model.errors import Conflict, NotFound
from muster.model.rows import Workspace


class Access:
    async def add_workspace(self, views: Views, command: c.AddWorkspace) -> WorkspaceAdded:
        """Raises Conflict where there is one of that name."""
        if await views.tx.workspace_named(command.name) is not None:
            raise Conflict(f"there is a workspace {command.name} already", "muster workspace list")
        (number,) = await views.tx.take_ids(1, views.now.wall_ms)
        workspace = Workspace(number, command.name, views.now.wall_ms)
        await views.tx.add_workspace(workspace)
        said = f"workspace {workspace.name} made by {command.actor}"
        await note(
            await views.of(workspace.id),
            f"workspace {workspace.name}",
            "workspace_added",
            said,
            command.actor,
        )
        return WorkspaceAdded(id=workspace.id, name=workspace.name)

    async def set_member(self, view: View, command: c.SetMember) -> Done:
        """Raises Conflict where no OWNER would be left."""
        known = {member.name: member for member in await view.tx.members()}
        before = known.get(command.name)
        if before is not None and before.role is command.role:
            return Done()
        if before is not None:
            _refuse_last(known.values(), before)
        made_at_ms = before.created_at_ms if before else view.now.wall_ms
        await view.tx.put_member(Member(command.name, command.role, made_at_ms))
        event = "member_changed" if before else "member_added"
        said = f"{command.name} is {command.role} now, by {command.actor}"
        await note(view, f"member {command.name}", event, said, command.actor)
        return Done()

    async def remove_member(self, view: View, command: c.RemoveMember) -> Done:
        """Raises NotFound, and Conflict where no OWNER would be left."""
        known = {member.name: member for member in await view.tx.members()}
        member = known.get(command.name)
        if member is None:
            raise NotFound(f"there is no member {command.name}", "muster member list")
        _refuse_last(known.values(), member)
        await view.tx.drop_member(member.name)
        for token in await view.tx.tokens():
            if token.member == member.name and token.revoked_at_ms is None:
                await self._revoke(view, token, command.actor)
        said = f"{member.name} removed by {command.actor}"
        await note(view, f"member {member.name}", "member_removed", said, command.actor)
        return Done()

    async def add_token(self, view: View, command: c.AddToken) -> TokenAdded:
        """Raises NotFound for a member who is not there, Conflict for a role above the member's, and for a token
        that is there already."""
        member = next((one for one in await view.tx.members() if one.name == command.member), None)
        if member is None:
            raise NotFound(f"there is no member {command.member}", "muster member set NAME --role ROLE")
        if not member.role.covers(command.role):
            raise Conflict(
                f"{member.name} is {member.role}: a token of theirs cannot be {command.role}",
                f"--role {member.role}; only if they are to have more: "
                f"muster member set {member.name} --role {command.role}",
            )
        now_ms = view.now.wall_ms
        (number,) = await view.tx.take_ids(1, now_ms)
        token = Token(
            id=number,
            workspace_id=view.tx.workspace_id,
            name=command.name,
            member=member.name,
            role=command.role,
            scopes=command.scopes,
            created_by=command.actor,
            created_at_ms=now_ms,
            expires_at_ms=None if command.expires_s is None else now_ms + command.expires_s * 1000,
            revoked_at_ms=None,
            last_used_at_ms=None,
        )
        if not await view.tx.add_token(token, command.token_hash):
            # Two have made the same one at once: of a link that lets somebody in once.
            raise Conflict("this token is there already; nothing was changed", "make another one")
        said = f"token {token.name} of {member.name}, {token.role}, made by {command.actor}"
        await note(view, f"token {token.id}", "token_added", said, command.actor)
        return TokenAdded(id=token.id, expires_at_ms=token.expires_at_ms)

    async def revoke_token(self, view: View, command: c.RevokeToken) -> Done:
        """Raises NotFound.  Repeating it changes nothing."""
        token = await view.tx.token_of_id(command.token_id)
        if token is None:
            raise NotFound(f"there is no token {command.token_id}", "muster token list")
        if token.revoked_at_ms is None:
            await self._revoke(view, token, command.actor)
        return Done()

    async def note_use(self, view: View, command: c.NoteTokenUse) -> Done:
        """No event: it is asked all the time."""
        token = await view.tx.token_of_id(command.token_id)
        if token is not None:
            await view.tx.update_token(replace(token, last_used_at_ms=view.now.wall_ms))
        return Done()

    async def _revoke(self, view: View, token: Token, actor: str) -> None:
        await view.tx.update_token(replace(token, revoked_at_ms=view.now.wall_ms))
        said = f"token {token.name} of {token.member} revoked by {actor}"
        await note(view, f"token {token.id}", "token_revoked", said, actor)


def _refuse_last(members: Iterable[Member], member: Member) -> None:
    """Raises Conflict: nobody could give a role any more."""
    owners = [one for one in members if one.role is Role.OWNER]
    if owners == [member]:
        raise Conflict(
            f"{member.name} is the last OWNER; nothing was changed", "make somebody else one first"
        )
