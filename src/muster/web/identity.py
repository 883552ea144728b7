"""Who asks: what an attempt's own processes do is its word, and nobody else's."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import os
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.model.access import Caller, Right, Role
from muster.model.errors import BadInput, Forbidden, NotAllowed, UnreadEncoding
from muster.model.people import AGENT, ATTEMPT
from muster.model.task import Attempt
from muster.web.backend import Backend
from muster.web.blackouts import blackout_of
from muster.web.http import Peer, Request, decode_body, too_large

HEADER = b"muster-attempt"
"""Header: `TASK/EPOCH`, with its token as the bearer's."""
_REPORTS = "/attempt/v1/"
_OF_WORKER = f"{ATTEMPT}of "
"""The actor of what a worker's program has started, before the worker's name: some attempt's, or none's."""
_UNKNOWN = f"{ATTEMPT}unknown"
REF_CHARS_MAX = 150
STEERING = "/api/v1/"
"""What is posted below this steers tasks, plans or the crew, so it is for people."""
FOR_ATTEMPTS = frozenset(
    {
        *("/api/v1/agent-tasks", "/api/v1/plans", "/api/v1/plans/diff", "/api/v1/plans/namesakes"),
        "/api/v1/plans/{plan}/tick",
        # What they say of their own task.
        *("/api/v1/agent-tasks/{task_id:id}/complete", "/api/v1/agent-tasks/{task_id:id}/progress"),
        # Only who has taken a task by hand renews that, or gives it back.
        *("/api/v1/agent-tasks/{task_id:id}/claim/renew", "/api/v1/agent-tasks/{task_id:id}/claim/release"),
    }
)
"""But these: an attempt may add tasks."""


def holds(request: Request, attempt: Attempt | None) -> bool:
    """Whether the request brings this attempt's token."""
    scheme, _, token = request.header(b"authorization").partition(" ")
    digest = hash_of(token)
    known = (attempt.token_hash if attempt else None) or ""
    return scheme.lower() == "bearer" and hmac.compare_digest(digest, known)


async def refuse_attempts(web: Backend, request: Request) -> None:
    """Raises Forbidden for an attempt: an agent that steered tasks could pass its own review, or end others."""
    actor = await asker(web, request)
    if actor and not (actor.startswith(AGENT) and _own(request.parts, actor.removeprefix(AGENT))):
        raise for_people(request.parts[-1], actor)


def for_people(what: str, actor: str) -> Forbidden:
    """The refusal, in words that hold for whoever it may be."""
    where = f"this comes from inside {actor}"
    shell = "a shell that no agent has started"
    if actor.startswith(_OF_WORKER):
        # Its program may be a person's, with an app: what a function of that starts carries no mark.
        worker = actor.removeprefix(_OF_WORKER)
        where = f"this comes from a process that {worker} has started, perhaps for one of its tasks"
        shell += f", nor {worker}'s program; that itself may do it with muster.Client()"
    elif actor == _UNKNOWN:
        where = "who asks had ended before it was seen who that is"
        shell += ", and wait for the answer"
    return Forbidden(
        f"{what} is for a person, and {where}; nothing was changed",
        f"do it in {shell}; an agent asks: muster report ask QUESTION",
    )


async def asker(web: Backend, request: Request) -> str:
    """The attempt, or the agent, that asks; empty for anybody else.  Raises NotAllowed for a wrong token."""
    if request.asker is None:
        request.asker = await _find_asker(web, request)
    return request.asker


async def _find_asker(web: Backend, request: Request) -> str:
    if (who := request.identity) is not None and who.agent:
        return who.actor
    if actor := await _by_token(web, request) or await _by_process(web, request.peer):
        return actor
    _, _, secret = request.header(b"authorization").partition(" ") if request.headers else ("", "", "")
    found = await web.reads.agent_of_token(hash_of(secret)) if secret and who is None else None
    return f"{AGENT}{found[1]}" if found and found[0] == web.workspace_id else ""


def _own(parts: Sequence[str], agent: str) -> bool:
    """Whether the path is the agent's own."""
    return tuple(parts[1:5]) == ("api", "v1", "agents", agent)


def hash_of(secret: str) -> str:
    """Random enough to need no salt, and no slow hash."""
    return hashlib.sha256(secret.encode()).hexdigest()


async def agent_over_network(web: Backend, secret: str) -> Caller | None:
    """The agent whose token this is.  It reads and does what attempts may, and everything to itself."""
    found = await web.reads.agent_of_token(hash_of(secret))
    if found is None:
        return None
    workspace_id, name = found
    rights = frozenset({Right.READ, Right.WORK})
    return Caller(workspace_id, f"{AGENT}{name}", Role.MEMBER, rights, agent=name)


async def as_said_by(web: Backend, request: Request, body: Any) -> Any:
    """`body` with the attempt as its actor and without secrets, where one asks.  Raises NotAllowed."""
    has_actor = (
        "actor" in body if isinstance(body, dict) else isinstance(body, Struct) and hasattr(body, "actor")
    )
    if not has_actor:
        return body
    actor = await asker(web, request)
    if not actor:
        return body
    body = (await blackout_of(web, await _tasks_of(web, request, actor))).of(body)
    return body | {"actor": actor} if isinstance(body, dict) else replace(body, actor=actor)


async def attempt_over_network(web: Backend, request: Request) -> Caller | None:
    """Whose token this request brings, where it is that of the attempt which it names.

    It reads what its workspace has, and does what attempts may.
    """
    said = request.header(HEADER)
    reported = request.path.removeprefix(_REPORTS) if request.path.startswith(_REPORTS) else ""
    task_id, epoch = (*(said or reported).split("/"), "")[:2]
    if not all(part.isascii() and part.isdecimal() and len(part) < 17 for part in (task_id, epoch)):
        return None
    workspace_id = await web.reads.workspace_of(int(task_id))
    if workspace_id is None:
        return None
    own = web.of(workspace_id)
    attempt = await own.reads.attempt(int(task_id), int(epoch))
    if attempt is None or not holds(request, attempt):
        return None
    # Once it is over it may hear that, and who has taken a task by hand may take it up again.
    again = attempt.by_hand and request.path.endswith("/claim/renew")
    if not attempt.open and not reported and not again:
        return None
    rights = frozenset({Right.READ, Right.WORK})
    return Caller(workspace_id, await _named(own, attempt), Role.MEMBER, rights, attempt=(task_id, epoch))


@functools.cache
def local_actor() -> str:
    """Whose word it is where nobody has to log in: that of the user who runs this."""
    import pwd

    try:
        return f"user:{pwd.getpwuid(os.getuid()).pw_name}"
    except KeyError:
        return f"user:{os.getuid()}"


def decoded(request: Request, decoder: msgspec.json.Decoder[Any]) -> Any:
    """The body with its actor: over the network whoever asks, else whom it names, or the user who runs this.

    Raises BadInput.
    """
    if request.body is None:
        raise too_large(request.path)
    try:
        if request.identity is None:
            return _with_local_actor(request.body, decoder)
        return decode_body(said_by(request.identity, request.body, decoder.type), decoder)
    except BadInput:
        encoding = request.header(b"content-encoding")
        if encoding.lower() in {"", "identity"}:
            raise
        raise UnreadEncoding(
            f"no body is read in the encoding {encoding[:40]!r}; nothing was changed",
            "send it as it is, without Content-Encoding",
        ) from None


def _with_local_actor(data: bytes | bytearray, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Raises BadInput."""
    try:
        body = decode_body(data, decoder)
    except BadInput as error:
        if error.pointer == "/actor":
            with contextlib.suppress(msgspec.DecodeError):  # it is refused as it came
                named = {"actor": local_actor(), **msgspec.json.decode(data or b"{}")}
                return decode_body(msgspec.json.encode(named), decoder)
        raise
    if isinstance(body, dict):
        body.setdefault("actor", local_actor())
    return body


def said_by(who: Caller, data: bytes | bytearray, shape: Any) -> bytes | bytearray:
    """The body with whoever is asking as its actor, whatever it says, where its shape has one.

    Raises Forbidden where it names a file: that would be one of the server's.
    """
    try:
        body = msgspec.json.decode(data or b"{}")
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return data  # it is refused with all others of its kind
    if not isinstance(body, dict):
        return data
    if body.get("source"):
        raise Forbidden(
            "`source` names a file of the server's; nothing was changed", "send the tasks, with `source` null"
        )
    has_actor = "actor" in getattr(shape, "__struct_fields__", ("actor",))
    return msgspec.json.encode(body | {"actor": who.actor}) if has_actor else data


async def _by_token(web: Backend, request: Request) -> str:
    named = request.header(HEADER)
    if not named:
        return ""
    task_id, _, epoch = named.partition("/")
    whole = task_id.isdecimal() and epoch.isdecimal() and len(named) <= 2 * 17
    attempt = await web.reads.attempt(int(task_id), int(epoch)) if whole else None
    if attempt is None or not holds(request, attempt):
        raise NotAllowed(
            f"this token is not that of attempt {named[:40]}; nothing was changed",
            "inside a task leave MUSTER_TOKEN, MUSTER_TASK_ID and MUSTER_EPOCH as Muster has set them",
        )
    return await _named(web, attempt)


async def _by_process(web: Backend, peer: Peer | None) -> str:
    """Of a caller without a token: it carries an attempt's mark, or what has started it does."""
    if peer is None or not peer.pid:
        return ""
    if peer.actor is None:
        peer.actor = await _look(web, peer)
    return peer.actor


async def _tasks_of(web: Backend, request: Request, actor: str) -> list[int]:
    """The tasks that whoever asks has been given, for what their input contexts hold."""
    if actor.startswith(AGENT):
        return await web.reads.sealed_of_agent(actor.removeprefix(AGENT))
    task_id = request.header(HEADER).partition("/")[0]
    if request.identity is not None and request.identity.attempt:
        task_id = request.identity.attempt[0]
    if task_id.isdecimal():  # its token was looked at already
        return [int(task_id)]
    return [request.peer.task_id] if request.peer is not None and request.peer.task_id else []


async def _look(web: Backend, peer: Peer) -> str:
    pid = peer.pid
    workers = {worker.pid: worker for worker in await web.reads.living_workers()}
    lineage = web.owner.lineage(pid)
    for process, mark in lineage:
        worker_id, _, rest = mark.partition(":")
        task_id, _, epoch = rest.partition(":")
        if task_id.isdecimal() and epoch.isdecimal():
            attempt = await web.reads.attempt(int(task_id), int(epoch))
            if attempt is not None and attempt.worker_id == worker_id:
                peer.task_id = attempt.task_id
                return await _named(web, attempt)
        # A worker's own word is that of its program; what it has started without a mark is an agent's.
        worker = workers.get(process.pid) if process.pid != pid else None
        if worker is not None and worker.pid_start == process.start:
            return f"{_OF_WORKER}{worker.id}"
    # Who has ended before it was looked at may have been anybody.
    return "" if lineage else _UNKNOWN


async def _named(web: Backend, attempt: Attempt) -> str:
    task = (await web.queries.task(attempt.task_id)).task
    return f"{ATTEMPT}{f'{task.plan}/{task.key}'[:REF_CHARS_MAX]}#{attempt.epoch}"
