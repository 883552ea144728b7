"""What workers say and hear: `/worker/v1`, one POST for each command, its body the command itself."""

from __future__ import annotations

from msgspec.structs import replace

from muster.model import commands as c
from muster.model.answers import (
    Answer,
    Claimed,
    Done,
    HeartbeatAnswer,
    Moved,
    Registered,
    SealedSecrets,
    SecretsGiven,
    WorkerToken,
)
from muster.model.errors import Conflict, Forbidden, NotFound, StoreRefused
from muster.model.place import PlanPlace
from muster.model.secrets import key_lost, not_set, secret_purpose
from muster.model.states import CrewStatus
from muster.ports.crew import COMMANDS
from muster.ports.runtime import READY, Beat, orders_for
from muster.web.backend import Backend
from muster.web.blackouts import opened_inputs
from muster.web.http import Body, Query, Request, WaitSeconds
from muster.web.identity import asker
from muster.web.routes import Routes
from muster.web.worker_identity import own_token, speaker

routes = Routes()
KEY = {"Muster-Worker": "The key of its folder: who has that, and the member's token, speaks for the worker."}
SEEN = {"Muster-Seen": "`seen` of its last answer, from whichever server of the store."}

for _name, _shape in COMMANDS.items():
    if _shape not in {c.AskSecrets, c.Register, c.Claim, c.Heartbeat}:
        answer = Done if _shape is c.Deregister else Moved
        routes.command(f"/worker/v1/{_name}", _shape, answer=answer)


@routes.post("/worker/v1/register", answer=Registered, headers=KEY)
async def register(web: Backend, request: Request, body: c.Register) -> Answer:
    """Often in the place of one that was killed: what that one has begun must be there for the first claim."""
    await web.owner.free_dead()
    remote = body.remote or bool(request.address)
    own = own_token(web, request, body.worker_id, body.agents)
    answer = await web.engine.execute(replace(body, remote=remote, spoken_by=speaker(request)))
    assert isinstance(answer, Registered)
    if body.gone:
        await web.owner.free_dead()
    return replace(answer, own=own)


class TokenOfWorker(Body, frozen=True, kw_only=True):
    worker_id: c.Name


@routes.post("/worker/v1/token", headers=KEY)
async def renew_token(web: Backend, request: Request, body: TokenOfWorker) -> WorkerToken:
    """Another one for a registered worker, before its own ends: for the member's token that it began with."""
    row = await web.reads.worker(body.worker_id)
    if row is None:
        raise NotFound(f"there is no worker {body.worker_id}; it has no token", "POST /worker/v1/register")
    if row.permanent:
        raise Conflict(f"{row.id} has ended; it gets no token", "register under a new random name")
    found = own_token(web, request, row.id, row.agents)
    return found or WorkerToken(token="", token_s=0)


@routes.get("/worker/v1/tasks/{task_id:id}/place")
async def place(web: Backend, task_id: int) -> PlanPlace:
    """Of a task in its plan, as its agent is told."""
    found = await web.reads.place(task_id)
    files = [plan.source for plan in await web.reads.plan_sources() if plan.source is not None]
    return replace(found, plan_files=tuple(files))


@routes.post("/worker/v1/secrets")
async def give_secrets(web: Backend, request: Request, body: c.AskSecrets) -> SecretsGiven:
    """To who holds this lease, for the process of its agent alone, which gets no other ones by asking itself."""
    if actor := await asker(web, request):
        raise Forbidden(f"secrets are for its worker to ask for, not for {actor}; nothing was told")
    found = await web.engine.execute(body)
    assert isinstance(found, SealedSecrets)
    values, missing = {}, {name: not_set(name) for name in body.names if name not in found.sealed}
    for name, sealed in found.sealed.items():
        try:
            values[name] = web.owner.vault.unseal(sealed, secret_purpose(web.workspace_id, name))
        except StoreRefused:
            missing[name] = key_lost(name)
    given = SecretsGiven(values=values, missing=missing)
    try:
        return replace(given, inputs=opened_inputs(web, body.task_id, found.inputs))
    except StoreRefused:
        return replace(given, inputs_lost=True)


class WaitQuery(Query, frozen=True, kw_only=True):
    wait: WaitSeconds = 0


@routes.post("/worker/v1/claim")
async def claim(web: Backend, request: Request, query: WaitQuery, body: c.Claim) -> Claimed:
    """Held until a task fits, `wait` seconds at most."""
    return await claimed_within(web, request, body, query.wait)


async def claimed_within(web: Backend, request: Request, body: c.Claim, wait_s: float) -> Claimed:
    answer: Claimed | None = None

    async def look() -> bool:
        nonlocal answer
        # The first look may find an earlier claim with this request id; later ones need something ready.
        if answer is not None and not await web.reads.any_ready() and await _crew_stays(web):
            return False
        found = await web.engine.execute(body)
        assert isinstance(found, Claimed)
        answer = found
        return bool(found.jobs or found.drain or found.over)

    await web.hold(request, READY, wait_s, look)
    return answer or Claimed(jobs=())


async def _crew_stays(web: Backend) -> bool:
    return await web.reads.meta("crew") != CrewStatus.STOPPED


@routes.post("/worker/v1/heartbeat", answer=HeartbeatAnswer, headers=SEEN)
async def heartbeat(web: Backend, request: Request, query: WaitQuery, body: c.Heartbeat) -> Answer:
    """Renews at once; held while there are no orders, `wait` seconds at most, so that a cancel or a stop reaches
    the worker without delay."""
    if seen := request.header(b"muster-seen"):
        await web.owner.compare(seen)
    with web.wakeups.listen(orders_for(body.worker_id)) as listener:
        answer = await web.engine.execute(body)
        _told(web, body, answer)
        if query.wait and _quiet(answer) and not web.closing.is_set() and await listener.wait(query.wait):
            await request.let_in_again()
            answer = await web.engine.execute(body)
    return replace(answer, seen=web.owner.seen) if isinstance(answer, HeartbeatAnswer) else answer


def _told(web: Backend, body: c.Heartbeat, answer: Answer) -> None:
    if isinstance(answer, HeartbeatAnswer) and answer.known:
        held = tuple(task_id for task_id, _ in body.attempts)
        web.owner.runtime.beat(Beat(web.workspace_id, body.worker_id, held))


def _quiet(answer: Answer) -> bool:
    return (
        isinstance(answer, HeartbeatAnswer)
        and answer.known
        and not answer.drain
        and all(order.current and order.stop is None for order in answer.attempts)
    )
