"""Virtual time: an event loop without waiting, processes that can be stopped and killed, named randomness."""

from __future__ import annotations

import hashlib
import heapq
import random
import string
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Protocol

from muster.model.task import Now

TRACE_LINES_KEPT = 400
START_WALL_MS = 1_800_000_000_000
START_MONO_MS = 50_000
BOOT_MONO_MS = 5_000
"""What a machine's own clock shows when its owner first runs after a boot."""

_LETTERS = string.ascii_lowercase + string.digits


class Violation(Exception):
    """A promise is broken."""

    def __init__(self, promise: str, what: str) -> None:
        super().__init__(f"{promise}: {what}")
        self.promise = promise
        self.what = what


class Resume(Protocol):
    """Goes on with a fiber that has suspended itself, once."""

    def __call__(self, value: Any = None, error: BaseException | None = None) -> None: ...


Begin = Callable[[Resume], None]


class Suspend(Awaitable[Any]):
    """`await Suspend(begin)`: the fiber stands still until what `begin` has begun resumes it."""

    def __init__(self, begin: Begin) -> None:
        self._begin = begin

    def __await__(self) -> Generator[Begin, Any, Any]:
        return (yield self._begin)


class World:
    """The clock, the queue of what is to happen, and the record of what has."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.ms = 0
        self.step = 0
        self.wall_ahead_ms = START_WALL_MS
        self.mono_ahead_ms = START_MONO_MS
        self.boot = 1
        self.faults: Counter[str] = Counter()
        self.marks: Counter[str] = Counter()
        self.lines: deque[str] = deque(maxlen=TRACE_LINES_KEPT)
        self._digest = hashlib.blake2b(digest_size=16)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._pushed = 0
        self._streams: dict[str, random.Random] = {}

    def now(self) -> Now:
        return Now(self.ms + self.wall_ahead_ms, self.ms + self.mono_ahead_ms, f"boot-{self.boot}")

    def reboot(self) -> None:
        self.boot += 1
        self.mono_ahead_ms = BOOT_MONO_MS - self.ms

    def stream(self, name: str) -> random.Random:
        """The randomness of one concern: taking another concern away does not change its numbers."""
        found = self._streams.get(name)
        if found is None:
            # A text is hashed by SHA-512: the same under every PYTHONHASHSEED.
            found = self._streams[name] = random.Random(f"{self.seed}/{name}")  # noqa: S311
        return found

    def after(self, ms: float, act: Callable[[], None]) -> None:
        self._pushed += 1
        heapq.heappush(self._queue, (self.ms + max(0, round(ms)), self._pushed, act))

    def run(self, until_ms: int, done: Callable[[], bool] = lambda: False) -> None:
        while self._queue and self._queue[0][0] <= until_ms and not done():
            self.ms, _, act = heapq.heappop(self._queue)
            self.step += 1
            act()

    def trace(self, line: str) -> None:
        text = f"{self.step} {self.ms} {line}"
        self._digest.update(text.encode())
        self.lines.append(text)

    def fault(self, kind: str, line: str = "") -> None:
        self.faults[kind] += 1
        self.trace(f"FAULT {kind} {line}")

    def mark(self, name: str) -> None:
        """Something that the seeds must reach sometimes, or they prove nothing about it."""
        self.marks[name] += 1

    def digest(self) -> str:
        return self._digest.hexdigest()


class Process:
    """Nothing that belongs to it happens while it is stopped, and never again once it is killed."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = True
        self.started_ms = world.ms
        self.stopped = 0
        self._backlog: deque[Callable[[], None]] = deque()

    def do(self, act: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self.stopped:
            self._backlog.append(act)
        else:
            act()

    def after(self, ms: float, act: Callable[[], None]) -> None:
        self.world.after(ms, lambda: self.do(act))

    def stop(self, for_ms: float) -> None:
        self.stopped += 1
        self.world.after(for_ms, self.go_on)

    def go_on(self) -> None:
        self.stopped -= 1
        while self._backlog and self.alive and not self.stopped:
            self._backlog.popleft()()

    def kill(self) -> None:
        self.alive = False
        self._backlog.clear()


class Fiber:
    """A coroutine that lives in a process and suspends itself by `Suspend` only."""

    def __init__(
        self,
        process: Process,
        work: Coroutine[Begin, Any, Any],
        *,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._process = process
        self._work = work
        self._on_error = on_error
        if not process.alive:
            work.close()
            return
        process.do(lambda: self._step(None, None))

    def _step(self, value: Any, error: BaseException | None) -> None:
        try:
            begin = self._work.send(value) if error is None else self._work.throw(error)
        except StopIteration:
            return
        except Exception as failure:
            if self._on_error is None or isinstance(failure, Violation):
                raise
            self._on_error(failure)
            return
        begin(self._once())

    def _once(self) -> Resume:
        spent = False

        def resume(value: Any = None, error: BaseException | None = None) -> None:
            nonlocal spent
            if not spent:
                spent = True
                self._process.do(lambda: self._step(value, error))

        return resume


def sleeping(world: World, seconds: float) -> Suspend:
    return Suspend(lambda resume: world.after(seconds * 1000, resume))


class SimClock:
    """ports.clock.Clock."""

    def __init__(self, world: World) -> None:
        self._world = world

    def now(self) -> Now:
        return self._world.now()

    async def sleep(self, seconds: float) -> None:
        await sleeping(self._world, seconds)


class SimChance:
    """ports.clock.Chance."""

    def __init__(self, world: World, stream: str) -> None:
        self._random = world.stream(stream)

    def fraction(self) -> float:
        return self._random.random()

    def name(self, length: int) -> str:
        return "".join(self._random.choice(_LETTERS) for _ in range(length))
