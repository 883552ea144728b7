"""What all actors of a simulation are given."""

from __future__ import annotations

from dataclasses import dataclass

from muster.testing.sim.network import Network
from muster.testing.sim.oracle import Oracle
from muster.testing.sim.world import World


@dataclass(frozen=True)
class Stage:
    world: World
    network: Network
    oracle: Oracle
