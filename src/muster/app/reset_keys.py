"""A person's word that the key of a store that servers share is lost for good."""

from __future__ import annotations

from muster.app.key import signer_of, vault_of
from muster.app.shared_store import kept_url
from muster.config.project import Project
from muster.config.settings import ServeSettings
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.model.answers import SealedDropped
from muster.model.commands import ResetKey
from muster.model.errors import MusterError, StoreRefused
from muster.ports.engine import Asked
from muster.runtimes.chance import SystemChance
from muster.runtimes.local import SystemClock
from muster.stores.postgres.store import PostgresStore


async def reset_keys(project: Project, settings: ServeSettings, actor: str) -> SealedDropped:
    """The store goes on with this folder's key, without what the lost one has sealed; in one transaction.

    Raises Conflict where a server is up or the key is here, StoreRefused without the store's `.muster/key`.
    """
    if not project.key_file.exists():
        raise StoreRefused(
            f"{project.folder} has no .muster/key of that store's servers; nothing was changed",
            "run it in the folder of one of them, or copy .muster/key from there",
        )
    vault, signer = vault_of(project), signer_of(project)
    store = await PostgresStore.open(kept_url(project, settings), project.store_witness)
    try:
        engine = Engine(store, SystemChance(), Policy(), signer.grants())
        command = ResetKey(seal_key=signer.key_id, keys=vault.key_names(), actor=actor)
        applied = await engine.apply([Asked(command, None)], SystemClock("reset").now())
        (outcome,) = applied.outcomes
        if isinstance(outcome, MusterError):
            raise outcome
        assert isinstance(outcome, SealedDropped)
        return outcome
    finally:
        await store.aclose()
