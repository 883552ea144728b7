"""Links that let one browser in: `/api/v1/sign-in-links`."""

from __future__ import annotations

import secrets
from urllib.parse import quote

import msgspec
from msgspec import Struct

from muster.model.errors import Forbidden
from muster.web.backend import Backend
from muster.web.http import Reply, Request, json_reply
from muster.web.identity import hash_of
from muster.web.open_paths import ENTER
from muster.web.routes import Routes

routes = Routes()

LINK_S = 600
PURPOSE = "a link that lets a browser in"


class SignInLink(Struct, frozen=True, rename="camel"):
    path: str
    """To be opened once, on this server, within the next minutes."""
    expires_at_ms: int


class LinkClaims(Struct, frozen=True):
    """What the code of a link says: any server of a store can unseal it, and nobody else can make one."""

    nonce: str
    token: int
    workspace: int
    until_ms: int


@routes.post("/api/v1/sign-in-links", status=201, answer={201: SignInLink})
async def make_link(web: Backend, request: Request) -> Reply:
    """A link to this server's pages that lets one browser in, as whoever asks for it."""
    _, _, secret = request.header(b"authorization").partition(" ")
    who = request.identity
    found = await web.reads.token(hash_of(secret.strip())) if who is not None else None
    if found is None or (who is not None and (who.attempt or who.agent)):
        raise Forbidden(
            "a link stands for a person's token, and this has come without one; nothing was changed",
            "on the server's own machine: muster ui",
        )
    until_ms = web.clock.wall_ms() + LINK_S * 1000
    link = LinkClaims(secrets.token_urlsafe(24), found[0].id, web.workspace_id, until_ms)
    code = web.owner.vault.seal(msgspec.json.encode(link).decode(), PURPOSE)
    return json_reply(SignInLink(f"{ENTER}?code={quote(code, safe='')}", until_ms), 201)
