"""Simulated machines: clocks that jump and sleep, processes that stop, die and leave children behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol

from muster.model.task import Now
from muster.ports.host import ProcessId

WALL_0_MS = 1_800_000_000_000
BOOTED_MS = 100_000
"""What the monotonic clock of a machine shows when the simulation begins."""


class Around(Protocol):
    """What machines need of the world that they are in."""

    @property
    def time_s(self) -> float: ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...

    def trace(self, line: str) -> None: ...


class Process:
    """Its coroutines run only while it is alive, not stopped, and its machine is awake."""

    def __init__(
        self,
        host: SimHost,
        name: str,
        marks: frozenset[str] = frozenset(),
        *,
        elsewhere: bool = False,
        ended: asyncio.Event | None = None,
    ) -> None:
        self.host = host
        self.name = name
        self.marks = marks
        self.id = host.next_pid()
        self.alive = True
        self.died_s: float | None = None
        self.ended = ended or asyncio.Event()
        self.elsewhere = elsewhere
        """It only speaks from this machine: a reboot of it does not end this process."""
        self.stood_ms: tuple[int, int] = (0, 0)
        """From when to when it stood still last, on its machine's monotonic clock."""
        self._stops = 0
        self._stopped_ms = 0
        self._going = asyncio.Event()
        self._going.set()
        self._tasks: list[asyncio.Task[None]] = []
        host.processes[self.id.pid] = self
        if host.asleep:
            self.stop()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(self.host.world.spawn(work))

    @property
    def running(self) -> bool:
        return self.alive and not self._stops

    async def going(self) -> None:
        while self._stops:
            await self._going.wait()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.going()

    def stop(self) -> None:
        """SIGSTOP, or the machine falls asleep; each needs a `cont` of its own."""
        if not self._stops:
            self._stopped_ms = self.host.now().mono_ms
        self._stops += 1
        self._going.clear()

    def cont(self) -> None:
        self._stops -= 1
        if not self._stops:
            self.stood_ms = (self._stopped_ms, self.host.now().mono_ms)
            self._going.set()

    def kill(self) -> None:
        if not self.alive:
            return
        self.alive = False
        self.ended.set()
        self.died_s = self.host.world.time_s
        self.host.processes.pop(self.id.pid, None)
        self.host.world.trace(f"kill {self.name}")
        for task in self._tasks:
            task.cancel()


class SimHost:
    """One machine; fulfils `ports.host.Host` for whoever runs on it, and `ports.clock.Clock` in part."""

    def __init__(self, world: Around, number: int) -> None:
        self.world = world
        self.number = number
        self.hostname = f"host-{number}"
        self.processes: dict[int, Process] = {}
        self.wall_offset_ms = 0
        self.cut_off = False
        self._boots = 1
        self._booted_ms = -BOOTED_MS
        self._pids = 100
        self._asleep_ms = -BOOTED_MS
        self._slept_at_s: float | None = None

    @property
    def boot_id(self) -> str:
        return f"boot-{self.number}-{self._boots}"

    @property
    def asleep(self) -> bool:
        return self._slept_at_s is not None

    def next_pid(self) -> ProcessId:
        self._pids += 1
        return ProcessId(self._pids, 7)

    def now(self) -> Now:
        """The monotonic clock stands still while the machine sleeps."""
        present_ms = int(self.world.time_s * 1000)
        awake_ms = present_ms if self._slept_at_s is None else int(self._slept_at_s * 1000)
        return Now(WALL_0_MS + present_ms + self.wall_offset_ms, awake_ms - self._asleep_ms, self.boot_id)

    def elapsed_ms(self) -> int:
        """Since the boot, suspend included."""
        return int(self.world.time_s * 1000) - self._booted_ms

    def sleep_now(self) -> None:
        self._slept_at_s = self.world.time_s
        for process in self.processes.values():
            process.stop()

    def wake(self) -> None:
        assert self._slept_at_s is not None
        self._asleep_ms += int(self.world.time_s * 1000) - int(self._slept_at_s * 1000)
        self._slept_at_s = None
        for process in self.processes.values():
            process.cont()

    def reboot(self) -> None:
        for process in list(self.processes.values()):
            if not process.elsewhere:
                process.kill()
        self._boots += 1
        self._asleep_ms = self._booted_ms = int(self.world.time_s * 1000) - 1_000

    # -- ports.host.Host

    def identify(self, pid: int) -> ProcessId | None:
        process = self.processes.get(pid)
        return process.id if process else None

    def alive(self, process: ProcessId) -> bool:
        return process.pid in self.processes

    def marked(self, marks: Iterable[str]) -> dict[str, list[ProcessId]]:
        return {mark: [p.id for p in self._carrying(mark)] for mark in marks}

    def kill_marked(self, marks: Iterable[str]) -> int:
        found = [process for mark in marks for process in self._carrying(mark)]
        for process in found:
            process.kill()
        return len(found)

    def _carrying(self, mark: str) -> list[Process]:
        return [process for process in self.processes.values() if mark in process.marks]
