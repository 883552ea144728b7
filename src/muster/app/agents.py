"""From `[agents.NAME]` to an agent: the kinds that Muster brings, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module
from itertools import count
from typing import cast

from muster.agents.command import EXIT_CODES, CommandAgent, Prompt
from muster.agents.inputs import Home
from muster.config.agents import KINDS_GROUP
from muster.config.kinds import COMMAND, KINDS
from muster.config.project import Project
from muster.config.settings import OWN_HOME, AgentConfig, Config
from muster.hosts.file_lock import Lock
from muster.model.errors import BadConfig, MusterError, OwnerUnavailable
from muster.ports.agent import Agent

Factory = Callable[[AgentConfig, Home | None], Agent]
"""Makes an agent of its settings and its HOME, where that is not the user's."""
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
        return _command(agent, home)
    return _streaming(agent, home) if agent.kind in KINDS else _foreign(agent, home)


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


def _command(agent: AgentConfig, home: Home | None) -> Agent:
    return CommandAgent(
        name=agent.name,
        command=agent.command,
        prompt=cast(Prompt, agent.prompt),
        env_names=agent.env_names,
        env=agent.env,
        exit_codes={**EXIT_CODES, **agent.exit_codes},
        home=home,
        limits=agent.limits,
    )


def _streaming(agent: AgentConfig, home: Home | None) -> Agent:
    assert agent.permission_mode is not None
    module, _, name = KINDS[agent.kind].adapter.partition(":")
    made: Agent = getattr(import_module(module), name)(
        name=agent.name,
        command=agent.command,
        permission_mode=agent.permission_mode,
        model=agent.model,
        max_budget_usd=agent.max_budget_usd,
        args=agent.args,
        env_names=agent.env_names,
        env=agent.env,
        home=home,
        limits=agent.limits,
    )
    return made


def _foreign(agent: AgentConfig, home: Home | None) -> Agent:
    from importlib.metadata import entry_points

    (point,) = entry_points(group=KINDS_GROUP, name=agent.kind)
    try:
        factory = cast(Factory, point.load())
        return factory(agent, home)
    except MusterError:
        raise
    except Exception as error:
        # Somebody else's code: whatever it raises is about this agent, not about Muster.
        raise BadConfig(
            f"muster.toml: agents.{agent.name}: kind {agent.kind!r} cannot be used: {error!r}",
            f"see the documentation of {point.value}",
        ) from error
