"""The process of a server whose store others share: it serves on its folder's socket, and for others over TCP."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from muster.app.owner import (
    SWITCH_S,
    allow_files,
    bound_to,
    serve_all,
    settle_garbage,
    traced_moves,
    until_closed,
)
from muster.app.parts import traced
from muster.app.server import Server
from muster.config.project import Project
from muster.config.settings import Config
from muster.hosts.log_file import LogFile
from muster.hosts.logs import log_as, log_lines
from muster.model.access import Role
from muster.model.commands import AddToken, SetMember
from muster.model.errors import StoreAway
from muster.stores.postgres.faults import given_up
from muster.web.access import PREFIX, SECRET_BYTES
from muster.web.app import build
from muster.web.backend import Backend
from muster.web.identity import hash_of


def run_server(
    project: Project,
    config: Config,
    *,
    who: str,
    said: Callable[[str], None],
    first_token: Callable[[str], None],
) -> None:
    """Until it is told to end.  `said` hears where it listens, and `first_token` the secret of `who` for a new
    store.

    Raises as `Server.__aenter__`.
    """
    sys.setswitchinterval(SWITCH_S)
    allow_files()
    log_lines("server", LogFile(project.log_file))
    log_as(config.log.format)
    with traced("server", config):
        try:
            asyncio.run(_serve(project, config, who, said, first_token))
        except StoreAway as away:  # before it was up, and it has ended with that
            raise given_up(away, away.__cause__) from away


async def _serve(
    project: Project,
    config: Config,
    who: str,
    said: Callable[[str], None],
    first_token: Callable[[str], None],
) -> None:
    async with Server(project, config) as server:
        web = server.backend()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, web.shut_down)
        if server.first and config.serve.login and not await web.reads.tokens():
            first_token(await _make_token(web, who))
        path, app = Path(project.socket), build(web)
        app.prepare()
        settle_garbage()
        with bound_to(path) as listening:
            await until_closed(
                web,
                serve_all(app, listening, web, config.serve),
                server.lead(),
                server.mind_store(),
                _tell(server, web, said),
                *traced_moves(server.store.reads),
            )


async def _make_token(web: Backend, who: str) -> str:
    """An OWNER's, for whoever has started the first server of this store."""
    secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    actor = f"user:{who}"
    await web.engine.execute(SetMember(name=who, role=Role.OWNER, actor=actor))
    made = AddToken(
        name="first",
        member=who,
        role=Role.OWNER,
        scopes=(),
        expires_s=None,
        token_hash=hash_of(secret),
        actor=actor,
    )
    await web.engine.execute(made)
    return secret


async def _tell(server: Server, web: Backend, said: Callable[[str], None]) -> None:
    """Once it listens."""
    await server.listens.wait()
    said(server.listening)
    await web.closing.wait()
