"""Tells people that the store is away, or halted, by ways that do not need it: the log, an address of theirs."""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections.abc import Callable

import msgspec

from muster.model.errors import MusterError, StoreFault
from muster.ports.hooks import Post
from muster.stores.postgres.faults import may_pass

log = logging.getLogger(__name__)

AWAY, HALTED, BACK = "store.away", "store.halted", "store.back"
_HEADERS = {"content-type": "application/json", "user-agent": "muster"}


def problem_of(look: asyncio.Task[None]) -> MusterError | None:
    """What it has found, once it has ended."""
    try:
        look.result()
    except MusterError as error:
        return may_pass(error)
    return None


class StoreWatch:
    """`note` is called with each look at the store, however that has ended."""

    def __init__(
        self,
        server: str,
        url: str,
        after_s: float,
        *,
        post: Post,
        elapsed_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        """`url`: empty where the log has to do.  Nobody hears of a store that is away for less than `after_s`."""
        self._server, self._url, self._after_ms = server, url, int(after_s * 1000)
        self._post, self._elapsed_ms, self._wall_ms = post, elapsed_ms, wall_ms
        self._since: tuple[int, int] | None = None
        """When it was seen well for the last time, by the clock that counts and by the wall's."""
        self._told = ""
        self._unsent: bytes | None = None

    async def note(self, problem: MusterError | None) -> None:
        if problem is None:
            if self._told:
                self._tell(BACK, "work goes on")
            self._told, self._since = "", None
        else:
            self._since = self._since or (self._elapsed_ms(), self._wall_ms())
            kind = HALTED if isinstance(problem, StoreFault) else AWAY
            waits = kind == AWAY and self._elapsed_ms() - self._since[0] < self._after_ms
            if kind != self._told and not waits:
                self._tell(kind, str(problem))
                self._told = kind
        await self._send()

    def _tell(self, kind: str, reason: str) -> None:
        assert self._since is not None
        since = datetime.datetime.fromtimestamp(self._since[1] / 1000, datetime.UTC)
        if kind == BACK:
            log.warning("the store is back, after %d s", (self._elapsed_ms() - self._since[0]) // 1000)
        else:
            log.critical("%s since %s: %s", kind, since.isoformat(timespec="seconds"), reason)
        if self._url:
            data = {"server": self._server, "since": since, "reason": reason}
            now = datetime.datetime.fromtimestamp(self._wall_ms() / 1000, datetime.UTC)
            self._unsent = msgspec.json.encode({"type": kind, "timestamp": now, "data": data})

    async def _send(self) -> None:
        """The newest message, until it is taken: with each look once."""
        if self._unsent is None:
            return
        body = self._unsent
        try:
            status = await self._post(self._url, _HEADERS, body)
        except MusterError as error:
            log.debug("the alert could not be sent: %s", error)
            return
        if status < 300 and body is self._unsent:
            self._unsent = None
        elif status >= 300:
            log.debug("the alert was answered by %d", status)
