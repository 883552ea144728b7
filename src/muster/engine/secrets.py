"""Secrets, as the store keeps them: sealed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from muster.engine.locking import held_workers
from muster.engine.notes import note
from muster.engine.view import View
from muster.model import commands as c
from muster.model.answers import Answer, Done, SealedSecrets
from muster.model.errors import NotFound, StaleEpoch
from muster.model.secrets import Secret


async def put(view: View, command: c.PutSecret) -> Done:
    """Agents that could not run without it may be tried again."""
    known = {secret.name for secret in await view.tx.secrets()}
    secret = Secret(command.name, command.actor, view.now.wall_ms)
    await view.tx.put_secret(secret, command.sealed)
    event = "secret_changed" if command.name in known else "secret_set"
    said = f"secret {command.name} set by {command.actor}"
    await note(view, f"secret {command.name}", event, said, command.actor)
    for worker in await held_workers(view.tx):
        if (given := worker.given({command.name})) is not worker:
            await view.tx.put_worker(given)
            view.became_ready = True
    return Done()


async def remove(view: View, command: c.RemoveSecret) -> Done:
    """Raises NotFound."""
    if all(secret.name != command.name for secret in await view.tx.secrets()):
        raise NotFound(f"there is no secret {command.name}", "muster secrets list")
    await view.tx.drop_secret(command.name)
    said = f"secret {command.name} deleted by {command.actor}"
    await note(view, f"secret {command.name}", "secret_deleted", said, command.actor)
    return Done()


async def reseal(view: View, command: c.Reseal) -> Done:
    """Nothing for what was deleted meanwhile."""
    for name, sealed in command.secrets.items():
        await view.tx.reseal_secret(name, sealed)
        said = f"secret {name} sealed by a new key, by {command.actor}"
        await note(view, f"secret {name}", "secret_resealed", said, command.actor)
    for webhook_id, sealed in command.webhooks.items():
        await view.tx.reseal_webhook(webhook_id, sealed)
    return Done()


async def give(view: View, command: c.AskSecrets) -> SealedSecrets:
    """To the holder of a lease.  Raises StaleEpoch for everybody else."""
    await view.load([command.task_id])
    view.check(command)
    attempt = view.attempt(command.task_id)
    mine = attempt is not None and attempt.epoch == command.epoch and attempt.open and not attempt.by_hand
    if attempt is None or not mine or not view.incarnation.granted(attempt, command.proof):
        raise StaleEpoch(
            f"attempt {command.epoch} of task {command.task_id} is not held by who asks; nothing was told",
            "stop this attempt's process",
        )
    known = await view.tx.sealed_secrets()
    sealed = {name: known[name] for name in command.names if name in known}
    inputs = await view.tx.sealed_input(command.task_id) if command.inputs else ""
    return SealedSecrets(sealed=sealed, inputs=inputs)


HANDLERS: dict[type[c.Command], Callable[[View, Any], Awaitable[Answer]]] = {
    c.PutSecret: put,
    c.RemoveSecret: remove,
    c.Reseal: reseal,
    c.AskSecrets: give,
}
