"""From `[agents.NAME]` to an agent."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import count

from msgspec.structs import replace

from muster.agents.command import CommandAgent
from muster.agents.streaming import StreamingAgent
from muster.agents.transcript import Reader
from muster.app.settings import KINDS
from muster.config.project import Project
from muster.config.settings import COMMAND, OWN_HOME, AgentConfig, Config
from muster.hosts.file_lock import Lock
from muster.model.errors import BadConfig, MusterError, OwnerUnavailable
from muster.ports.agent import Agent, Home

NO_SEAT = 0
"""Of commands that try an agent, and of workers none of whose agents has a HOME of its own."""


def agents_of(config: Config, project: Project, seat: int = NO_SEAT) -> Mapping[str, Agent]:
    """For the worker in this seat.  Raises BadConfig for a kind whose package cannot be used."""
    return {name: agent_of(agent, config, project, seat) for name, agent in config.agents.items()}


def agent_of(agent: AgentConfig, config: Config, project: Project, seat: int = NO_SEAT) -> Agent:
    """Raises BadConfig as agents_of."""
    stall_after_s = config.health.stall_after_s if agent.stall_after_s is None else agent.stall_after_s
    agent = replace(agent, limits=replace(agent.limits, stall_after_s=stall_after_s or None))
    home = home_of(agent, project, seat)
    if agent.kind == COMMAND:
        return CommandAgent(agent, home)
    try:
        made = KINDS[agent.kind].make(agent, home)
        return replace(made, reader=partial(reader_of, config)) if isinstance(made, StreamingAgent) else made
    except MusterError:
        raise
    except Exception as error:
        # It may be somebody else's code: whatever it raises is about this agent, not about Muster.
        raise BadConfig(
            f"muster.toml: agents.{agent.name}: kind {agent.kind!r} cannot be used: {error!r}",
            "see the package that brings it",
        ) from error


def reader_of(config: Config, agent: str = "", kind: str = "") -> Reader:
    """How the output of this agent is read: plain for a command, else as its kind does.  What that does not know,
    and an agent that is not configured, is read as any other kind does: it may have reviewed the work.

    `kind` is what its worker has said, whose settings may be others; empty: nothing.
    """
    configured = config.agents.get(agent)
    own = kind or (configured.kind if configured else "")
    if own == COMMAND or (own in KINDS and KINDS[own].entries is None):
        return Reader()
    others = {one.kind for one in config.agents.values() if one.kind != COMMAND}
    names = [own, *sorted(others - {own})] if own in KINDS else sorted(KINDS)
    return Reader(tuple(entries for name in names if (entries := KINDS[name].entries) is not None))


def home_of(agent: AgentConfig, project: Project, seat: int = NO_SEAT) -> Home | None:
    """Where that is not the user's."""
    if agent.home != OWN_HOME:
        return None
    folder = project.homes_dir / agent.name
    return Home(path=folder / str(seat), shared=folder / "shared")


def take_seat(config: Config, project: Project) -> int:
    """A number that no other living worker of this project has, held until this process ends.

    Names of workers are never used again, seats are: so what an agent keeps in its HOME is there after a restart.
    """
    if not any(agent.home == OWN_HOME for agent in config.agents.values()):
        return NO_SEAT
    project.seats_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    for seat in count(NO_SEAT + 1):
        try:
            Lock.take(project.seats_dir / str(seat))
        except OwnerUnavailable:
            continue
        return seat
    raise AssertionError("there is always another number")
