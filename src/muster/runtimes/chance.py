"""The machine's randomness."""

from __future__ import annotations

import random
import secrets
import string

_LETTERS = string.ascii_lowercase + string.digits


class SystemChance:
    def __init__(self) -> None:
        # Jitter needs no secrecy, and every decided command draws one: the system's own source costs a call each.
        self._random = random.Random(secrets.randbits(128))  # noqa: S311

    def fraction(self) -> float:
        return self._random.random()

    def name(self, length: int) -> str:
        return "".join(secrets.choice(_LETTERS) for _ in range(length))
