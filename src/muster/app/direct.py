"""An owner for the length of one command."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterator

from muster.app.core import Owner
from muster.app.salvage import former_work
from muster.app.settings import load_config
from muster.client.http import ClientRequest
from muster.config.identity import refuse_host
from muster.config.project import Project
from muster.config.settings import Config
from muster.model.errors import BadConfig, NotFound, OwnerUnavailable
from muster.ports.runtime import EVENTS
from muster.web.app import build
from muster.web.http import Peer, Request, Stream
from muster.web.routes import Application

log = logging.getLogger(__name__)

_SETTINGS_ALONE = "/api/v1/channels"
"""Where nothing but settings answers, and with what the store has of each further down."""


class DirectTransport:
    """An owner for the length of one command, in this process: no socket, no workers."""

    def __init__(self, project: Project, config: Config, wrong: BadConfig | None = None) -> None:
        """`wrong`: the settings cannot be read, so that nothing is changed by them."""
        refuse_host(project, shares_store=config.serve.shared)
        self._loop = asyncio.new_event_loop()
        self._owner = Owner(project, config, long_lived=False)
        self.wrong = wrong
        self.refused = None if wrong is not None else self._owner.refused  # they may want none of it
        try:
            self._loop.run_until_complete(self._owner.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        self.halted = self._owner.halted()
        """Why nothing may be written; what is read may not be all there was."""
        new = self.halted is None and self._owner.store.is_new
        self.former = former_work(project) if new else ""
        """What tells that there has been another store."""
        self._peer = Peer(os.getpid())
        self._app = self._loop.run_until_complete(self._build())
        self._stack = contextlib.ExitStack()
        self._written = self._stack.enter_context(self._owner.wakeups.listen(EVENTS))

    async def _build(self) -> Application:
        return build(self._owner.backend())

    def request(self, asked: ClientRequest) -> tuple[int, bytes]:
        path = asked.target.partition("?")[0]
        if asked.method != "GET" or path == _SETTINGS_ALONE:
            self._refuse_wrong()
        given = [(name.encode(), value.encode()) for name, value in asked.headers.items()]
        reply = self._loop.run_until_complete(
            self._app.answer(Request(asked.method, asked.target, given, asked.body, self._peer))
        )
        if isinstance(reply, Stream):
            raise OwnerUnavailable(f"no owner is up, so nothing goes on at {asked.target}", "muster up")
        if reply.status == NotFound.http_status and path.startswith(_SETTINGS_ALONE):
            self._refuse_wrong()  # it may well stand in the settings
        return reply.status, reply.data

    def _refuse_wrong(self) -> None:
        """Raises BadConfig, once, where the settings cannot be read: nothing is changed by them, and what they
        alone have is not said to be nothing."""
        wrong, self.wrong = self.wrong, None
        if wrong is not None:
            raise wrong

    def close(self) -> None:
        self._loop.run_until_complete(self._end())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _end(self) -> None:
        try:
            if await self._written.wait(0):  # only then: to look is not to touch somebody's plan
                await self._owner.tick_boxes()
        finally:
            self._stack.close()
            await self._owner.__aexit__()


@contextlib.contextmanager
def direct(project: Project, warn: Callable[[str], None] = log.warning) -> Iterator[DirectTransport]:
    """For a command while no owner is up.  Raises OwnerUnavailable where one has come up meanwhile.

    Who only looks is warned of settings that cannot be read; a change, and a look at what stands in settings
    alone, is refused with BadConfig.  Of a repository that git refuses all are warned: only agents need one, and
    what shows or moves their work.
    """
    config, wrong = Config(), None
    try:
        config = load_config(project.root)
    except BadConfig as error:
        wrong = error
    transport = DirectTransport(project, config, wrong)
    try:
        yield transport
        if transport.wrong is not None:
            warn(transport.wrong.message)
        if transport.refused is not None:
            warn(f"{transport.refused.message}; {transport.refused.hint}")
    finally:
        transport.close()
