"""Who speaks for which worker: what a caller may do to an attempt follows from that, and from nothing else.

A worker that registers over the network is spoken for by the key of its host's folder, or, where it brings none,
by the member whose token it has.  They get it a token of its own, which all its other words bring: that speaks
for this worker, its agents and what it holds.  For all others, agents that serve themselves, and people who hold
a task nobody speaks here.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from muster.model import commands as c
from muster.model.access import Vouched
from muster.model.answers import WorkerToken
from muster.model.errors import Forbidden, NotAllowed, StaleEpoch
from muster.model.far_git import GitSend
from muster.web.backend import Backend
from muster.web.http import Request
from muster.web.identity import hash_of
from muster.web.worker_tokens import TOKEN_S, worker_token

HEADER = b"muster-worker"
WORKERS = "/worker/"


def speaker(request: Request) -> str:
    """Who this caller is among workers; empty: who runs the store, and speaks for all."""
    who = request.identity
    if who is None:
        return ""
    if who.worker is not None:
        return who.worker.spoken_by
    key = request.header(HEADER)
    return f"key {hash_of(key)}" if key else who.actor


def own_token(web: Backend, request: Request, worker_id: str, agents: Collection[str]) -> WorkerToken | None:
    """For a worker that is this caller's; None: who runs the store needs none.  Raises as `worker_token`."""
    if request.identity is None:
        return None
    vouched = Vouched(worker_id, speaker(request), frozenset(agents))
    _, _, secret = request.header(b"authorization").partition(" ")
    token = worker_token(
        web.owner.vault, web.workspace_id, hash_of(secret.strip()), vouched, web.clock.wall_ms()
    )
    return WorkerToken(token=token, token_s=TOKEN_S)


async def refuse_other_workers(web: Backend, request: Request, body: Any) -> None:
    """Raises Forbidden for the word of a worker, or on an attempt, that is another one's, and NotAllowed where
    its token is older than its agents."""
    who = request.identity
    if who is None:
        return
    worker_id = getattr(body, "worker_id", "")
    if who.worker is None:
        row = await web.reads.worker(worker_id)
        if row is not None and row.spoken_by != speaker(request):
            raise _others(f"{worker_id} is not yours")
        return
    if worker_id and worker_id != who.worker.worker_id:
        raise _others(f"{worker_id} is not yours")
    if isinstance(body, c.Claim):
        await _refuse_new_agents(web, who.worker)
    elif isinstance(body, c.AttemptCommand):
        await refuse_others_attempt(web, who.worker, body.task_id, body.epoch, left=_is_left(body))
        if isinstance(body, c.Finish) and body.then is not None:
            await refuse_other_workers(web, request, body.then)


async def refuse_others_attempt(
    web: Backend, who: Vouched, task_id: int, epoch: int, *, left: bool = False
) -> None:
    """Raises Forbidden.  `left`: it is enough to speak for who has it, as workers do that are started anew in the
    folder of one that was killed."""
    attempt = await web.reads.attempt(task_id, epoch)
    if attempt is None:
        return  # the answer is as to everybody: there is none
    told = f"attempt {epoch} of task {task_id} is held by {attempt.worker_id}"
    if attempt.worker_id == who.worker_id:
        if attempt.agent not in who.agents:
            raise _others(f"{told} for agent {attempt.agent}, which is none of this token's")
        return
    row = await web.reads.worker(attempt.worker_id) if left else None
    if row is None or row.spoken_by != who.spoken_by:
        raise _others(told)


async def refuse_without_task(web: Backend, request: Request, task_id: int) -> None:
    """Raises Forbidden for a worker that has never had it, StaleEpoch for one that has it no longer."""
    who = request.identity.worker if request.identity is not None else None
    if who is None:
        return
    attempts = {attempt.epoch: attempt.worker for attempt in await web.reads.attempts(task_id)}
    if who.worker_id not in attempts.values():
        raise _others(f"task {task_id} was never given to {who.worker_id}")
    if attempts[newest := max(attempts)] != who.worker_id:
        raise StaleEpoch(f"attempt {newest} has task {task_id}", "stop this attempt's process")


def _is_left(body: c.AttemptCommand) -> bool:
    """Commits of an attempt that are only kept: no branch is to move."""
    return isinstance(body, GitSend) and not body.branch and body.merged is None


async def _refuse_new_agents(web: Backend, who: Vouched) -> None:
    row = await web.reads.worker(who.worker_id)
    if row is not None and not who.agents.issuperset(row.agents):
        raise NotAllowed(
            f"the token of {who.worker_id} is older than its agents; nothing was changed",
            "POST /worker/v1/token gives another one",
        )


def _others(what: str) -> Forbidden:
    return Forbidden(
        f"{what}; nothing was changed",
        "a worker speaks for itself, by its own token: POST /worker/v1/token, with the key of its folder",
    )
