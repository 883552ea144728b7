"""`muster serve` that is killed before a step of a rotation: `killed_server.py NUMBER serve ...`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from muster.cli.main import main
from muster.engine.commands import Applied, Engine
from muster.hosts import vault
from muster.model import commands as c
from muster.model.task import Now
from muster.ports.engine import Asked

_STEPS = (c.TakeKey, c.Reseal, c.ResealInputs, c.GiveUpKeys)


class Steps:
    left = int(sys.argv[1])

    @classmethod
    def take(cls) -> None:
        if cls.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        cls.left -= 1


apply, write = Engine.apply, vault.replace_plain


async def counted_apply(self: Engine, asked: Sequence[Asked], now: Now) -> Applied:
    if isinstance(asked[0].command, _STEPS):
        Steps.take()
    return await apply(self, asked, now)


def counted_write(path: Path, content: bytes, **options: Any) -> None:
    Steps.take()
    write(path, content, **options)


Engine.apply = counted_apply  # type: ignore[method-assign]
vault.replace_plain = counted_write
sys.exit(main(sys.argv[2:]))
