"""What one seed turns on: a random subset of the faults at random rates, and settings at their extremes."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field

from muster.engine.policy import Policy
from muster.model.retry import RetryPolicy
from muster.testing.sim.world import World

RATES: dict[str, tuple[float, float]] = {
    # per minute of virtual time
    "worker_crash": (0.1, 3.0),
    "worker_pause": (0.1, 2.0),
    "agent_killed": (0.1, 2.0),
    "owner_stall": (0.1, 1.0),
    "owner_killed": (0.05, 1.0),
    "takeover": (0.05, 0.5),
    "wall_jump": (0.05, 0.5),
    "reboot": (0.02, 0.2),
    "disk_full": (0.05, 0.4),
    "crew_stop": (0.05, 0.3),
    "cancel": (0.2, 4.0),
    "retry": (0.2, 4.0),
    "by_hand": (0.2, 3.0),
    "retry_now": (0.2, 2.0),
    "plan_again": (0.2, 1.5),
    # per message or per commit
    "request_lost": (0.005, 0.2),
    "answer_lost": (0.005, 0.2),
    "message_twice": (0.01, 0.2),
    "message_late": (0.01, 0.2),
    "crash_before_commit": (0.0005, 0.01),
    "crash_after_commit": (0.0005, 0.01),
    "crash_after_answer": (0.0005, 0.01),
    # per attempt
    "agent_fails": (0.05, 0.9),
    "agent_unfit": (0.01, 0.1),
    "agent_declares": (0.1, 0.8),
}
"""Every kind of fault with the lowest and the highest rate at which a seed may have it."""

MINUTELY = frozenset(list(RATES)[: list(RATES).index("request_lost")])
DESTRUCTIVE_SHARE = 0.55
"""How likely a seed is to have any one kind of fault."""


@dataclass(frozen=True, kw_only=True)
class Knobs:
    rates: dict[str, float]
    policy: Policy
    sweep_s: float
    commit_ms: int
    """How long a commit takes; what arrives meanwhile is the next batch."""
    late_ms: int
    """How late a late message may be."""
    call_timeout_s: float
    poll_s: float
    workers: int
    slots: int
    greedy: bool
    """Workers claim for all their free slots at once."""
    remote_share: float
    tasks_max: int
    edges_max: int
    max_retries: int
    work_s: float
    run_s: float
    off: frozenset[str] = field(default_factory=frozenset)

    def rate(self, fault: str) -> float:
        return 0.0 if fault in self.off else self.rates.get(fault, 0.0)


def _policy(chance: random.Random) -> Policy:
    lease_s = chance.choice([2.0, 6.0, 15.0, 15.0, 60.0])
    retry = RetryPolicy(
        first_s=chance.choice([0.001, 0.01, 0.2, 1.0, 30.0]),
        cap_s=chance.choice([0.05, 1.0, 5.0, 60.0]),
        losses_max=chance.choice([1, 2, 5, 5, 1000]),
    )
    return Policy(retry=retry, lease_s=lease_s, heartbeat_s=lease_s / 3)


def knobs_of(world: World, off: Collection[str] = ()) -> Knobs:
    chance = world.stream("knobs")
    rates: dict[str, float] = {}
    for fault, (low, high) in RATES.items():
        on, rate = chance.random() < DESTRUCTIVE_SHARE, chance.uniform(low, high)
        if on:
            rates[fault] = rate
    policy = _policy(chance)
    return Knobs(
        rates=rates,
        policy=policy,
        sweep_s=chance.choice([0.5, 0.5, 1.0]),
        commit_ms=chance.choice([1, 5, 20, 100, 400]),
        late_ms=chance.choice([50, 1000, int(policy.lease_s * 1500)]),
        call_timeout_s=min(policy.heartbeat_s, chance.choice([0.7, 2.0, 5.0])),
        poll_s=chance.choice([0.5, 1.0, 3.0]),
        workers=chance.randint(1, 6),
        slots=chance.choice([1, 1, 2, 3, 8]),
        greedy=chance.random() < 0.5,
        remote_share=chance.choice([0.0, 0.0, 0.3]),
        tasks_max=chance.choice([3, 8, 20]),
        edges_max=chance.choice([0, 1, 2, 4]),
        max_retries=chance.choice([0, 1, 3, 3, 1000]),
        work_s=chance.choice([0.3, 2.0, 8.0]),
        run_s=chance.choice([60.0, 180.0, 400.0]),
        off=frozenset(off),
    )
