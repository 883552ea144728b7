"""Agents: who there is, and how those do their work that serve themselves: `/api/v1/agents`."""

from __future__ import annotations

import secrets
import string
from typing import Annotated, Any

import msgspec
from msgspec import Meta, field
from msgspec.structs import replace

from muster.engine.registered import agent_health, agent_tasks, registered_agent, registered_agents
from muster.model import commands as c
from muster.model.agents import HEARTBEAT_S, NAME_RULE, SELF_PREFIX, AgentBeat, Condition, can_be_called
from muster.model.answers import (
    AgentHeard,
    AgentMoved,
    AgentPut,
    Answer,
    Claimed,
    ClaimedJob,
    Done,
    SealedSecrets,
)
from muster.model.errors import BadInput, StoreRefused
from muster.model.input_secrets import cannot_open, how_to_open, whole
from muster.model.kinds import NAME_CHARS_MAX
from muster.model.people import AGENT
from muster.model.states import AgentStatus, ErrorKind
from muster.model.views import AgentHealth, RegisteredAgent, TaskView
from muster.ports.runtime import Beat
from muster.web.access import PREFIX, SECRET_BYTES
from muster.web.backend import Backend
from muster.web.blackouts import opened_inputs
from muster.web.http import ActorBody, Body, Query, Reply, Request, WaitSeconds, json_reply
from muster.web.identity import asker, hash_of
from muster.web.routes import Routes
from muster.web.task_words import statuses_of
from muster.web.worker_protocol import claimed_within

routes = Routes()

_AGENTS = "/api/v1/agents"
_AGENT = f"{_AGENTS}/{{agent}}"
_OTHER_WORDS = {"working": AgentStatus.BUSY}
_NAME_CHARS = string.ascii_lowercase + string.digits


class AgentsQuery(Query, frozen=True, kw_only=True):
    status: tuple[str, ...] = ()
    coordinator_enabled: bool | None = None


class KnownAgentsQuery(Query, frozen=True, kw_only=True):
    plan: str | None = None
    """Whom tasks of this plan name its file may go on naming, also where nobody else knows them."""
    source: str | None = None
    """The file of the plan that is meant, where it has one."""


class AgentBody(ActorBody, frozen=True, kw_only=True):
    name: Annotated[str, Meta(max_length=255)] = ""
    """What people call it."""
    model: Annotated[str, Meta(max_length=255)] = ""
    capabilities: tuple[c.Name, ...] = ()
    """Tasks may ask for these."""
    profiles: tuple[c.Name, ...] = ()
    """Kinds of task that it is good at."""
    max_concurrent_tasks: Annotated[int, Meta(ge=1, le=1000)] = 1
    heartbeat_interval_s: c.Seconds | None = None
    """How often it is heard: 30 where nothing is said."""
    heartbeat_interval_seconds: c.Seconds | None = None
    """The same."""
    stale_threshold_s: c.Seconds | None = None
    """Silent for longer it is offline, and others do its tasks.  Where nothing is said: three heartbeats, 15 s
    at least and 366 days at most."""
    stale_threshold_seconds: c.Seconds | None = None
    """The same."""
    coordinator_enabled: bool = True
    """False: it takes only tasks that name it."""
    metadata: dict[str, Any] = field(default_factory=dict)


class AgentAnswer(RegisteredAgent, frozen=True, kw_only=True):
    token: str | None
    """Proves that it is the agent who asks: told once, to who registers it.  One that it had counts no more."""


class AgentPatchBody(ActorBody, frozen=True, kw_only=True):
    status: AgentStatus
    reason: c.Text = ""


class TerminateBody(ActorBody, frozen=True, kw_only=True):
    reason: c.Text = ""
    graceful: bool = True
    """It finishes what it holds; else that goes back at once."""


class SelfBody(Body, frozen=True, kw_only=True):
    actor: Annotated[str, Meta(max_length=NAME_CHARS_MAX)] = ""
    """The agent itself need not say it, its token does."""


class BeatBody(SelfBody, frozen=True, kw_only=True):
    status: Condition = Condition.HEALTHY
    current_task_id: c.Id | None = None
    """The task that it goes on with.  What it holds and does not name is given to others in the end."""
    epoch: c.Id | None = None
    """Of its attempt at that task; None: the newest one."""
    progress_percent: c.Percent | None = None
    current_step: c.Step = ""
    memory_mb: c.Load | None = None
    cpu_percent: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    """Of one core."""
    metadata: dict[str, Any] = field(default_factory=dict)


class AgentClaimBody(SelfBody, frozen=True, kw_only=True):
    slots: Annotated[int, Meta(ge=1, le=1000)] = 1
    """So many tasks at most."""
    request_id: c.Name | None = None
    """Repeating a claim with the same one gives the same tasks: a lost answer strands nothing."""
    wait_s: WaitSeconds = 0
    """How long it is held while there is nothing for it."""


class AgentTasksQuery(Query, frozen=True, kw_only=True):
    status: tuple[str, ...] = ()


class BeatsQuery(Query, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100


@routes.get(_AGENTS)
async def agents(web: Backend, query: AgentsQuery) -> list[RegisteredAgent]:
    """All that were registered, by workers from their settings or by programs that serve themselves."""
    wanted = {_status(word) for word in query.status}
    found = await registered_agents(web.reads, web.queries)
    return [
        one
        for one in found
        if (not wanted or one.status in wanted)
        and query.coordinator_enabled in {None, one.coordinator_enabled}
    ]


@routes.get("/api/v1/known-agents")
async def known(web: Backend, query: KnownAgentsQuery) -> list[str]:
    """Whom `agent=` of a task may name: agents of the settings, those that workers offer, also workers of other
    hosts that are away, and programs that have registered."""
    return sorted(await web.queries.known_agents(query.plan, query.source))


def _status(word: str) -> AgentStatus:
    """Raises BadInput."""
    known = _OTHER_WORDS | {str(status): status for status in AgentStatus}
    if word.lower() not in known:
        raise BadInput(f"{word[:40]} is no status of an agent", f"one of {', '.join(known)}")
    return known[word.lower()]


@routes.get(_AGENT)
async def agent(web: Backend, agent: str) -> RegisteredAgent:
    return await registered_agent(web.reads, web.queries, agent)


@routes.put(_AGENT, answer={201: AgentAnswer, 200: AgentAnswer})
async def put_agent(web: Backend, agent: str, body: AgentBody) -> Reply:
    """A program registers an agent that it serves itself, or changes what it has said of it.

    The token in the answer is the agent's own, for its heartbeats, its claims and its word on its tasks.
    """
    heartbeat_s = _either(body.heartbeat_interval_s, body.heartbeat_interval_seconds, "heartbeatInterval")
    itself = body.actor == f"{AGENT}{agent}"
    secret = None if itself else PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    command = c.PutAgent(
        agent=_named(agent),
        actor=body.actor,
        label=body.name,
        model=body.model,
        capabilities=body.capabilities,
        profiles=body.profiles,
        slots=body.max_concurrent_tasks,
        heartbeat_s=heartbeat_s or HEARTBEAT_S,
        stale_s=_either(body.stale_threshold_s, body.stale_threshold_seconds, "staleThreshold"),
        coordinator_enabled=body.coordinator_enabled,
        metadata=body.metadata,
        worker_id=SELF_PREFIX + "".join(secrets.choice(_NAME_CHARS) for _ in range(8)),
        token_hash=None if secret is None else hash_of(secret),
    )
    put = await web.engine.execute(command)
    assert isinstance(put, AgentPut)
    view = await registered_agent(web.reads, web.queries, agent)
    answer = AgentAnswer(**msgspec.structs.asdict(view), token=secret)
    return json_reply(answer, 201 if put.added else 200)


def _named(agent: str) -> str:
    """Raises BadInput."""
    if not can_be_called(agent):
        raise BadInput(f"{NAME_RULE}; nothing was changed")
    return agent


def _either(ours: int | None, theirs: int | None, name: str) -> int | None:
    """Raises BadInput where it is said twice."""
    if ours is not None and theirs is not None and ours != theirs:
        raise BadInput(f"{name}S and {name}Seconds differ; nothing was changed", "keep one of them")
    return theirs if ours is None else ours


@routes.patch(_AGENT, answer=AgentMoved)
async def move_agent(web: Backend, agent: str, body: AgentPatchBody) -> Answer:
    """`draining`: it takes nothing more and finishes what it holds; `idle`: it takes tasks again."""
    return await web.engine.execute(
        c.MoveAgent(agent=agent, actor=body.actor, to=body.status, reason=body.reason)
    )


@routes.post(f"{_AGENT}/terminate", answer=AgentMoved)
async def terminate(web: Backend, agent: str, body: TerminateBody) -> Answer:
    """Ends an agent that serves itself, once it has finished what it holds or at once."""
    to = AgentStatus.DRAINING if body.graceful else AgentStatus.OFFLINE
    return await web.engine.execute(c.MoveAgent(agent=agent, actor=body.actor, to=to, reason=body.reason))


@routes.delete(_AGENT, answer=Done)
async def remove_agent(web: Backend, request: Request, agent: str) -> Answer:
    """Forgets an agent that is offline, with what was heard of it."""
    who = request.identity.actor if request.identity else await asker(web, request) or "the owner"
    return await web.engine.execute(c.RemoveAgent(agent=agent, actor=who))


@routes.get(f"{_AGENT}/health")
async def health(web: Backend, agent: str) -> AgentHealth:
    return await agent_health(web.reads, web.queries, agent)


@routes.get(f"{_AGENT}/tasks")
async def tasks(web: Backend, agent: str, query: AgentTasksQuery) -> list[TaskView]:
    """Those whose newest attempt is, or was, the agent's."""
    return await agent_tasks(web.reads, web.queries, agent, statuses_of(query.status))


@routes.get(f"{_AGENT}/heartbeats")
async def heartbeats(web: Backend, agent: str, query: BeatsQuery) -> list[AgentBeat]:
    """What it has said of itself in the last hour, the newest first."""
    await registered_agent(web.reads, web.queries, agent)
    return await web.reads.beats(agent, query.limit)


@routes.post(f"{_AGENT}/heartbeat", answer=AgentHeard)
async def heartbeat(web: Backend, agent: str, body: BeatBody) -> Answer:
    """It is there, and goes on with the task that it names."""
    heard = await web.engine.execute(
        c.BeatAgent(
            agent=agent,
            health=body.status,
            task_id=body.current_task_id,
            epoch=body.epoch,
            percent=body.progress_percent,
            step=body.current_step,
            memory_mb=body.memory_mb,
            cpu_percent=body.cpu_percent,
            metadata=body.metadata,
        )
    )
    if web.owner.runtime.state == "connected":
        held = () if body.current_task_id is None else (body.current_task_id,)
        web.owner.runtime.beat(Beat(web.workspace_id, await _worker_of(web, agent), held))
    return heard


async def _worker_of(web: Backend, agent: str) -> str:
    """What stands for it as a worker."""
    (worker_id,) = [one.worker_id for one in await web.reads.agents() if one.name == agent]
    return worker_id


@routes.post(f"{_AGENT}/claim")
async def claim(web: Backend, request: Request, agent: str, body: AgentClaimBody) -> Claimed:
    """Gives it tasks that it can take, begun already.  `drain`: it is to end."""
    heard = await web.engine.execute(c.BeatAgent(agent=agent))
    assert isinstance(heard, AgentHeard)
    if heard.drain:
        return Claimed(jobs=(), drain=True)
    command = c.Claim(
        worker_id=await _worker_of(web, agent),
        request_id=body.request_id or secrets.token_hex(16),
        slots=body.slots,
        start=True,
    )
    claimed = await claimed_within(web, request, command, body.wait_s)
    if await asker(web, request) != f"{AGENT}{agent}":
        return claimed  # its secrets are for the agent alone
    jobs = [await _whole(web, job) if job.has_secrets else job for job in claimed.jobs]
    return replace(claimed, jobs=tuple(job for job in jobs if job is not None))


async def _whole(web: Backend, job: ClaimedJob) -> ClaimedJob | None:
    """With the secrets of its input context; None where nobody can open them: then it has failed."""
    named: dict[str, Any] = {"task_id": job.task_id, "epoch": job.epoch, "proof": job.proof}
    found = await web.engine.execute(c.AskSecrets(**named, names=(), inputs=True))
    assert isinstance(found, SealedSecrets)
    try:
        secrets = opened_inputs(web, job.task_id, found.inputs)
    except StoreRefused:
        why = f"{cannot_open(job.task_id)}; {how_to_open(job.task_id)}"
        await web.engine.execute(c.Fail(**named, kind=ErrorKind.INVALID, message=why))
        return None
    return replace(job, input_context=whole(job.input_context, secrets))
