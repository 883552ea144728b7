"""The machine's clocks."""

from __future__ import annotations

import asyncio
import time

from muster.model.task import Now


class SystemClock:
    """`mono_ms` stands still while the machine is suspended: CLOCK_MONOTONIC on Linux, mach time on macOS."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id

    def now(self) -> Now:
        return Now(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000, self._boot_id)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
