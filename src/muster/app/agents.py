"""From `[agents.NAME]` to an agent: the kinds that Muster brings, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from muster.agents.claude_code import ClaudeCodeAgent
from muster.agents.codex import CodexAgent
from muster.agents.command import EXIT_CODES, CommandAgent, Prompt
from muster.config.settings import CLAUDE_CODE, CODEX, COMMAND, AgentConfig, Config
from muster.model.errors import BadConfig, MusterError
from muster.ports.agent import Agent

GROUP = "muster.agents"
"""The entry point group of other packages: kind = a callable that makes an Agent of an AgentConfig."""
Factory = Callable[[AgentConfig], Agent]


def agents_of(config: Config) -> Mapping[str, Agent]:
    """Raises BadConfig for a kind that neither Muster nor an installed package knows."""
    return {name: agent_of(agent) for name, agent in config.agents.items()}


def agent_of(agent: AgentConfig) -> Agent:
    factory = _OWN.get(agent.kind)
    return factory(agent) if factory is not None else _foreign(agent)


def _command(agent: AgentConfig) -> Agent:
    return CommandAgent(
        name=agent.name,
        command=agent.command,
        prompt=cast(Prompt, agent.prompt),
        env_names=agent.env_names,
        env=agent.env,
        exit_codes={**EXIT_CODES, **agent.exit_codes},
    )


def _streaming(agent: AgentConfig) -> dict[str, Any]:
    assert agent.permission_mode is not None
    return {
        "name": agent.name,
        "command": agent.command,
        "permission_mode": agent.permission_mode,
        "model": agent.model,
        "max_budget_usd": agent.max_budget_usd,
        "args": agent.args,
        "env_names": agent.env_names,
        "env": agent.env,
    }


_OWN: Mapping[str, Factory] = {
    COMMAND: _command,
    CLAUDE_CODE: lambda agent: ClaudeCodeAgent(**_streaming(agent)),
    CODEX: lambda agent: CodexAgent(**_streaming(agent)),
}


def _foreign(agent: AgentConfig) -> Agent:
    from importlib.metadata import entry_points

    found = {point.name: point for point in entry_points(group=GROUP)}
    if agent.kind not in found:
        known = ", ".join(sorted({*_OWN, *found}))
        raise BadConfig(
            f"muster.toml: agents.{agent.name}.kind: no kind of agent is called {agent.kind!r}",
            f"install the package that brings it, or write one of {known}",
        )
    try:
        factory = cast(Factory, found[agent.kind].load())
        return factory(agent)
    except MusterError:
        raise
    except Exception as error:
        # Somebody else's code: whatever it raises is about this agent, not about Muster.
        raise BadConfig(
            f"muster.toml: agents.{agent.name}: kind {agent.kind!r} cannot be used: {error!r}",
            f"see the documentation of {found[agent.kind].value}",
        ) from error
