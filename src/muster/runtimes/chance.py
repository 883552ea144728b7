"""The machine's randomness."""

from __future__ import annotations

import secrets
import string

_LETTERS = string.ascii_lowercase + string.digits


class SystemChance:
    def fraction(self) -> float:
        return secrets.randbits(53) / (1 << 53)

    def name(self, length: int) -> str:
        return "".join(secrets.choice(_LETTERS) for _ in range(length))
