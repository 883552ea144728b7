"""Chance as the system gives it."""

from __future__ import annotations

import random
import secrets
import string

_LETTERS = (string.ascii_lowercase + string.digits).encode()
_WHOLE_ROUNDS = 256 - 256 % len(_LETTERS)
_BROKEN_ROUND = bytes(range(_WHOLE_ROUNDS, 256))
_LETTER_OF = (_LETTERS * (256 // len(_LETTERS) + 1))[:256]


class SystemChance:
    def __init__(self) -> None:
        # Jitter needs no secrecy, and every decided command draws one: the system's own source costs a call each.
        self._random = random.Random(secrets.randbits(128))  # noqa: S311

    def fraction(self) -> float:
        return self._random.random()

    def name(self, length: int) -> str:
        # 36 letters do not divide 256: bytes of the last, broken round are thrown away, so that all are alike.
        made = ""
        while len(made) < length:
            made += secrets.token_bytes(2 * length).translate(_LETTER_OF, _BROKEN_ROUND).decode()
        return made[:length]
