"""Rounds of faults against a crew that always has something to do."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from client import Client, Operation
from figures import Figures, figures, unexplained
from rig import OPEN, Rig, spec
from verdict import findings_of, history_of

from faults import FAULTS, Fault, Scene
from muster.testing.promises import Finding
from patience import until

WORKERS = 3
PIECES = 6
PIECE_S = 0.1
PLAN_TASKS = 12
PARENTS_MAX = 3
END_LIMIT_S = 180.0


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


def chosen(seed: int, rounds: int) -> list[str]:
    """Which faults, in which order: every kind once where there is room, the others by their weights."""
    chance = random.Random(seed)
    names = list(FAULTS)
    weights = [weight for weight, _ in FAULTS.values()]
    drawn = chance.choices(names, weights, k=max(0, rounds - len(names)))
    order = [*names[:rounds], *drawn]
    chance.shuffle(order)
    return order


def run(
    root: Path,
    rounds: int,
    seed: int,
    *,
    backend: str = "sqlite",
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    began_s = time.monotonic()
    chance = random.Random(seed + 1)
    rig = Rig(root, pieces=PIECES, piece_s=PIECE_S, backend=backend)
    faults: list[Fault] = []
    stuck: list[str] = []
    client: Client | None = None
    try:
        rig.up(WORKERS)
        client = Client(rig, seed + 2)
        scene = Scene(rig, chance, WORKERS, PIECES)
        for number, name in enumerate(chosen(seed, rounds), 1):
            if len(rig.tasks(*OPEN)) < PLAN_TASKS:
                rig.add(f"plan{number}", random_plan(chance))
            round_s = time.monotonic()
            faults.append(FAULTS[name][1](scene))
            say(f"{number:>4} {time.monotonic() - round_s:>6.2f} s  {faults[-1].kind}")
        client.close()
        until(lambda: not rig.tasks(*OPEN), "everything is done", END_LIMIT_S)
    except Exception:
        stuck.append(f"round {len(faults) + 1}: {traceback.format_exc()}")
    finally:
        if client is not None:
            client.close()
        rig.down()
    operations = client.operations if client else []
    history = history_of(rig)
    findings = [
        Finding(promise="L4", says="the crew got over every fault", looked_at=len(faults), violations=stuck),
        *findings_of(rig, history, operations, pieces=PIECES),
        unexplained(history, faults),
        Finding(
            promise="500",
            says="no request ran into a bug",
            looked_at=len(operations),
            violations=client.problems if client else [],
        ),
    ]
    rig.backend.end()
    return Report(
        seed=seed,
        rounds=rounds,
        took_s=time.monotonic() - began_s,
        findings=findings,
        figures=figures(history, faults, operations, findings),
        operations=operations,
    )
