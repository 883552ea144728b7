"""Letting a browser in, and out again: by a link that works once, or by a token."""

from __future__ import annotations

import math
import secrets

import msgspec

from muster.model import commands as c
from muster.model.access import BROWSER, Token
from muster.model.errors import Conflict, NotAllowed, StoreRefused
from muster.web.backend import Backend
from muster.web.http import Query, Reply, Request
from muster.web.identity import hash_of
from muster.web.open_paths import ENTER
from muster.web.pages.forms import back_to
from muster.web.routes import Routes
from muster.web.sign_in_links import PURPOSE, LinkClaims
from muster.web.visits import (
    SESSION,
    SESSION_S,
    cookie,
    fields_of,
    posted,
    refuse_other_sites,
    secret_of,
    session_secret,
)

routes = Routes(pages=True)

_AGAIN = "muster ui --server URL makes another link; or paste a token"
_in_use: set[str] = set()
"""Links that are being used at this moment."""


class EnterQuery(Query, frozen=True, kw_only=True):
    code: str = ""
    back: str = ""
    """The page that was asked for without a session."""


@routes.get(ENTER)
async def ask_in(web: Backend, request: Request, query: EnterQuery) -> Reply:  # noqa: ARG001
    return entrance(request, query)


def entrance(request: Request, query: EnterQuery) -> Reply:
    """A form, which a browser with scripts sends by itself: whoever only looks at a link does not use it up."""
    from muster.web.pages.render import page

    return page(request, "enter.html", code=query.code, back=query.back, problem=None)


@routes.post(ENTER)
async def let_in(web: Backend, request: Request) -> Reply:
    refuse_other_sites(request)
    fields = fields_of(request)
    if fields.get("code"):
        secret = await _by_link(web, fields["code"])
    else:
        secret = await _by_token(web, fields.get("token", "").strip())
    return entered(request, fields, secret)


def entered(request: Request, fields: dict[str, str], secret: str) -> Reply:
    """With its session, and to the page that was asked for without one."""
    led = back_to(fields, "/")
    return msgspec.structs.replace(led, headers=(*led.headers, cookie(request, secret)))


async def _by_link(web: Backend, code: str) -> str:
    """Raises NotAllowed."""
    try:
        link = msgspec.json.decode(web.owner.vault.unseal(code, PURPOSE), type=LinkClaims)
    except (StoreRefused, msgspec.DecodeError) as error:
        raise NotAllowed("this is no link of this server", _AGAIN) from error
    secret = session_secret(link.nonce, link.token)
    if link.until_ms < web.clock.wall_ms():
        raise NotAllowed("this link is too old; nobody was let in", _AGAIN)
    if link.nonce in _in_use or await web.reads.token(hash_of(secret)) is not None:
        raise _used()
    _in_use.add(link.nonce)
    try:
        own = web.of(link.workspace)
        await _open_session(own, await own.reads.token_of_id(link.token), secret)
    except Conflict:
        if await web.reads.token(hash_of(secret)) is None:
            raise
        raise _used() from None  # at this moment, at another server of the store
    finally:
        _in_use.discard(link.nonce)
    return secret


def _used() -> NotAllowed:
    return NotAllowed("this link was used already; nobody was let in", _AGAIN)


async def _by_token(web: Backend, given: str) -> str:
    """Raises NotAllowed."""
    found = None if given.startswith(SESSION) else await web.reads.token(hash_of(given))
    if found is None:
        raise NotAllowed("nobody is known by this token; nobody was let in", _AGAIN)
    token, _ = found
    secret = session_secret(secrets.token_urlsafe(24), token.id)
    await _open_session(web.of(token.workspace_id), token, secret)
    return secret


async def _open_session(web: Backend, token: Token | None, secret: str) -> None:
    """At most what the token may, and for as long.  Raises NotAllowed."""
    refused = "is gone" if token is None else token.refused(web.clock.wall_ms())
    role = next((one.role for one in await web.reads.members() if token and one.name == token.member), None)
    if token is None or refused or role is None:
        raise NotAllowed(
            f"the token {refused or 'is that of a member who is gone'}; nobody was let in", _AGAIN
        )
    left_s = math.inf if token.expires_at_ms is None else (token.expires_at_ms - web.clock.wall_ms()) / 1000
    await web.engine.execute(
        c.AddToken(
            name=BROWSER,
            member=token.member,
            role=token.role if role.covers(token.role) else role,
            scopes=token.scopes,
            token_hash=hash_of(secret),
            expires_s=max(1, int(min(SESSION_S, left_s))),
            actor=f"user:{token.member}",
        )
    )


@routes.post("/sign-out")
async def sign_out(web: Backend, request: Request) -> Reply:
    """The session counts for nothing from the next request on."""
    posted(request)
    session = await session_of(web, request)
    if session is not None and request.identity is not None:
        await web.engine.execute(c.RevokeToken(token_id=session.id, actor=request.identity.actor))
    return gone(request)


async def session_of(web: Backend, request: Request) -> Token | None:
    """That of the browser that asks."""
    secret = secret_of(request)
    found = await web.reads.token(hash_of(secret)) if secret.startswith(SESSION) else None
    return None if found is None else found[0]


def gone(request: Request) -> Reply:
    headers = (("location", ENTER), cookie(request, "", 0), ("cache-control", "no-store"))
    return Reply(303, b"", "text/plain", headers)
