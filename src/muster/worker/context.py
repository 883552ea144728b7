"""What surrounds the attempts of a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from muster.model.answers import ClaimedJob
from muster.ports.agent import Agent, Launcher
from muster.ports.crew import Crew
from muster.worker.git import Repository
from muster.worker.given import SecretsOfAgents
from muster.worker.room import Room
from muster.worker.upstream import Ask, AttemptUpstream, Upstream
from muster.worker.workdir import Trees


class FarTrees(Struct, frozen=True):
    upstream: Upstream
    host: str
    rules: Callable[[Repository], Trees]

    def trees(self, crew: Crew, job: ClaimedJob, ask: Ask[Any]) -> Trees | None:
        """As the server's repository is now; None where tasks have no trees.  Raises as `Upstream.bring`."""
        repository = self.upstream.bring(job, ask)
        if repository is None:
            return None
        own = AttemptUpstream(upstream=self.upstream, crew=crew, job=job, ask=ask, host=self.host)
        return replace(self.rules(repository), upstream=own)


class WorkerContext(Struct, frozen=True, kw_only=True):
    """What every attempt of a worker shares."""

    worker_id: str
    root: Path
    attempts_dir: Path
    reach: Callable[[], Mapping[str, str]]
    """The variables that lead an attempt's own processes to its owner, as things are now."""
    agents: Mapping[str, Agent]
    launcher: Launcher
    trees: Trees | None = None
    """How agents are kept apart; None: all work in `root`, or `upstream` says."""
    upstream: FarTrees | None = None
    """For a server of another host: how agents are kept apart there."""
    checks: Mapping[str, str] = {}
    """What each agent's work has to pass, where its task does not say."""
    reviews: Mapping[str, str] = {}
    """Who reviews each agent's work, in the same way."""
    places: Mapping[str, str] = {}
    """By agent, the template that tells it of a task's place in its plan; of those that are told."""
    given: SecretsOfAgents = field(default_factory=lambda: SecretsOfAgents({}))
    """Secrets of its agents."""
    rubric: str = ""
    room: Room = field(default_factory=Room)
    """Whether anything can begin on this host."""
    env: Mapping[str, str] = {}
    """Of checks, which are no agent's process."""
