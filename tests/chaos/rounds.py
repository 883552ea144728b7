"""Rounds of faults against a crew that always has something to do."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple

from client import Client, Operation
from figures import Figures, figures, unexplained
from rig import OPEN, Rig, spec
from shared_faults import SHARED_FAULTS
from verdict import findings_of, history_of

from faults import FAULTS, Fault, Scene
from muster.testing.promises import Finding
from patience import until

WORKERS = 3
PIECES = 6
PIECE_S = 0.1
PLAN_TASKS = 12
PARENTS_MAX = 3
END_LIMIT_S = 600.0
FAULTS_OF = {"sqlite": FAULTS, "postgres": SHARED_FAULTS}
"""By the name of the store."""


@dataclass(frozen=True, kw_only=True)
class Report:
    seed: int
    rounds: int
    took_s: float
    findings: list[Finding]
    figures: Figures
    operations: list[Operation]

    @property
    def broken(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.holds]


def random_plan(chance: random.Random) -> list[dict[str, Any]]:
    """A graph without cycles: each task waits for up to three earlier ones."""
    tasks = []
    for n in range(PLAN_TASKS):
        count = min(n, chance.choice((0, 0, 1, 1, 2, PARENTS_MAX)))
        after = tuple(f"t{parent}" for parent in chance.sample(range(n), count))
        # All of one priority: what was cut off is the oldest, and so the next to be taken.
        tasks.append(spec(f"t{n}", after))
    return tasks


def chosen(seed: int, rounds: int, backend: str = "sqlite") -> list[str]:
    """Which faults, in which order: every kind once where there is room, the others by their weights."""
    chance = random.Random(seed)
    names = list(FAULTS_OF[backend])
    weights = [weight for weight, _ in FAULTS_OF[backend].values()]
    drawn = chance.choices(names, weights, k=max(0, rounds - len(names)))
    order = [*(names if rounds >= len(names) else chance.sample(names, rounds)), *drawn]
    chance.shuffle(order)
    return order


def feed(rig: Rig, chance: random.Random) -> None:
    if len(rig.tasks(*OPEN)) < PLAN_TASKS:
        rig.add(f"plan{time.time_ns()}", random_plan(chance))


def run(
    root: Path,
    rounds: int,
    seed: int,
    *,
    backend: str = "sqlite",
    faults_named: Sequence[str] = (),
    say: Callable[[str], None] = lambda _: None,
    enough: Callable[[], bool] = lambda: False,
) -> Report:
    """`faults_named`: these, instead of those that the seed chooses.  `enough`: no more of them."""
    began_s = time.monotonic()
    rig = Rig(root, pieces=PIECES, piece_s=PIECE_S, backend=backend)
    names = faults_named or chosen(seed, rounds, backend)
    try:
        try:
            rig.up(WORKERS)
            struck = _strike(rig, takewhile(lambda _: not enough(), names), backend, seed, say)
        finally:
            rig.down()
        took_s = time.monotonic() - began_s
        return _judged(rig, struck, seed=seed, rounds=len(struck.faults), took_s=took_s)
    finally:
        rig.backend.end()


class _Struck(NamedTuple):
    client: Client
    faults: list[Fault]
    stuck: list[str]
    """Why it did not come to the end."""


def _strike(rig: Rig, names: Iterable[str], backend: str, seed: int, say: Callable[[str], None]) -> _Struck:
    chance = random.Random(seed + 1)
    struck = _Struck(Client(rig, seed + 2), [], [])
    scene = Scene(rig, chance, WORKERS, PIECES, lambda: feed(rig, chance))
    try:
        for number, name in enumerate(names, 1):
            scene.feed()
            round_s = time.monotonic()
            struck.faults.append(FAULTS_OF[backend][name][1](scene))
            say(f"{number:>4} {time.monotonic() - round_s:>6.2f} s  {struck.faults[-1].kind}")
        struck.client.close()
        until(lambda: not rig.tasks(*OPEN), "everything is done", END_LIMIT_S)
    except Exception:
        struck.stuck.append(f"round {len(struck.faults) + 1}: {traceback.format_exc()}")
        say(struck.stuck[0])
    finally:
        struck.client.close()
    return struck


def _judged(rig: Rig, struck: _Struck, **run: Any) -> Report:
    client, faults, stuck = struck
    beside = {one for fault in faults for one in fault.beside}
    history = history_of(rig, beside)
    findings = [
        Finding(promise="L4", says="the crew got over every fault", looked_at=len(faults), violations=stuck),
        *findings_of(rig, history, client.operations, pieces=PIECES, beside=beside),
        unexplained(history, faults),
        Finding(
            promise="500",
            says="no request ran into a bug",
            looked_at=len(client.operations),
            violations=client.problems,
        ),
    ]
    found = figures(history, faults, client.operations, findings)
    return Report(findings=findings, figures=found, operations=client.operations, **run)
