"""The connection to a Valkey that may be away, hang, or refuse."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from muster.ports.runtime import Chance
from muster.runtimes.valkey.address import Address

if TYPE_CHECKING:
    from valkey.asyncio import Valkey

log = logging.getLogger(__name__)
T = TypeVar("T")

CALL_S = 0.25
"""The longest that anything waits for an answer, connecting included."""
FIRST_S, AGAIN_S_MAX = 0.1, 5.0
"""After a failure nothing is asked for so long; it doubles with each."""
CLOSE_S = 0.25


class ValkeyLink:
    """Where it fails, all calls are dropped for a while: a Valkey that hangs is waited for once each time."""

    def __init__(
        self,
        address: Address,
        chance: Chance,
        clock: Callable[[], float] = time.monotonic,
        *,
        beside: ValkeyLink | None = None,
    ) -> None:
        """`beside`: another one to the same Valkey; that it is away, or there again, is said once for both."""
        self._beside = beside
        if beside is not None:
            beside._beside = self
        self._address = address
        self._chance = chance
        self._clock = clock
        self._client: Valkey | None = None
        self._again_s = 0.0
        self._in_a_row = 0
        self._refused = False
        self.failures = 0
        self.problem = ""
        """Why the last call failed or was refused; empty: it was not."""

    @property
    def away(self) -> bool:
        """As far as the last call knew."""
        return self._in_a_row > 0

    @property
    def wait_s(self) -> float:
        """How long nothing is asked any more."""
        return max(0.0, self._again_s - self._clock())

    def client(self) -> Valkey:
        """The one of now; it is another one after a failure."""
        if self._client is None:
            from valkey.asyncio import Valkey  # 18 MB, for those who have one

            given = self._address.arguments()
            self._client = Valkey(
                **given, socket_timeout=CALL_S, socket_connect_timeout=CALL_S, decode_responses=False
            )
        return self._client

    async def call(self, work: Callable[[Valkey], Awaitable[T]]) -> T | None:
        """What `work` returns, or None: it is away, as it has been said in the log."""
        if self.wait_s > 0:
            return None
        try:
            with heeding_cancellation():
                async with asyncio.timeout(CALL_S):
                    found = await work(self.client())
        except weather() as error:
            await self.failed(error)
            return None
        self.succeeded()
        return found

    async def send(self, commands: Sequence[tuple[Any, ...]], *, at_once: bool = False) -> list[Any] | None:
        """All in one go, `at_once` as a transaction; None where it is away.  What it refuses is None each."""
        if not commands:
            return []
        from valkey.exceptions import ResponseError

        async def work(client: Valkey) -> list[Any]:
            pipe = client.pipeline(transaction=at_once)
            for command in commands:
                pipe.execute_command(*command)
            try:
                found: list[Any] = await pipe.execute(raise_on_error=False)
            except ResponseError as error:  # the whole transaction
                return [error] * len(commands)
            return found

        answers = await self.call(work)
        return None if answers is None else [self._accepted(answer) for answer in answers]

    def _accepted(self, answer: Any) -> Any:
        """A full Valkey, or a replica that takes no writes, still passes on wake-ups: it is asked on."""
        if not isinstance(answer, Exception):
            return answer
        self.problem = str(answer)
        if not self._refused:
            self._refused = True
            log.warning("%s refuses what it is told: %s; everything goes on without", self._address, answer)
        return None

    def succeeded(self) -> None:
        was_away, self._in_a_row, self.problem = self.away, 0, ""
        if was_away and not self._said_by_another:
            log.info("%s is there again", self._address)

    @property
    def _said_by_another(self) -> bool:
        return self._beside is not None and self._beside.away

    async def failed(self, error: BaseException) -> None:
        self.failures += 1
        self.problem = str(error) or type(error).__name__
        if not self.away and not self._said_by_another:
            log.warning(
                "%s is away: %s; everything goes on without it, and later", self._address, self.problem
            )
        wait_s = min(AGAIN_S_MAX, FIRST_S * 2 ** min(self._in_a_row, 16))
        self._in_a_row += 1
        self._again_s = self._clock() + wait_s * (0.5 + self._chance.fraction() / 2)
        await self.aclose()

    async def aclose(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(*weather()):
                async with asyncio.timeout(CLOSE_S):
                    await client.aclose(close_connection_pool=True)


@contextlib.contextmanager
def heeding_cancellation() -> Iterator[None]:
    """Whoever is cancelled meanwhile ends: the client swallows that at times, and its caller would go on."""
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        yield
    finally:
        if task.cancelling() > before:
            raise asyncio.CancelledError


def weather() -> tuple[type[BaseException], ...]:
    from valkey.exceptions import ValkeyError

    return (ValkeyError, OSError, TimeoutError)
