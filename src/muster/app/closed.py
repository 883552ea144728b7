"""What is sealed in a store whose key is not here: a copy of it was put in place without the key."""

from __future__ import annotations

from muster.hosts.vault import KeyVault
from muster.model.states import FINAL
from muster.model.wording import counted
from muster.ports.store import Reads

_PAGE_TASKS = 500


async def closed_here(reads: Reads, vault: KeyVault) -> str:
    """In a sentence; empty where all of it can be opened.  Only what is still needed counts."""
    why = vault.why_closed()
    secrets = webhooks = tasks = 0
    for workspace in await reads.workspaces():
        of = reads.of(workspace.id)
        secrets += sum(not vault.has_key_of(sealed) for sealed in (await of.sealed_secrets()).values())
        for webhook in [one for one in await of.webhooks() if not one.channel]:
            webhooks += not vault.has_key_of(await of.webhook_secret(webhook.id) or "")
        after = 0
        while rows := await of.sealed_inputs(after, _PAGE_TASKS):
            tasks += sum(row.status not in FINAL and not vault.has_key_of(row.sealed) for row in rows)
            after = rows[-1].task_id
    if not (secrets or webhooks or tasks):
        return ""
    return (
        f"{counted(secrets, 'secret')}, the keys of {counted(webhooks, 'webhook')} and the input contexts of "
        f"{counted(tasks, 'task')} cannot be opened: {why}; put their key back, or give them anew (muster "
        "secrets set, muster webhook add, muster task edit --input-context)"
    )
