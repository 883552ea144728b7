"""The keys that seal the audit and what is secret, and the heads that the log knows."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from muster.app.lost import lost_attempts
from muster.config.project import Project
from muster.engine.service import PAGE_ROWS
from muster.engine.services.sealer import LOGGED_HEAD
from muster.hosts.log_file import LogFile
from muster.hosts.plain_files import replace_plain
from muster.hosts.vault import KeyVault, given_keys
from muster.model.commands import Join
from muster.model.errors import Conflict, NotFound, StoreRefused
from muster.model.seals import Signer
from muster.model.secrets import VAULT_KEY
from muster.ports.store import Reads
from muster.stores.sqlite.file import gone
from muster.stores.sqlite.store import SqliteStore

_KEY_BYTES = 32
_HEAD = re.compile(re.escape(LOGGED_HEAD).encode() + rb" (\d+) up to \d+, head ([0-9a-f]{64})")


def signer_of(project: Project) -> Signer:
    """With `.muster/key`, made on first use.  Raises StoreRefused where that file holds no key."""
    path = project.key_file
    try:
        text = path.read_text("ascii", errors="replace").strip()
    except FileNotFoundError:
        key = secrets.token_bytes(_KEY_BYTES)
        replace_plain(path, key.hex().encode() + b"\n", lasting=True)
        return Signer(key)
    if not re.fullmatch(f"[0-9a-f]{{{2 * _KEY_BYTES}}}", text):
        raise StoreRefused(
            f"{path} holds no key; nothing was changed",
            "restore it from a backup; without it the audit up to now cannot be verified",
        )
    return Signer(bytes.fromhex(text))


def vault_of(project: Project) -> KeyVault:
    """Raises BadConfig for a key in the environment that is none."""
    return KeyVault(project.vault_key_file, given_keys())


def joining(signer: Signer, vault: KeyVault) -> Join:
    return Join(seal_key=signer.key_id, vault_keys=vault.key_names(), keys_given=vault.given)


def lacking_key(key_file: Path, lacking: Sequence[str], *, given: bool) -> Conflict:
    """Servers are up that could not open what would be sealed by the new key."""
    hint = (
        f"copy {key_file} over the .muster/vault.key of each of them, and some seconds later: muster secrets "
        "rotate"
    )
    if given:
        hint = (
            f"start each of them again with {VAULT_KEY} as this one has it, the new key first; then: muster "
            "secrets rotate"
        )
    return Conflict(
        f"a new key is ready here, and {', '.join(lacking)} does not have it yet; nothing is sealed by it so far",
        hint,
    )


def open_store(project: Project) -> SqliteStore:
    """Where there is a key there has been a store: it is made only after one.  Raises as SqliteStore.open."""
    store = SqliteStore.open(project.store, known=project.key_file.exists())
    if store.halted is not None and store.lost and (told := lost_attempts(project, store.reads)):
        store.halted = store.halted._replace(reason=f"{store.halted.reason}; {told}")
    return store


def require_store(project: Project) -> None:
    """Raises StoreRefused where it is gone, NotFound where there never was one, Conflict where it is no file."""
    if project.shares_store:
        raise Conflict(
            f"the store of {project.folder} is a PostgreSQL database, and this looks at files; nothing was done",
            "muster db backup copies it; pg_restore puts a copy back, then: muster db restored",
        )
    if project.store.exists():
        return
    if project.has_begun:
        raise gone(project.store)
    raise NotFound(f"there is no store at {project.store}", "muster run PLAN.md makes one")


def logged_heads(project: Project) -> list[tuple[int, str]]:
    """All that the log names, or the old one that it was turned into, each after its workspace; oldest first."""
    heads: list[tuple[bytes, bytes]] = []
    for path in LogFile(project.log_file).all():
        with contextlib.suppress(FileNotFoundError):
            heads += _HEAD.findall(path.read_bytes())
    return [(int(workspace_id), head.decode()) for workspace_id, head in heads]


async def lost_head(heads: Sequence[tuple[int, str]], reads: Reads, signer: Signer) -> str:
    """The newest of the log's heads that the store does not know, with a proof that it was known."""
    known, after = set[str](), 0  # of all workspaces
    while seals := await reads.seals(after, PAGE_ROWS):
        known.update(seal.head for seal in seals)
        after = seals[-1].to_id
    lost = next((head for _, head in reversed(heads) if head not in known), "")
    return f"{lost} {signer.loss_proof(lost)}" if lost else ""
