"""What a task's own processes may say, with the token of their attempt: `/attempt/v1`."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.answers import Answer, Moved
from muster.model.artifacts import ArtifactPart, ArtifactReceived
from muster.model.errors import BadInput, CallerError, IllegalMove, NotAllowed, StaleEpoch
from muster.model.states import ErrorKind
from muster.model.task import Attempt
from muster.web.backend import Backend
from muster.web.blackouts import blackout_of
from muster.web.http import Body, Reply, Request, body_of, json_text
from muster.web.identity import holds
from muster.web.routes import Routes


class DoneBody(Body, frozen=True, kw_only=True):
    result: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"null"))
    summary: c.Text = ""
    """What is to be said of the result."""


class FailBody(Body, frozen=True, kw_only=True):
    kind: ErrorKind = ErrorKind.CRASH
    message: c.Text


async def _authorize(web: Backend, request: Request, task_id: int, epoch: int) -> Attempt:
    """Raises NotAllowed for a wrong token, StaleEpoch once the attempt is over."""
    token = request.header(b"authorization").partition(" ")[2]
    attempt = await web.reads.attempt(task_id, epoch)
    if attempt is None and "." in token:
        await _refuse_unknown(web, task_id, epoch, token.partition(".")[2])
    if attempt is None or not holds(request, attempt):
        raise NotAllowed(
            "this token is not that attempt's", "report from inside the task: MUSTER_TOKEN is set there"
        )
    if not attempt.open:
        again = f"; muster claim renew {task_id} takes it up again, if none does" if attempt.by_hand else ""
        raise StaleEpoch(
            f"attempt {epoch} is over ({attempt.status}); nothing was changed",
            f"stop: another attempt may hold the task{again}",
        )
    return attempt


async def _refuse_unknown(web: Backend, task_id: int, epoch: int, proof: str) -> None:
    """Raises StoreRewound where the token's proof tells that the store has granted what it does not know (S2)."""
    with contextlib.suppress(CallerError, msgspec.ValidationError):
        unknown = msgspec.convert({"taskId": task_id, "epoch": epoch, "proof": proof}, c.Renew)
        await web.engine.execute(unknown)


_ATTEMPT = "/attempt/v1/{task_id:id}/{epoch:id}"

routes = Routes(guard=_authorize)


def _report(verb: str, shape: type[c.AttemptCommand], *names: str) -> None:
    """These fields of the command are the body; who holds a task by hand has no worker: each is a heartbeat."""

    async def report(web: Backend, who: Attempt, body: Any) -> Answer:
        if who.by_hand:
            with contextlib.suppress(IllegalMove):  # its time is over: what it has to say still counts
                await web.engine.execute(c.Extend(task_id=who.task_id, epoch=who.epoch, actor=who.worker_id))
        black = await blackout_of(web, [who.task_id])
        fields = {name: black.of(getattr(body, name)) for name in names}
        return await web.engine.execute(shape(task_id=who.task_id, epoch=who.epoch, **fields))

    body = lambda: body_of(shape, names)  # noqa: E731
    routes.post(f"{_ATTEMPT}/{verb}", body=body, answer=Moved, by=shape)(report)


_report("progress", c.Progress, "percent", "step", "estimated_completion_at_ms")
_report("checkpoint", c.SaveCheckpoint, "data", "taken_us", "taken_on")
_report("artifact", c.AddArtifact, "name", "location")
_report("ask", c.Ask, "question")


@routes.post(f"{_ATTEMPT}/artifact/content")
async def artifact_content(web: Backend, who: Attempt, body: ArtifactPart) -> ArtifactReceived:
    """A part of a file that is named next, by `artifact`; the last one is answered once all of it is kept."""
    black = await blackout_of(web, [who.task_id])
    part = replace(body, name=black.of(body.name))
    return await web.owner.take_artifact(who.task_id, who.epoch, part, black.data)


@routes.post(f"{_ATTEMPT}/done", answer=Moved)
async def done(web: Backend, who: Attempt, body: DoneBody) -> Answer:
    """The agent has done its task."""
    return await _declare(web, who, None, json_text(body.result), body.summary)


@routes.post(f"{_ATTEMPT}/fail", answer=Moved)
async def fail(web: Backend, who: Attempt, body: FailBody) -> Answer:
    """The agent cannot do its task."""
    if body.kind is ErrorKind.LOST:
        raise BadInput("an agent that can say so is not lost; nothing was changed", "name another kind")
    return await _declare(web, who, body.kind, body.message)


async def _declare(
    web: Backend, who: Attempt, failed: ErrorKind | None, text: str, summary: str = ""
) -> Answer:
    """The word of a worker's agent, which the worker settles; by hand it is the end."""
    task_id, epoch = who.task_id, who.epoch
    black = await blackout_of(web, [task_id])
    text, summary = black.of(text), black.of(summary)
    if not who.by_hand:
        return await web.engine.execute(
            c.Declare(task_id=task_id, epoch=epoch, kind=failed, text=text, summary=summary)
        )
    return await web.engine.execute(
        c.GiveBack(
            task_id=task_id,
            epoch=epoch,
            actor=who.worker_id,
            done=failed is None,
            failed=failed,
            text=text,
            summary=summary,
        )
    )


@routes.get(f"{_ATTEMPT}/checkpoint", answer={200: bytes, 204: None})
async def last_checkpoint(web: Backend, who: Attempt) -> Reply:
    """What the next attempt starts from; 204 where there is none."""
    found = await web.reads.checkpoint(who.task_id)
    return Reply(204) if found is None else Reply(200, found.data, "application/octet-stream")
