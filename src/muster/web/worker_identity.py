"""Who speaks for which worker: what a caller may do to an attempt follows from that, and from nothing else.

A worker that has registered over the network is spoken for by the key of its host's folder, or, where it brings
none, by the member whose token it has.  For all others, agents that serve themselves, and people who hold a task
nobody speaks here.
"""

from __future__ import annotations

from typing import Any

from muster.model import commands as c
from muster.model.errors import Forbidden
from muster.web.backend import Backend
from muster.web.http import Request
from muster.web.identity import hash_of

HEADER = b"muster-worker"
WORKERS = "/worker/"


def speaker(request: Request) -> str:
    """Who this caller is among workers; empty: who runs the store, and speaks for all."""
    if request.identity is None:
        return ""
    key = request.header(HEADER)
    return f"key {hash_of(key)}" if key else request.identity.actor


async def refuse_other_workers(web: Backend, request: Request, body: Any) -> None:
    """Raises Forbidden for the word of a worker, or on an attempt, that is another one's."""
    if not (who := speaker(request)):
        return
    if worker_id := getattr(body, "worker_id", ""):
        row = await web.reads.worker(worker_id)
        if row is not None and row.spoken_by != who:
            raise _others(f"{worker_id} is not yours")
    if not isinstance(body, c.AttemptCommand):
        return
    attempt = await web.reads.attempt(body.task_id, body.epoch)
    if attempt is not None:
        row = await web.reads.worker(attempt.worker_id)
        if row is None or row.spoken_by != who:
            raise _others(f"attempt {body.epoch} of task {body.task_id} is held by {attempt.worker_id}")
    if isinstance(body, c.Finish) and body.then is not None:
        await refuse_other_workers(web, request, body.then)


def _others(what: str) -> Forbidden:
    return Forbidden(
        f"{what}; nothing was changed",
        "a worker speaks for itself: by the key of the folder that it was started in, and the token it came with",
    )
