"""Who may reach a workspace: `/api/v1/workspaces`, `/api/v1/members`, `/api/v1/tokens`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from msgspec import Struct

from muster.model import commands as c
from muster.model.access import RIGHTS, Caller, Member, Right, Role, Token, rights_of
from muster.model.answers import Answer, Done, TokenAdded, WorkspaceAdded
from muster.model.errors import Forbidden, NotFound
from muster.model.rows import DEFAULT_WORKSPACE, Workspace
from muster.web.backend import Backend
from muster.web.http import ActorBody, Reply, Request, json_reply
from muster.web.identity import hash_of
from muster.web.rights import another_token, stands_over
from muster.web.routes import Routes

routes = Routes()

PREFIX = "mst_"
"""So that a secret can be told for one wherever it was left."""
SECRET_BYTES = 32


class TokenBody(ActorBody, frozen=True, kw_only=True):
    name: c.Name
    """What it is for."""
    member: c.MemberName
    role: Role = Role.MEMBER
    scopes: tuple[Right, ...] = ()
    """Empty: all that the role may."""
    expires_s: c.TokenSeconds | None = None
    """Null: as long as the token that asks for it; for ever where that does, or none is needed."""


class NewToken(Struct, frozen=True, rename="camel"):
    id: int
    token: str
    """Told once: only its hash is kept."""
    expires_at_ms: int | None
    """When it ends to count; null: never."""


class WhoAmI(Struct, frozen=True, rename="camel"):
    workspace: str
    actor: str
    role: Role
    rights: tuple[Right, ...]


@routes.get("/api/v1/whoami")
async def who_am_i(web: Backend, request: Request) -> WhoAmI:
    """As whom this request was made."""
    who = request.identity
    names = {one.id: one.name for one in await web.reads.workspaces()}
    name = names[web.workspace_id]
    if who is None:
        return WhoAmI(name, "", Role.OWNER, tuple(sorted(RIGHTS[Role.OWNER])))
    return WhoAmI(name, who.actor, who.role, tuple(sorted(who.rights)))


@routes.get("/api/v1/workspaces")
async def workspaces(web: Backend, request: Request) -> Sequence[Workspace]:
    """All of them for who runs the store, else one's own."""
    return await known_workspaces(web, request)


async def known_workspaces(web: Backend, request: Request) -> list[Workspace]:
    who = request.identity
    everything = who is None or Right.STORE in who.rights
    return [one for one in await web.reads.workspaces() if everything or one.id == web.workspace_id]


async def workspace_meant(web: Backend, request: Request, said: str) -> Workspace:
    """By its number or name.  Raises NotFound for one that is not there, or not the asker's."""
    for one in await known_workspaces(web, request):
        if said in {one.name, str(one.id)}:
            return one
    raise NotFound(f"there is no workspace {said[:100]!r}", "muster workspace list")


routes.command("/api/v1/workspaces", c.AddWorkspace, status=201, answer={201: WorkspaceAdded})


@routes.get("/api/v1/members")
async def members(web: Backend) -> Sequence[Member]:
    return await web.reads.members()


@routes.post("/api/v1/members", answer=Done)
async def set_member(web: Backend, request: Request, body: c.SetMember) -> Answer:
    """Adds a member, or gives one another role."""
    await refuse_above(web, request.identity, body.name, body.role)
    return await web.engine.execute(body)


@routes.post("/api/v1/members/{name}/remove", answer=Done)
async def remove_member(web: Backend, request: Request, name: str, body: ActorBody) -> Answer:
    """Revokes the member's tokens as well."""
    await refuse_above(web, request.identity, name)
    return await web.engine.execute(c.RemoveMember(name=name, actor=body.actor))


@routes.get("/api/v1/tokens")
async def tokens(web: Backend) -> Sequence[Token]:
    """Also those that count for nothing any more; no secret."""
    return await web.reads.tokens()


@routes.post("/api/v1/tokens", status=201, answer={201: NewToken})
async def add_token(web: Backend, request: Request, body: TokenBody) -> Reply:
    """The secret is in this answer and nowhere else."""
    await refuse_above(web, request.identity, body.member, body.role)
    _refuse_wider(web, request.identity, body)
    secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    given = {name: getattr(body, name) for name in TokenBody.__struct_fields__}
    given["expires_s"] = _time_given(request.identity, body.expires_s, web.clock.wall_ms())
    added = await web.engine.execute(c.AddToken(**given, token_hash=hash_of(secret)))
    assert isinstance(added, TokenAdded)
    return json_reply(NewToken(added.id, secret, added.expires_at_ms), 201)


@routes.post("/api/v1/tokens/{token_id:id}/revoke", answer=Done)
async def revoke_token(web: Backend, request: Request, token_id: int, body: ActorBody) -> Answer:
    """It counts for nothing from the next request on."""
    token = await web.reads.token_of_id(token_id)
    if token is not None:
        await refuse_above(web, request.identity, token.member, token.role)
    return await web.engine.execute(c.RevokeToken(token_id=token_id, actor=body.actor))


def _refuse_wider(web: Backend, who: Caller | None, body: TokenBody) -> None:
    """Raises Forbidden for a token that may more than the one that asks for it."""
    if who is None:
        return
    guest = web.workspace_id != DEFAULT_WORKSPACE
    if more := rights_of(body.role, body.scopes, guest=guest) - who.rights:
        error = Forbidden(
            f"your token may not {', '.join(sorted(more))}, so it gives nobody the right to; nothing was changed",
            f"name what the new one may do: muster token create NAME --member {body.member} "
            f"--scope {' --scope '.join(sorted(who.rights))}",
        )
        error.pointer = "/scopes"
        raise error


def _time_given(who: Caller | None, asked_s: int | None, now_ms: int) -> int | None:
    """At most as long as the token that asks counts, and so long where no time is named; None: for ever.

    Raises Forbidden.
    """
    if who is None or who.expires_at_ms is None:
        return asked_s
    left_s = (who.expires_at_ms - now_ms) // 1000
    if left_s < (asked_s or 1):
        error = Forbidden(
            "your token expires before the new one would; nothing was changed",
            "name no time (--expires): it counts as long as yours",
        )
        error.pointer = "/expiresS"
        raise error
    return asked_s or left_s


async def refuse_above(web: Backend, who: Caller | None, member: str, role: Role = Role.VIEWER) -> None:
    """Raises Forbidden where that role, or the member's own, is above the asker's."""
    if who is None:
        return
    known = next((one.role for one in await web.reads.members() if one.name == member), Role.VIEWER)
    for one in (role, known):
        if stands_over(who, one):
            continue
        if who.member_role and who.member_role.covers(one):
            raise Forbidden(
                f"this token counts only as {who.role}, which is less than {one}; nothing was changed",
                another_token(who.actor, who.member_role),
            )
        raise Forbidden(f"{who.actor} is {who.role}, which is less than {one}; nothing was changed")
