"""The machine's clocks."""

from __future__ import annotations

import asyncio
import time

from muster.model.task import Now

_COUNTS_SUSPEND: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has a clock of its own for that; macOS's CLOCK_MONOTONIC counts suspend, unlike `time.monotonic`."""


class SystemClock:
    """`mono_ms` stands still while the machine is suspended: CLOCK_MONOTONIC on Linux, mach time on macOS."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id

    def now(self) -> Now:
        return Now(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000, self._boot_id)

    def utc_offset_s(self, at_ms: int) -> int:
        return time.localtime(at_ms / 1000).tm_gmtoff

    def elapsed_ms(self) -> int:
        """Since the boot, suspend included."""
        return time.clock_gettime_ns(_COUNTS_SUSPEND) // 1_000_000

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
