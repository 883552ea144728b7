"""How large a run is, and where it works."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from shutil import rmtree
from typing import TypeVar

T = TypeVar("T")

CONTENTION_CPU_S = 0.1

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Setting:
    quick: bool
    folder: Path
    peers: bool
    prefix: tuple[str, ...] = ()
    """Of the commands that are measured."""
    ending: ExitStack = field(default_factory=ExitStack)
    """What ends with the run."""
    servers: dict[str, str] = field(default_factory=dict)
    """Addresses of those that were started for it, by kind."""
    _numbers: Iterator[int] = field(default_factory=count)

    def size(self, full: T, quick: T) -> T:
        return quick if self.quick else full

    @property
    def repetitions(self) -> int:
        return self.size(3, 1)

    @contextmanager
    def place(self) -> Iterator[Path]:
        """An empty folder that is gone afterwards.  Its path is short enough for a socket."""
        made = self.folder / str(next(self._numbers))
        made.mkdir()
        try:
            yield made
        finally:
            rmtree(made, ignore_errors=True)


def environment(folder: Path) -> dict[str, str]:
    """For processes as a user has them: with bytecode, and nothing of our own settings."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("MUSTER_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return kept | {
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "XDG_CONFIG_HOME": str(folder / "no-settings"),
    }


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def contention() -> float:
    """How many times longer than its CPU time a busy loop takes: 1.0 on a machine that nobody else uses."""
    watch = Stopwatch()
    while watch.cpu_s < CONTENTION_CPU_S:
        sum(range(1000))
    return watch.s / watch.cpu_s


class Stopwatch:
    """Wall and CPU seconds of this process since it was made."""

    def __init__(self) -> None:
        self._wall = time.perf_counter()
        self._cpu = time.process_time()

    @property
    def s(self) -> float:
        return time.perf_counter() - self._wall

    @property
    def cpu_s(self) -> float:
        return time.process_time() - self._cpu
