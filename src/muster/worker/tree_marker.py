"""What a working tree says of the attempt that has begun in it, in git's own folder for it."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

MARKER = "muster-attempt"


class Begun(NamedTuple):
    epoch: int
    base: str
    plan: str
    key: str

    @classmethod
    def read(cls, said: str, plan: str, key: str) -> Begun:
        """A build before the first release has not named the task: then it is the one that looks.

        Raises ValueError, also where nobody in particular looks.
        """
        epoch, base, *named = said.split()
        if named or not key:
            plan, key = map(unquote, named)
        return cls(int(epoch), base, plan, key)

    def said(self) -> str:
        return f"{self.epoch} {self.base} {quote(self.plan)} {quote(self.key)}\n"
