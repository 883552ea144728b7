"""What surrounds the attempts of a worker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from muster.ports.agent import Agent, Launcher
from muster.worker.workdir import Trees


class WorkerContext(Struct, frozen=True, kw_only=True):
    """What every attempt of a worker shares."""

    worker_id: str
    root: Path
    attempts_dir: Path
    reach: Mapping[str, str]
    """The variables that lead an attempt's own processes to its owner."""
    agents: Mapping[str, Agent]
    launcher: Launcher
    trees: Trees | None = None
    """How agents are kept apart; None: all work in `root`."""
    checks: Mapping[str, str] = {}
    """What each agent's work has to pass, where its task does not say."""
    reviews: Mapping[str, str] = {}
    """Who reviews each agent's work, in the same way."""
    places: Mapping[str, str] = {}
    """By agent, the template that tells it of a task's place in its plan; of those that are told."""
    rubric: str = ""
    env: Mapping[str, str] = {}
    """Of checks, which are no agent's process."""
