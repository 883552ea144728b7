"""A worker's own token, over the network: a JWT for minutes, bound to its workspace, to it, and to its agents.

What it was started with (a member's token and the key of its folder) goes over the wire only to get one.  All
servers of a store sign with the same keys, which are derived from that of the vault: another one each hour, and
for each member's token.  What has that key, or the database, makes none without the other one.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from muster.model import jwt
from muster.model.access import Vouched
from muster.model.errors import BadInput, NotAllowed, Unavailable
from muster.ports.vault import Vault

TOKEN_S = 300
SKEW_S = 60
"""What two servers of a store take for its clock may be that far apart, as when that was set just now."""
KEY_S = 3600
"""What a key signs lasts TOKEN_S, so an old one proves nothing soon after its hour."""
AUDIENCE = "muster-worker"
_AGAIN = "POST /worker/v1/token with what the worker was started with gives another one"


class WorkerClaims(Struct, frozen=True, kw_only=True):
    """Under their names in RFC 7519, where they have some there."""

    aud: str
    sub: str
    """The worker."""
    ws: int
    tok: str
    """The hash of the member's token that stands behind it."""
    by: str
    """Who alone may speak for the worker."""
    agents: tuple[str, ...]
    iat: int
    exp: int

    @property
    def vouched(self) -> Vouched:
        return Vouched(self.sub, self.by, frozenset(self.agents))


_CLAIMS = msgspec.json.Decoder(WorkerClaims)


def worker_token(vault: Vault, workspace_id: int, token_hash: str, vouched: Vouched, now_ms: int) -> str:
    """`now_ms` by the store's clock.  Raises BadInput for more agents than it can name, and as the vault."""
    now_s = now_ms // 1000
    claims = WorkerClaims(
        aud=AUDIENCE,
        sub=vouched.worker_id,
        ws=workspace_id,
        tok=token_hash,
        by=vouched.spoken_by,
        agents=tuple(sorted(vouched.agents)),
        iat=now_s,
        exp=now_s + TOKEN_S,
    )
    hour = now_s // KEY_S
    key = vault.keys_for(_purpose(hour, token_hash), make=True)[0]
    if len(token := jwt.signed(asdict(claims), str(hour), key)) > jwt.CHARS_MAX:
        raise BadInput(
            f"the names of {len(claims.agents)} agents are too long for one worker; it has no token",
            "start several workers, each in a folder that names some of the agents",
        )
    return token


def signed_claims(vault: Vault, token: str) -> WorkerClaims | None:
    """What it says, whenever that was; None where nobody of ours has signed it."""
    try:
        kid = jwt.kid_of(token)
        # Before anything is believed: a key is found by what the token says, and has to fit.
        said = _CLAIMS.decode(jwt.unproved(token))
        if kid != str(said.iat // KEY_S) or said.aud != AUDIENCE or said.exp - said.iat > TOKEN_S:
            return None
        return _CLAIMS.decode(jwt.claims_of(token, vault.keys_for(_purpose(int(kid), said.tok))))
    except (ValueError, msgspec.DecodeError):
        return None


def valid_claims(vault: Vault, token: str, now_ms: int) -> WorkerClaims:
    """`now_ms` by the store's clock.  Raises NotAllowed, and Unavailable for one that may count in a moment."""
    claims, now_s = signed_claims(vault, token), now_ms / 1000
    if claims is None:
        raise NotAllowed("this worker's token is none of ours; nothing was changed", _AGAIN)
    if claims.exp + SKEW_S <= now_s:
        raise NotAllowed(f"the token of {claims.sub} has expired; nothing was changed", _AGAIN)
    if claims.iat - SKEW_S > now_s:
        # One of ours all the same: whoever has it is to try again, and not to end.
        raise Unavailable(
            f"the token of {claims.sub} is from a time to come; nothing was changed",
            "try again: another server of the store takes its clock for another one; muster doctor names it",
        )
    return claims


def _purpose(hour: int, token_hash: str) -> str:
    return f"tokens of workers in hour {hour} by {token_hash}"
