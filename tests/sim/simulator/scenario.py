"""What one seed is: sizes, times and which faults there are, drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

from msgspec import structs

from muster.engine.policy import Policy
from muster.model.retry import RetryPolicy

AGENTS = ("claude", "codex", "shell")
FAULTS = (
    "worker_crash",
    "worker_pause",
    "agent_crash",
    "owner_crash",
    "owner_pause",
    "deposed",
    "reboot",
    "partition",
    "wall_jump",
    "suspend",
    "store_full",
    "drain",
)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    seed: int
    policy: Policy
    hosts: int
    workers: int
    slots: int
    tasks: int
    busy_s: float
    """How long users and faults are at work, in virtual seconds."""
    user_every_s: float
    fault_every_s: float
    faults: tuple[str, ...]
    loss: float
    """Chance that a request or an answer between two machines is lost."""
    double: float
    """Chance that a request arrives twice."""
    slow: float
    """Chance that a request or an answer takes seconds, not milliseconds."""
    failing: float
    """Chance that an agent's run ends badly."""
    asking: float
    disk_s: float
    """How long a commit takes at most."""
    crowded: bool = False
    """Tasks wait for nothing, and all agents have something to do."""


def stream(seed: int, name: str) -> Random:
    """Each actor draws from a stream of its own: one more draw here changes nothing there."""
    return Random(f"{seed}:{name}")


CROWDED = 1000
"""From this seed on, harsh scenarios have enough agents for most of them to fall silent at once."""


def crowded(scenario: Scenario) -> Scenario:
    return replace(
        scenario,
        hosts=4,
        workers=8,
        slots=3,
        tasks=300,
        faults=("blackout", "worker_crash", "agent_crash"),
        loss=0.0,
        asking=0.0,
        failing=0.0,
        user_every_s=0.5,
        fault_every_s=6.0,
        crowded=True,
    )


FLAPPING = 2000
"""From this seed on, harsh scenarios have a store that is full again and again, for a moment each time."""


def flapping(scenario: Scenario) -> Scenario:
    return replace(
        scenario,
        workers=6,
        faults=("store_flap", "worker_crash"),
        loss=0.0,
        slow=0.0,
        asking=0.0,
        fault_every_s=2.0,
        busy_s=60.0,
        disk_s=0.004,
    )


def harsh(seed: int) -> Scenario:
    """Every kind of fault at once, much of it: for planted bugs, which are to be found soon."""
    plain = scenario(seed)
    policy = structs.replace(
        plain.policy,
        limits={"deploy": 1},
        agent_slots={"codex": 1},
        lease_s=4.0,
        heartbeat_s=4.0 / 3,
        claim_lease_s=6.0,
    )
    made = replace(
        plain,
        policy=policy,
        hosts=3,
        workers=5,
        slots=2,
        tasks=30,
        user_every_s=0.5,
        fault_every_s=2.0,
        faults=FAULTS,
        loss=0.15,
        double=0.15,
        slow=0.1,
        failing=0.5,
        asking=0.1,
        disk_s=0.004 if seed % 3 == 1 else 0.4,
    )
    if seed >= FLAPPING:
        return flapping(made)
    return crowded(made) if seed >= CROWDED else made


def scenario(seed: int) -> Scenario:
    dice = stream(seed, "scenario")
    lease_s = dice.choice((4.0, 6.0, 12.0, 20.0))
    hosts = dice.choice((1, 1, 2, 3))
    limits: Mapping[str, int] = {"deploy": 1} if dice.random() < 0.5 else {}
    policy = Policy(
        retry=RetryPolicy(first_s=dice.choice((1.0, 2.0)), cap_s=dice.choice((4.0, 8.0)), losses_max=20),
        lease_s=lease_s,
        heartbeat_s=lease_s / 3,
        claim_lease_s=lease_s * 1.5,
        hostname="host-0",
        agent_slots={"codex": 1} if dice.random() < 0.4 else {},
        limits=limits,
        failures_max=dice.choice((0, 5)),
    )
    made = Scenario(
        seed=seed,
        policy=policy,
        hosts=hosts,
        workers=max(hosts, dice.randint(1, 4)),
        slots=dice.choice((1, 1, 2, 3)),
        tasks=dice.randint(8, 24),
        busy_s=dice.choice((30.0, 45.0, 60.0)),
        user_every_s=dice.choice((0.5, 1.0, 2.0)),
        fault_every_s=dice.choice((2.0, 4.0, 8.0)),
        faults=tuple(fault for fault in FAULTS if dice.random() < 0.5),
        loss=dice.choice((0.0, 0.05, 0.15, 0.3)),
        double=dice.choice((0.0, 0.05, 0.15)),
        slow=dice.choice((0.0, 0.02, 0.1)),
        failing=dice.choice((0.05, 0.2, 0.5)),
        asking=dice.choice((0.0, 0.1)),
        disk_s=dice.choice((0.004, 0.004, 0.4)),
    )
    return crowded(made) if seed % 10 == 7 else made
