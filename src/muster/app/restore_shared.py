"""A person's word on a database that servers share: it is behind what they have acknowledged, and they are to
go on from there."""

from __future__ import annotations

from msgspec.structs import replace

from muster.app.closed import closed_here
from muster.app.key import joining, logged_heads, lost_head, signer_of, vault_of
from muster.app.shared_store import kept_url
from muster.config.project import Project
from muster.config.settings import ServeSettings
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.model.answers import StoreRestored
from muster.model.commands import Restored
from muster.model.errors import MusterError, StoreRefused
from muster.model.secrets import VAULT_KEY
from muster.ports.engine import Asked
from muster.runtimes.chance import SystemChance
from muster.runtimes.local import SystemClock
from muster.stores.postgres.store import RESTORING, PostgresStore

INCARNATION_CHARS = 16


async def restored(project: Project, settings: ServeSettings, actor: str) -> StoreRestored:
    """No epoch of before is granted again (S2), and all servers go on with what the database holds.

    Meanwhile nobody writes to it; killed before it has ended, it stays so.  Raises StoreRefused where the
    database is not sound, or of servers with other keys, StoreAway where it does not answer.
    """
    vault = vault_of(project)
    if not (project.key_file.exists() and vault.place()):
        lacks = ".muster/vault.key" if project.key_file.exists() else ".muster/key"
        raise StoreRefused(
            f"{project.folder} has no {lacks} of that store's servers; nothing was changed: without .muster/key "
            "the audit proves nothing, and without .muster/vault.key secrets, the keys of webhooks and input "
            "contexts stay closed",
            "run it in the folder of one of them, or copy .muster/key and .muster/vault.key from there (or set "
            f"{VAULT_KEY} as they have it)",
        )
    store = await PostgresStore.open(kept_url(project, settings), project.store_witness, restoring=True)
    try:
        await store.hold(f"{RESTORING} by {actor}, and has not ended")
        if findings := await store.check():
            raise StoreRefused(
                f"the database is not sound: {findings[0]}; nothing was changed, and it stays halted",
                "restore another backup of it",
            )
        chance, clock, signer = SystemChance(), SystemClock("restored"), signer_of(project)
        engine = Engine(store, chance, Policy(), signer.grants())
        command = Restored(
            actor=actor,
            incarnation=chance.name(INCARNATION_CHARS),
            granted=store.granted,
            lost_head=await lost_head(logged_heads(project), store.reads, signer),
            missing=store.lost,
        )
        asked = [joining(signer, vault), command]
        applied = await engine.apply([Asked(one, None) for one in asked], clock.now())
        for outcome in applied.outcomes:
            if isinstance(outcome, MusterError):
                raise outcome
        answer = applied.outcomes[-1]
        assert isinstance(answer, StoreRestored)
        await store.resume()
        return replace(answer, closed=await closed_here(store.reads, vault))
    finally:
        await store.aclose()
