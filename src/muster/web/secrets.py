"""What agents are given in their environment: `/api/v1/secrets`.  No answer has a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from muster.model import commands as c
from muster.model.answers import Answer, Done, Resealed
from muster.model.errors import StoreRefused
from muster.model.input_secrets import how_to_open, input_purpose
from muster.model.secrets import (
    VALUE_CHARS_MAX,
    VALUE_CHARS_MIN,
    Secret,
    check_name,
    refuse_blank,
    secret_purpose,
)
from muster.model.states import FINAL
from muster.model.webhooks import WebhookRow, sealed_for
from muster.web.backend import Backend
from muster.web.http import ActorBody
from muster.web.routes import Routes

routes = Routes()
_PAGE_TASKS = 500


class SecretBody(ActorBody, frozen=True, kw_only=True):
    name: c.Name
    """Of a variable: letters, digits and `_`, no digit first, at most 100; none that begins with `MUSTER_`."""
    value: Annotated[str, Meta(min_length=VALUE_CHARS_MIN, max_length=VALUE_CHARS_MAX)]


class Rotated(Struct, frozen=True, rename="camel"):
    """How many were sealed anew."""

    secrets: int
    webhooks: int
    tasks: int
    """Those with secrets in their input context."""
    lost: int
    """Tasks whose secrets nobody can open, and which have ended: they stay as they are."""
    left_to_do: str = ""
    """By whoever set the environment of the server, where its keys stand there."""


@routes.get("/api/v1/secrets")
async def secrets(web: Backend) -> Sequence[Secret]:
    """Which there are, since when, and who has set them."""
    return await web.reads.secrets()


@routes.post("/api/v1/secrets", answer=Done)
async def put_secret(web: Backend, body: SecretBody) -> Answer:
    """Sets one, also in place of an older value.  The value comes back in no answer."""
    check_name(body.name)
    refuse_blank(body.value)
    vault = web.owner.vault
    async with vault.sealing:
        sealed = vault.seal(body.value, secret_purpose(web.workspace_id, body.name))
        return await web.engine.execute(c.PutSecret(name=body.name, sealed=sealed, actor=body.actor))


@routes.post("/api/v1/secrets/{name}/remove", answer=Done)
async def remove_secret(web: Backend, name: str, body: ActorBody) -> Answer:
    """No agent is given it any more."""
    return await web.engine.execute(c.RemoveSecret(name=name, actor=body.actor))


class _Sealed(NamedTuple):
    """How much of one workspace was sealed anew."""

    secrets: int
    webhooks: int
    inputs: Resealed


@routes.post("/api/v1/vault/rotate")
async def rotate(web: Backend, body: ActorBody) -> Rotated:
    """A new key, and all that is sealed is sealed anew by it, in every workspace.

    Where the keys stand in the server's environment, that is the first of them.  Servers that share a store all
    need it before: while one that is up does not have it, this is a 409 that names it.  Whenever this is cut off,
    all of it can be opened.
    """
    vault = web.owner.vault
    vault.check()
    async with vault.sealing:
        for one in await web.reads.workspaces():
            await _open(web.of(one.id))
        await web.owner.change_key()
        # Asked again: what is new since, also a workspace, was sealed by the key that is given up.
        anew = [await _seal_anew(web.of(one.id), body.actor) for one in await web.reads.workspaces()]
        left_to_do = await web.owner.give_up_keys()
    return Rotated(
        secrets=sum(one.secrets for one in anew),
        webhooks=sum(one.webhooks for one in anew),
        tasks=sum(one.inputs.tasks for one in anew),
        lost=sum(one.inputs.lost for one in anew),
        left_to_do=left_to_do,
    )


async def _open(web: Backend) -> None:
    """Raises StoreRefused before anything has changed, where a key is lost."""
    for name, sealed in (await web.reads.sealed_secrets()).items():
        purpose = secret_purpose(web.workspace_id, name)
        _unseal(web, sealed, purpose, f"secret {name}", f"muster secrets set {name}")
    for webhook in await _webhooks(web):
        what, sealed = f"webhook {webhook.id}", await web.reads.webhook_secret(webhook.id) or ""
        fix = f"muster webhook remove {webhook.id}; muster webhook add {webhook.url}"
        _unseal(web, sealed, sealed_for(web.workspace_id), what, fix)
    after = 0
    while rows := await web.reads.sealed_inputs(after, _PAGE_TASKS):
        for row in rows:
            if row.status not in FINAL:
                what = f"the input context of task {row.task_id}"
                purpose, fix = input_purpose(web.workspace_id, row.task_id), how_to_open(row.task_id)
                _unseal(web, row.sealed, purpose, what, fix)
        after = rows[-1].task_id


async def _webhooks(web: Backend) -> list[WebhookRow]:
    return [one for one in await web.reads.webhooks() if not one.channel]


def _unseal(web: Backend, sealed: str, purpose: str, what: str, fix: str) -> None:
    try:
        web.owner.vault.unseal(sealed, purpose)
    except StoreRefused as error:
        raise StoreRefused(f"{what}: {error.message}; nothing was changed", fix) from None


async def _seal_anew(web: Backend, actor: str) -> _Sealed:
    """By the engine itself, between what seals others: whatever came before this has been written."""
    engine = web.engine
    await engine.execute(c.Reseal(actor=actor))
    tasks = lost = 0
    after: int | None = 0
    while after is not None:
        page = await engine.execute(c.ResealInputs(after=after, actor=actor))
        assert isinstance(page, Resealed)
        tasks, lost, after = tasks + page.tasks, lost + page.lost, page.after
    inputs = Resealed(tasks=tasks, lost=lost, after=None)
    return _Sealed(len(await web.reads.sealed_secrets()), len(await _webhooks(web)), inputs)
