"""Secrets of input contexts on their way into the store: sealed for their task, with stars in their place."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from muster.engine.server_keys import sealing_key
from muster.engine.view import View
from muster.model import commands as c
from muster.model.answers import Resealed
from muster.model.edits import KeptTask
from muster.model.errors import StoreRefused
from muster.model.input_secrets import (
    by_stars,
    cannot_open,
    compared,
    how_to_open,
    input_purpose,
    secrets_in,
    shown,
)
from muster.model.seals import Grants
from muster.ports.store import Tx
from muster.ports.vault import Vault


class Inputs:
    def __init__(self, vault: Vault | None, grants: Grants | None) -> None:
        self._vault = vault
        self._marks = grants or Grants(b"")

    def shown(self, context: dict[str, Any], secrets: Mapping[str, str], about: str) -> dict[str, Any]:
        """`about`: what two secrets have to be of, to be seen to be the same."""
        if not secrets:
            return context
        return shown(context, secrets, lambda value: self._marks.mark(about, value))

    async def of_task(
        self, tx: Tx, task_id: int, context: dict[str, Any], secrets: Mapping[str, str]
    ) -> tuple[dict[str, Any], str]:
        """What is shown of it, and its secrets as the store keeps them; empty: it has none.

        Raises Unavailable, StoreFull and StoreRefused where they cannot be sealed.
        """
        if not secrets:
            return context, ""
        if self._vault is None:
            raise StoreRefused("this store has no key to seal secrets with; nothing was changed")
        purpose = input_purpose(tx.workspace_id, task_id)
        sealed = self._vault.seal(msgspec.json.encode(secrets).decode(), purpose, await sealing_key(tx))
        return self.shown(context, secrets, _about(task_id)), sealed

    def open(self, workspace_id: int, task_id: int, sealed: str) -> dict[str, str]:
        """By JSON pointer.  Raises StoreRefused."""
        if not sealed or self._vault is None:
            return {}
        opened = self._vault.unseal(sealed, input_purpose(workspace_id, task_id))
        return msgspec.json.decode(opened, type=dict[str, str])

    def body_hash(self, spec: c.Spec, secrets: Mapping[str, str]) -> str:
        """Tells what was asked for by an idempotency key; secrets cannot be guessed from it."""
        if secrets:
            about = f"idempotency key {spec.idempotency_key}"
            spec = replace(spec, input_context=self.shown(spec.input_context, secrets, about))
        return hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).hexdigest()

    async def edited(self, view: View, kept: KeptTask, given: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """What is shown of a task's input context that somebody has given anew, and its secrets, sealed.

        The stars of a secret that it has stand for this one.  Raises BadInput and, where these are needed and
        cannot be opened, StoreRefused.
        """
        workspace_id, before = view.tx.workspace_id, {}
        if "**" in msgspec.json.encode(given).decode() and (sealed := await view.tx.sealed_input(kept.id)):
            try:
                before = by_stars(kept.input_context, self.open(workspace_id, kept.id, sealed))
            except StoreRefused:
                raise StoreRefused(
                    f"{cannot_open(kept.id)}; nothing was changed", how_to_open(kept.id)
                ) from None
        return await self.of_task(view.tx, kept.id, given, secrets_in(given, before))

    async def reseal(self, view: View, command: c.ResealInputs) -> Resealed:
        """A page of them by the key that seals now; what cannot be opened stays as it is."""
        await view.flush()
        assert self._vault is not None, "there is one where keys are rotated"
        done = lost = 0
        key = await sealing_key(view.tx)
        rows = await view.tx.sealed_inputs(command.after, command.limit)
        for row in rows:
            purpose = input_purpose(view.tx.workspace_id, row.task_id)
            try:
                opened = self._vault.unseal(row.sealed, purpose)
            except StoreRefused:
                lost += 1
                continue
            await view.tx.reseal_input(row.task_id, self._vault.seal(opened, purpose, key), row.sealed)
            done += 1
        return Resealed(tasks=done, lost=lost, after=rows[-1].task_id if len(rows) == command.limit else None)


def as_compared(specs: Iterable[c.Spec], kept: Mapping[str, KeptTask]) -> tuple[c.Spec, ...]:
    """With what would be shown of the input contexts of tasks that are there.  Raises BadInput."""
    return tuple(
        replace(spec, input_context=compared(task.input_context, spec.input_context))
        if spec.input_context and (task := kept.get(spec.key or "")) is not None
        else spec
        for spec in specs
    )


def _about(task_id: int) -> str:
    return f"task {task_id}"
