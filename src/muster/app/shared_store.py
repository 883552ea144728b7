"""The store that several servers share, as the settings of a folder name it."""

from __future__ import annotations

import asyncio
import shlex
from importlib.util import find_spec
from pathlib import Path

from muster.config.project import Project
from muster.config.settings import ServeSettings
from muster.config.values import STORES, without_stars
from muster.hosts.addresses import database_flaw
from muster.hosts.plain_files import read_plain
from muster.model.errors import BadConfig, Conflict
from muster.model.findings import Check
from muster.stores.sqlite.file import halt_of
from muster.stores.sqlite.halt import Cause

_BYTES_MAX = 1 << 16


def store_url(settings: ServeSettings) -> str:
    """With its password; empty where the store is a file of the folder.  Raises BadConfig."""
    if not settings.store_file:
        return settings.store
    if settings.store:
        raise _wrong(f"the address stands in {settings.store_file} already", "set store or store_file")
    try:
        url = read_plain(Path(settings.store_file), _BYTES_MAX).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(f"{settings.store_file}: {error}", "name a file that holds the address") from error
    if not url.startswith(STORES):
        raise _wrong(
            f"{settings.store_file} holds no address", f"write {STORES[0]}USER:PASSWORD@HOST/DATABASE"
        )
    if (flaw := database_flaw(url)) is not None:
        raise _wrong(f"the address in {settings.store_file} {flaw.problem}", flaw.fix)
    return url


def kept_url(project: Project, settings: ServeSettings) -> str:
    """That of the settings, else the one that this folder's server was started with.  Raises BadConfig."""
    if url := store_url(settings):
        return url
    try:
        return without_stars(project.store_file.read_text().strip())
    except FileNotFoundError:
        error = BadConfig(
            f"serve.store: where the store of {project.folder} is was not told; nothing was done",
            "set store or store_file below [serve], or MUSTER_SERVE_STORE",
        )
        error.key = "serve.store"
        raise error from None


def _wrong(problem: str, hint: str) -> BadConfig:
    error = BadConfig(f"serve.store_file: {problem}; nothing was started", hint)
    error.key = "serve.store_file"
    return error


def require_driver() -> None:
    """Raises BadConfig where it is not installed."""
    if find_spec("asyncpg") is None:
        error = BadConfig(
            "serve.store: what speaks with PostgreSQL is not installed",
            "pip install 'musterd[postgres]'",
        )
        error.key = "serve.store"
        raise error


def examined(url: str) -> list[Check]:
    """What of that database would keep a server from working, or its tenants apart.  Raises BadConfig."""
    require_driver()
    from muster.stores.postgres.examination import examine

    return asyncio.run(examine(url))


def copy_keys(project: Project) -> str:
    """The commands that make a folder for a server of the store that this one's tasks have gone to."""
    keys = " ".join(shlex.quote(str(path)) for path in (project.key_file, project.vault_key_file))
    return f"mkdir -m 700 -p SERVER/.muster && touch SERVER/muster.toml && cp {keys} SERVER/.muster/"


def refuse_own_store(project: Project) -> None:
    """Raises Conflict in a folder that has a store of its own: its tasks would be out of sight."""
    if project.store.exists():
        if (halt := halt_of(project.store)) is not None and halt.cause is Cause.MOVED:
            raise Conflict(
                f"{project.store} is kept here to be read; no server was started",
                f"start it in another folder, with the keys of this one: {copy_keys(project)}",
            )
        raise Conflict(
            f"{project.folder} has a store of its own, {project.store}; no server was started",
            "start it in another folder; muster db copy takes the tasks of this one to an empty database",
        )
