"""Secrets, as the store keeps them: sealed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from muster.engine.locking import held_workers
from muster.engine.notes import note
from muster.engine.server_keys import sealing_key
from muster.engine.view import View
from muster.engine.webhooks import Webhooks
from muster.model import commands as c
from muster.model.answers import Answer, Done, SealedDropped, SealedSecrets, WebhookAdded
from muster.model.errors import NotFound, StaleEpoch
from muster.model.events import COORDINATOR
from muster.model.secrets import Secret, secret_purpose
from muster.model.webhooks import sealed_for
from muster.ports.locks import WEBHOOKS, locks
from muster.ports.store import Tx
from muster.ports.vault import Vault


class Secrets:
    """With those that sign the messages of webhooks."""

    def __init__(self, vault: Vault | None, webhooks: Webhooks) -> None:
        self._vault, self._webhooks = vault, webhooks

    def handlers(self) -> dict[type[c.Command], Callable[[View, Any], Awaitable[Answer]]]:
        return {
            c.PutSecret: self.put,
            c.RemoveSecret: self.remove,
            c.Reseal: self.reseal,
            c.AskSecrets: give,
            c.AddWebhook: self.add_webhook,
        }

    async def put(self, view: View, command: c.PutSecret) -> Done:
        """Agents that could not run without it may be tried again."""
        known = {secret.name for secret in await view.tx.secrets()}
        secret = Secret(command.name, command.actor, view.now.wall_ms)
        purpose = secret_purpose(view.tx.workspace_id, command.name)
        await view.tx.put_secret(secret, await self._by_present_key(view.tx, command.sealed, purpose))
        event = "secret_changed" if command.name in known else "secret_set"
        said = f"secret {command.name} set by {command.actor}"
        await note(view, f"secret {command.name}", event, said, command.actor)
        for worker in await held_workers(view.tx):
            if (given := worker.given({command.name})) is not worker:
                await view.tx.put_worker(given)
                view.became_ready = True
        return Done()

    async def add_webhook(self, view: View, command: c.AddWebhook) -> WebhookAdded:
        purpose = sealed_for(view.tx.workspace_id)
        return await self._webhooks.add(
            view, command, await self._by_present_key(view.tx, command.sealed, purpose)
        )

    async def remove(self, view: View, command: c.RemoveSecret) -> Done:
        """Raises NotFound."""
        if all(secret.name != command.name for secret in await view.tx.secrets()):
            raise NotFound(f"there is no secret {command.name}", "muster secrets list")
        await view.tx.drop_secret(command.name)
        said = f"secret {command.name} deleted by {command.actor}"
        await note(view, f"secret {command.name}", "secret_deleted", said, command.actor)
        return Done()

    async def reseal(self, view: View, command: c.Reseal) -> Done:
        """The same values by the key that seals now.  Nothing for what others change or delete meanwhile."""
        assert self._vault is not None, "there is one where keys are rotated"
        vault, of, key = self._vault, view.tx.workspace_id, await sealing_key(view.tx)
        for name, sealed in (await view.tx.sealed_secrets()).items():
            purpose = secret_purpose(of, name)
            again = vault.seal(vault.unseal(sealed, purpose), purpose, key)
            await view.tx.reseal_secret(name, again, sealed)
            said = f"secret {name} sealed by a new key, by {command.actor}"
            await note(view, f"secret {name}", "secret_resealed", said, command.actor)
        for webhook in view.known.hooks:
            sealed, purpose = await view.tx.webhook_secret(webhook.id) or "", sealed_for(of)
            again = vault.seal(vault.unseal(sealed, purpose), purpose, key)
            await view.tx.reseal_webhook(webhook.id, again, sealed)
        return Done()

    async def drop_all(self, view: View, actor: str) -> SealedDropped:
        """Their key is lost.  Secrets of input contexts stay as they are: their tasks say so when they run."""
        await view.tx.lock(locks(WEBHOOKS))
        names = tuple(secret.name for secret in await view.tx.secrets())
        hooks = sorted(view.known.hooks, key=lambda one: one.id)
        for name in names:
            await self.remove(view, c.RemoveSecret(name=name, actor=actor))
        for hook in hooks:
            await self._webhooks.remove(view, c.RemoveWebhook(webhook_id=hook.id, actor=actor))
        said = f"the key of what was sealed is lost, and another one seals from now on, by {actor}"
        await note(view, COORDINATOR, "key_reset", said, actor)
        return SealedDropped(secrets=names, webhooks=tuple(hook.url for hook in hooks))

    async def _by_present_key(self, tx: Tx, sealed: str, purpose: str) -> str:
        """A server may have sealed it by the key of before: another one has taken over meanwhile."""
        key = await sealing_key(tx)
        if self._vault is None or not key or sealed.startswith(f"{key}."):
            return sealed
        return self._vault.seal(self._vault.unseal(sealed, purpose), purpose, key)


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
