"""What all actors of a simulation are given."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.network import Network
from simulator.oracle import Oracle
from simulator.world import World


@dataclass(frozen=True)
class Stage:
    world: World
    network: Network
    oracle: Oracle
