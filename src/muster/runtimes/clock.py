"""The machine's clocks and its randomness."""

from __future__ import annotations

import asyncio
import secrets
import string
import time

from muster.model.task import Now

_LETTERS = string.ascii_lowercase + string.digits


class SystemClock:
    """`mono_ms` stands still while the machine is suspended (CLOCK_MONOTONIC on Linux, mach time on macOS)."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id

    def now(self) -> Now:
        return Now(time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000, self._boot_id)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class SystemChance:
    def fraction(self) -> float:
        return secrets.randbits(53) / (1 << 53)

    def name(self, length: int) -> str:
        return "".join(secrets.choice(_LETTERS) for _ in range(length))
