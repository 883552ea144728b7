"""What stands before the routes on the network: who asks, from where, and how often."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.access import Caller, Member, Right, Token, rights_of
from muster.model.errors import BadInput, MusterError, NotAllowed, StoreFault, TooMany, Unavailable
from muster.model.jwt import looks_like
from muster.model.rows import DEFAULT_WORKSPACE
from muster.web.backend import Backend
from muster.web.http import Reply, Request, Stream, error_reply
from muster.web.identity import agent_over_network, attempt_over_network, hash_of
from muster.web.open_paths import is_open, is_page
from muster.web.refusals import as_page, wants_page
from muster.web.rights import refuse
from muster.web.server import Answers
from muster.web.visits import SESSION, parent_of, secret_of
from muster.web.worker_tokens import WorkerClaims, signed_claims, valid_claims

log = logging.getLogger(__name__)

REFUSAL_S = 60.0
"""At most one line about the refusals of one caller in so long."""
WORD_CHARS = 200
CALLERS_MAX = 10_000
"""Whose pace is remembered; of those above it the ones that have been silent longest are forgotten."""
USE_NOTED_MS = 60_000
"""When a token was used last is known this well."""
LOOK_S = 2.0
"""How often it is looked whether the caller of a stream may still have it."""
_ONCE = (
    *(b"authorization", b"host", b"origin", b"muster-workspace", b"muster-attempt", b"if-match"),
    *(b"idempotency-key", b"last-event-id", b"muster-worker"),
)
"""Headers that say something once or not at all."""
WORKSPACE = b"muster-workspace"
HOW = "muster login URL; a token is made on the server's machine: muster token create NAME --member MEMBER"
_HOW_TO_ASK = ("www-authenticate", "Bearer")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class Exposure(Struct, frozen=True, kw_only=True):
    """What of the owner is shown to the network."""

    login: bool = True
    """False: whoever reaches it is the user who runs it; only where none but this machine's users can."""
    hosts: frozenset[str] = LOOPBACK_NAMES
    """What it may be called by, without login."""
    rate: int = 100
    """Requests a second of one caller; twice as many at once.  0: any number."""
    trusted_hops: int = 0
    """Proxies before it that say whom they speak for."""


async def identify(web: Backend, exposure: Exposure, request: Request) -> Caller | None:
    """Who asks over the network; None without login: the user who runs this.  Raises NotAllowed.

    The only place that decides it.
    """
    if not exposure.login:
        return None
    given = request.header(b"authorization")
    scheme, secret = _scheme_and_secret(given)
    session = secret_of(request) if not given and is_page(request.path) else ""
    if session.startswith(SESSION):
        scheme, secret = "bearer", session
    elif not given or secret.startswith(SESSION):
        raise NotAllowed("this needs a token; nothing was changed", HOW)
    bearer = scheme == "bearer"
    if bearer and looks_like(secret):
        claims = valid_claims(web.owner.vault, secret, web.clock.wall_ms())
        return await _member(web, await web.reads.token(claims.tok), claims)
    found = await web.reads.token(hash_of(secret)) if bearer else None
    if found is None and (attempt := await attempt_over_network(web, request)) is not None:
        return attempt
    if found is None and (agent := await agent_over_network(web, secret)) is not None:
        return agent
    return await _member(web, found, session=session)


async def _member(
    web: Backend,
    found: tuple[Token, Member | None] | None,
    claims: WorkerClaims | None = None,
    *,
    session: str = "",
) -> Caller:
    """By their token, or the session of a browser that it has begun; with `claims` a worker that they stand
    behind, for as long as they may be one.

    Raises NotAllowed.
    """
    if found is None:
        raise NotAllowed("nobody is known by this token; nothing was changed", HOW)
    token, member = found
    wall_ms = web.clock.wall_ms()
    refused = token.refused(wall_ms) or ("" if member else "is that of a member who is gone")
    if session:
        parent = await web.of(token.workspace_id).reads.token_of_id(parent_of(session))
        refused = refused or (parent.refused(wall_ms) if parent else "is of one that is gone")
    if refused or member is None:
        raise NotAllowed(f"token {token.name} {refused}; nothing was changed", HOW)
    await _note_use(web, token, wall_ms)
    role = token.role if member.role.covers(token.role) else member.role
    rights = rights_of(role, token.scopes, guest=token.workspace_id != DEFAULT_WORKSPACE)
    actor, ends_ms = f"user:{member.name}", token.expires_at_ms
    if claims is None:
        limits = token.scopes, member.role
        return Caller(token.workspace_id, actor, role, rights, ends_ms, *limits)
    if claims.ws != token.workspace_id:
        raise NotAllowed(f"the token of {claims.sub} is of another workspace; nothing was changed", HOW)
    rights &= {Right.SERVE}
    return Caller(token.workspace_id, actor, role, rights, ends_ms, worker=claims.vouched)


def _scheme_and_secret(given: str) -> tuple[str, str]:
    scheme, _, secret = given.partition(" ")
    return scheme.lower(), secret.strip()


async def _note_use(web: Backend, token: Token, wall_ms: int) -> None:
    if wall_ms - (token.last_used_at_ms or 0) > USE_NOTED_MS:
        with contextlib.suppress(StoreFault, Unavailable):  # what is only read goes on
            await web.of(token.workspace_id).engine.execute(c.NoteTokenUse(token_id=token.id))


class Refusals:
    """Logged: who may not, and what.  Once in so long for each caller, so that nobody can fill a disk with it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._told: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """By caller, when a line was written, and how many have been left out since."""

    def note(self, caller: str, request: Request, reply: Reply) -> None:
        now_s = self._clock()
        told_s, left_out = self._told.get(caller, (-math.inf, 0))
        if now_s - told_s < REFUSAL_S:
            self._told[caller] = (told_s, left_out + 1)
            return
        self._told[caller] = (now_s, 0)
        self._told.move_to_end(caller)
        if len(self._told) > CALLERS_MAX:
            self._told.popitem(last=False)
        words = (request.method, request.path, caller, reply.detail)
        more = f" ({left_out} more since the last line about it)" if left_out else ""
        log.info("%s %s by %s was refused: %s%s", *(ascii(word[:WORD_CHARS])[1:-1] for word in words), more)


class NetworkGate:
    def __init__(
        self,
        app: Answers,
        web: Backend,
        exposure: Exposure,
        clock: Callable[[], float] = time.monotonic,
        elsewhere: Callable[[str], int] = lambda _: 0,
    ) -> None:
        """`elsewhere` is as ports.runtime.Rates.asked."""
        self._app = app
        self._web = web
        self._exposure = exposure
        self._clock = clock
        self._elsewhere = elsewhere
        self._pace: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By caller, how many requests it may make at once, and when that was so."""
        self._known: OrderedDict[str, None] = OrderedDict()
        """Hashes of tokens that have let somebody in: each of them has a pace of its own."""
        self._refusals = Refusals(clock)

    async def answer(self, request: Request) -> Reply:
        reply = await self._answered(request)
        if reply.status in (401, 403):
            who = request.identity
            at = address_of(request, self._exposure.trusted_hops)
            self._refusals.note(who.actor if who is not None else at, request, reply)
        return as_page(request, reply) if reply.status >= 400 and wants_page(request) else reply

    async def _answered(self, request: Request) -> Reply:
        try:
            _refuse_doubles(request)
            self._refuse_strange_names(request)
            self._refuse_haste(request)
            if is_open(request.method, request.path):
                # Whoever is not known is not told which workspaces there are.
                request.headers = [one for one in request.headers if one[0].lower() != WORKSPACE]
            else:
                request.identity = await identify(self._web, self._exposure, request)
                self._know(request)
        except NotAllowed as error:
            self._known.pop(self._hash_given(request), None)
            if not self._exposure.login:
                return error_reply(error, 403)
            return replace(error_reply(error), headers=(_HOW_TO_ASK,))
        except BadInput as error:
            return error_reply(error, 400)
        except MusterError as error:
            return error_reply(error)
        request.again = functools.partial(self._refuse_gone, request)
        reply = await self._app.answer(request)
        if reply.status == 401:
            return replace(reply, headers=(*reply.headers, _HOW_TO_ASK))
        if isinstance(reply, Stream) and reply.parts is not None and request.identity is not None:
            return replace(reply, parts=self._while_let_in(request, reply.parts))
        return reply

    async def _while_let_in(self, request: Request, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Ends a stream whose caller would not get it any more: it may go on for months."""
        looked_s = self._clock()
        async with contextlib.aclosing(cast(AsyncGenerator[bytes, None], parts)):
            async for part in parts:
                if self._clock() - looked_s >= LOOK_S:
                    looked_s = self._clock()
                    with contextlib.suppress(StoreFault, Unavailable):  # what is only read goes on
                        if not await self._may_still(request):
                            return
                yield part

    async def _may_still(self, request: Request) -> bool:
        try:
            await self._refuse_gone(request)
        except NotAllowed:
            return False
        return True

    async def _refuse_gone(self, request: Request) -> None:
        """Raises NotAllowed where its caller would not be let in any more."""
        now = await identify(self._web, self._exposure, request)
        if now is not None:
            refuse(now, request.method, request.parts)

    def _refuse_strange_names(self, request: Request) -> None:
        """Without login a page of any site could ask us through its reader's browser: by a name of its own that
        it has pointed here, or openly from its own origin."""
        if self._exposure.login:
            return
        host = request.header(b"host")
        if _name(host) not in self._exposure.hosts:
            raise NotAllowed(
                f"this is not {host[:100] or 'told its name'}", "hosts of [serve] names what it is"
            )
        origin = request.header(b"origin")
        if origin and origin.partition("://")[2] != host:
            raise NotAllowed(f"pages of {origin[:100]} may not ask here; nothing was changed")

    def _refuse_haste(self, request: Request) -> None:
        rate = self._exposure.rate
        if not rate:
            return
        caller = self._paced_as(request)
        now_s, most = self._clock(), 2.0 * rate
        left, at_s = self._pace.pop(caller, (most, now_s))
        left = max(0.0, min(most, left + (now_s - at_s) * rate) - self._elsewhere(caller))
        # What was refused costs nothing: who asks too often is still answered at the rate.
        self._pace[caller] = (left - 1 if left >= 1 else left, now_s)
        if len(self._pace) > CALLERS_MAX:
            self._pace.popitem(last=False)
        if left < 1:
            error = TooMany(f"more than {rate} requests a second; nothing was changed", "ask less often")
            error.retry_after_s = max(1, math.ceil((1 - left) / rate))
            raise error

    def _paced_as(self, request: Request) -> str:
        """Workers have the pace of the member's token that stands behind them: a new one of their own gives them
        no more of it.  Nor does a token that nobody is known by: its caller is its address."""
        given = self._hash_given(request)
        return given if given in self._known else address_of(request, self._exposure.trusted_hops)

    def _hash_given(self, request: Request) -> str:
        """Of the token, or of the one that stands behind it; empty: there is none."""
        _, secret = _scheme_and_secret(request.header(b"authorization"))
        secret = secret or secret_of(request)
        if not secret or not self._exposure.login:
            return ""
        claims = signed_claims(self._web.owner.vault, secret) if looks_like(secret) else None
        return claims.tok if claims is not None else hash_of(secret)

    def _know(self, request: Request) -> None:
        if (given := self._hash_given(request)) and self._exposure.rate:
            if given not in self._known:  # this very request was its first
                self._pace.setdefault(given, (2.0 * self._exposure.rate - 1, self._clock()))
            self._known[given] = None
            self._known.move_to_end(given)
            if len(self._known) > CALLERS_MAX:
                self._known.popitem(last=False)


def _refuse_doubles(request: Request) -> None:
    """Raises BadInput: what stands before us may have gone by the other one."""
    names = [name.lower() for name, _ in request.headers]
    for name in _ONCE:
        if names.count(name) > 1:
            raise BadInput(f"the request says {name.decode()} more than once; nothing was changed")


def address_of(request: Request, trusted_hops: int) -> str:
    """Of whoever has asked the outermost proxy that is trusted: what stands before that anybody can say."""
    every = [value.decode("latin-1") for name, value in request.headers if name.lower() == b"x-forwarded-for"]
    said = ",".join(every) if trusted_hops else ""
    named = [part.strip() for part in said.split(",") if part.strip()]
    return named[-trusted_hops] if len(named) >= trusted_hops > 0 else request.address


def _name(host: str) -> str:
    """Without its port."""
    if host.startswith("["):
        return host.partition("]")[0].lower() + "]"
    return host.partition(":")[0].lower()
