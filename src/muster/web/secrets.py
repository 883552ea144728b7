"""What agents are given in their environment: `/api/v1/secrets`.  No answer has a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from muster.model import commands as c
from muster.model.answers import Answer, Done, Resealed
from muster.model.errors import StoreRefused
from muster.model.input_secrets import how_to_open, input_purpose
from muster.model.secrets import VALUE_CHARS_MAX, VALUE_CHARS_MIN, Secret, check_name, secret_purpose
from muster.model.states import FINAL
from muster.model.webhooks import sealed_for
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
    vault = web.owner.vault
    async with vault.sealing:
        sealed = vault.seal(body.value, secret_purpose(web.workspace_id, body.name))
        return await web.engine.execute(c.PutSecret(name=body.name, sealed=sealed, actor=body.actor))


@routes.post("/api/v1/secrets/{name}/remove", answer=Done)
async def remove_secret(web: Backend, name: str, body: ActorBody) -> Answer:
    """No agent is given it any more."""
    return await web.engine.execute(c.RemoveSecret(name=name, actor=body.actor))


class _Opened(Struct):
    """What is sealed of one workspace, in clear."""

    web: Backend
    secrets: dict[str, str]
    webhooks: dict[int, str]


@routes.post("/api/v1/vault/rotate")
async def rotate(web: Backend, body: ActorBody) -> Rotated:
    """A new key, and all that is sealed is sealed anew by it, in every workspace.

    Where the keys stand in the server's environment, that is the first of them.  Whenever this is cut off, all
    of it can be opened.
    """
    vault = web.owner.vault
    vault.check()
    async with vault.sealing:
        opened = [await _open(web.of(one.id)) for one in await web.reads.workspaces()]
        vault.take_new_key()
        inputs = [await _seal_anew(each, body.actor) for each in opened]
        left_to_do = vault.forget_old_keys()
    return Rotated(
        secrets=sum(len(one.secrets) for one in opened),
        webhooks=sum(len(one.webhooks) for one in opened),
        tasks=sum(one.tasks for one in inputs),
        lost=sum(one.lost for one in inputs),
        left_to_do=left_to_do,
    )


async def _open(web: Backend) -> _Opened:
    """Raises StoreRefused before anything has changed, where a key is lost."""
    opened = _Opened(web, {}, {})
    for name, sealed in (await web.reads.sealed_secrets()).items():
        purpose = secret_purpose(web.workspace_id, name)
        opened.secrets[name] = _unseal(web, sealed, purpose, f"secret {name}", f"muster secrets set {name}")
    for webhook in await web.reads.webhooks():
        what, sealed = f"webhook {webhook.id}", await web.reads.webhook_secret(webhook.id) or ""
        fix = f"muster webhook remove {webhook.id}; muster webhook add {webhook.url}"
        opened.webhooks[webhook.id] = _unseal(web, sealed, sealed_for(web.workspace_id), what, fix)
    after = 0
    while rows := await web.reads.sealed_inputs(after, _PAGE_TASKS):
        for row in rows:
            if row.status not in FINAL:
                what = f"the input context of task {row.task_id}"
                purpose, fix = input_purpose(web.workspace_id, row.task_id), how_to_open(row.task_id)
                _unseal(web, row.sealed, purpose, what, fix)
        after = rows[-1].task_id
    return opened


def _unseal(web: Backend, sealed: str, purpose: str, what: str, fix: str) -> str:
    try:
        return web.owner.vault.unseal(sealed, purpose)
    except StoreRefused as error:
        raise StoreRefused(f"{what}: {error.message}; nothing was changed", fix) from None


async def _seal_anew(opened: _Opened, actor: str) -> Resealed:
    seal, of = opened.web.owner.vault.seal, opened.web.workspace_id
    secrets = {name: seal(value, secret_purpose(of, name)) for name, value in opened.secrets.items()}
    webhooks = {number: seal(value, sealed_for(of)) for number, value in opened.webhooks.items()}
    if secrets or webhooks:
        await opened.web.engine.execute(c.Reseal(secrets=secrets, webhooks=webhooks, actor=actor))
    tasks = lost = 0
    after: int | None = 0
    # By the engine itself, between what seals others: whatever came before this has been written.
    while after is not None:
        page = await opened.web.engine.execute(c.ResealInputs(after=after, actor=actor))
        assert isinstance(page, Resealed)
        tasks, lost, after = tasks + page.tasks, lost + page.lost, page.after
    return Resealed(tasks=tasks, lost=lost, after=None)
