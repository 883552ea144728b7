"""What `muster doctor` says of a PostgreSQL store, with a server in this folder or without one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from muster.client.api import Api
from muster.client.http import Connection, answers
from muster.config.project import Project
from muster.config.settings import ServeSettings
from muster.config.values import STORES, has_password, without_password, without_stars
from muster.hosts.addresses import database_flaw
from muster.model.errors import BadInput, Forbidden, MusterError, NotFound, StoreAway
from muster.model.findings import Check
from muster.ports.store_clock import apart

REPLY_S = 5.0


def guarded(name: str, check: Callable[[], Check]) -> Check:
    """A check that cannot be made is a failed one; the others still tell what they can."""
    try:
        return check()
    except StoreAway as error:  # the database is asked itself
        return Check(name, False, error.message, "what PostgreSQL says, below")
    except MusterError as error:
        return Check(name, False, error.message, error.hint)
    except OSError as error:
        return Check(
            name, False, f"{error.filename}: {error.strerror}", "run it as the user who owns .muster"
        )
    except ImportError as error:
        return Check(name, False, str(error), "pip install --force-reinstall musterd")


def of_address(url: str) -> Iterator[Check]:
    """Raises BadInput before anything is asked."""
    if has_password(url):
        raise BadInput(
            "--store holds a password, which everybody on this machine could see; nothing was asked",
            "export PGPASSWORD, or write it into ~/.pgpass",
        )
    if not url.startswith(STORES):
        raise BadInput("--store is no address of a database", f"write {STORES[0]}USER@HOST/DATABASE")
    if (flaw := database_flaw(url)) is not None:
        raise BadInput(f"--store {flaw.problem}; nothing was asked", flaw.fix)
    yield from _database(url)


def of_folder(project: Project, settings: ServeSettings) -> Iterator[Check]:
    """Of a server that is one of several, or is to be."""
    from muster.app.shared_store import store_url
    from muster.hosts.file_lock import holder

    kept = project.store_file.read_text("utf-8").strip() if project.shares_store else ""
    pid = holder(project.owner_lock)
    if project.store.exists():
        yield guarded("store", lambda: _own_store(project))
    if answers(project.socket):
        yield guarded("store", lambda: _store(project, kept))
        yield guarded("leader", lambda: _leader(project, pid))
        yield guarded("settings", lambda: _settings(project))
        yield from wrong_clocks(Connection(project.socket))
    elif pid is None:
        yield Check("server", None, "not running: `muster serve` starts it")
    else:
        yield Check("server", False, f"pid {pid} runs but does not answer", f"kill {pid}, then muster serve")
    try:
        url = store_url(settings)
    except MusterError as error:
        yield Check("PostgreSQL", False, error.message, error.hint)
        return
    # The address that the server has left has stars for a password: PGPASSWORD or ~/.pgpass may have it.
    yield from _database(url or without_stars(kept))


def _database(url: str) -> Iterator[Check]:
    from muster.app.shared_store import examined

    try:
        yield from examined(url)
    except MusterError as error:
        yield Check("PostgreSQL", False, f"{without_password(url)}: {error.message}", error.hint)


def _own_store(project: Project) -> Check:
    from muster.app.shared_store import refuse_own_store

    refuse_own_store(project)
    return Check("store", True, f"{project.store} is there no longer")


def _store(project: Project, url: str) -> Check:
    began_s = time.time()
    with closing(Api(Connection(project.socket), reply_s=REPLY_S)) as api:
        halted = api.get("/api/v1/owner")["halted"]
        api.get("/api/v1/crew")
    if halted is not None:
        return Check("store", False, halted["message"], halted["hint"])
    return Check("store", True, f"{url} answers in {(time.time() - began_s) * 1000:.0f} ms")


def _coordinator(project: Project) -> Any:
    with closing(Api(Connection(project.socket), reply_s=REPLY_S)) as api:
        return api.get("/api/v1/coordinator/status")


def _settings(project: Project) -> Check:
    """Of this server beside those of the one that leads."""
    told = _coordinator(project)
    if not told["differs"]:
        return Check("settings", True, "no others than those of the server that leads")
    fix = "give all servers the same: muster config show in the folder of each"
    return Check("settings", False, f"not those of {told['leader']}: {'; '.join(told['differs'])}", fix)


def wrong_clocks(connection: Connection) -> Iterator[Check]:
    """Of all servers of a store, as any of them tells; nothing where they are right, or we may not know."""
    try:
        with closing(Api(connection, reply_s=REPLY_S)) as api:
            told = api.get("/api/v1/coordinator/status").get("wrongClocks", {})
    except (Forbidden, NotFound):
        return
    except MusterError as error:
        yield Check("clocks", False, error.message, error.hint)
        return
    for server, wrong_ms in sorted(told.items()):
        said = f"that of {server} is {apart(wrong_ms)} the database's"
        yield Check("clocks", False, said, "set the clock of its host: timedatectl set-ntp true")


def _leader(project: Project, pid: int | None) -> Check:
    told = _coordinator(project)
    if told["problem"]:
        return Check(
            "leader", False, told["problem"], "what PostgreSQL says, below; else the log of each server"
        )
    who = f"this server, pid {pid}, term {told['term']}" if told["term"] else told["leader"]
    if not who:
        return Check("leader", False, "none is known to this server", "wait 15 s, and ask again")
    return Check("leader", True, who)
