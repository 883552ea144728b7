"""Who asks: what an attempt's own processes do is its word, and nobody else's."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.model.errors import NotAllowed
from muster.model.task import Attempt
from muster.web.backend import Backend
from muster.web.http import Request

ATTEMPT = b"muster-attempt"
"""Header: `TASK/EPOCH`, with its token as the bearer's."""
REF_CHARS_MAX = 150


def holds(request: Request, attempt: Attempt | None) -> bool:
    """Whether the request brings this attempt's token."""
    scheme, _, token = request.header(b"authorization").partition(" ")
    digest = hashlib.sha256(token.encode()).hexdigest()
    known = (attempt.token_hash if attempt else None) or ""
    return scheme.lower() == "bearer" and hmac.compare_digest(digest, known)


async def as_said_by(web: Backend, request: Request, body: Any) -> Any:
    """`body` with the attempt as its actor, where an attempt asks.  Raises NotAllowed for a wrong token."""
    named = request.header(ATTEMPT)
    has_actor = (
        "actor" in body if isinstance(body, dict) else isinstance(body, Struct) and hasattr(body, "actor")
    )
    if not named or not has_actor:
        return body
    task_id, _, epoch = named.partition("/")
    whole = task_id.isdecimal() and epoch.isdecimal() and len(named) <= 2 * 17
    attempt = await web.reads.attempt(int(task_id), int(epoch)) if whole else None
    if attempt is None or not holds(request, attempt):
        raise NotAllowed(
            f"this token is not that of attempt {named[:40]}; nothing was changed",
            "inside a task leave MUSTER_TOKEN, MUSTER_TASK_ID and MUSTER_EPOCH as Muster has set them",
        )
    task = (await web.queries.task(attempt.task_id)).task
    actor = f"attempt:{f'{task.plan}/{task.key}'[:REF_CHARS_MAX]}#{attempt.epoch}"
    return body | {"actor": actor} if isinstance(body, dict) else replace(body, actor=actor)
