"""Other queues on the same PostgreSQL server, in a venv of their own, each as its documents say it is fast."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

from peers_venv import RUN_S, Venv, unless_refused
from pg_server import database
from setting import HERE, Setting
from table import Row, told

PEERS = Venv(
    "pg-peers",
    (
        "pgqueuer==1.6.0",
        "awa-pg==0.6.9",
        "dbos==3.4.0",
        "procrastinate==3.10.0",
        "asyncpg==0.32.0",
        "uvloop==0.23.0",
    ),
)


class Count(NamedTuple):
    bulk: int
    single: int
    starts: int


COUNTS = {
    "pgqueuer": Count(20_000, 500, 200),
    "awa": Count(20_000, 500, 100),
    "dbos": Count(400, 100, 50),
    "procrastinate": Count(1000, 300, 50),
}
NAMES = {"awa": "awa-pg", "dbos": "DBOS"}


class PgPeers:
    """Figures by (peer, what), one for each call of `measure`."""

    def __init__(self) -> None:
        self.figures: dict[tuple[str, str], list[float]] = {}
        self.refused: dict[str, str] = {}

    def measure(self, name: str, setting: Setting) -> None:
        found = unless_refused(self.refused, name, setting, lambda: _run(name, setting)) or {}
        for what, figure in found.items():
            self.figures.setdefault((name, what), []).append(figure)

    def of(self, name: str, what: str, setting: Setting) -> list[float]:
        """Measured now, where that has not been done in this run; empty where it was refused."""
        if (name, what) not in self.figures:
            self.measure(name, setting)
        return self.figures.get((name, what), [])

    def rows(self, what: str, title: str, unit: str, setting: Setting) -> Iterator[Row]:
        for name in COUNTS:
            row = f"{title}, {NAMES.get(name, name)}"
            if figures := self.of(name, what, setting):
                yield told(row, figures, unit)
            elif name in self.refused:
                yield Row(row, not_run=self.refused[name])


_OF_RUN: dict[int, PgPeers] = {}


def peers_of(setting: Setting) -> PgPeers:
    """Those of this run, whichever section asks."""
    return _OF_RUN.setdefault(id(setting), PgPeers())


def _run(name: str, setting: Setting) -> dict[str, float]:
    python = PEERS.python()
    with setting.place() as folder, database(setting) as url:
        argv = [python, str(HERE / "peers" / f"pg_{name}.py"), url, *map(str, COUNTS[name])]
        done = subprocess.run(argv, capture_output=True, check=True, timeout=RUN_S, cwd=folder)
    figures: dict[str, float] = json.loads(done.stdout.decode().strip().splitlines()[-1])
    return figures
