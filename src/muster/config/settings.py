"""What `muster.toml` may say, with the defaults of what it does not."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.config.profiles import PROFILES
from muster.model.limits import STALL_AFTER_S, Limits
from muster.model.states import ErrorKind

PROMPT_CHANNELS = ("argument", "script", "file", "stdin", "none")
"""How an agent gets its prompt: as the last argument, as a file that is named or fed to it (`script`: the code of
its fenced blocks, where it has any), or not at all."""

COMMAND = "command"
"""The kind of an agent that is any command."""
USER_HOME, OWN_HOME = "user", "own"
HOMES = (USER_HOME, OWN_HOME)
"""Whose HOME an agent gets: that of the user who runs the crew, or one of its own under `.muster/homes/`."""


@dataclass(frozen=True, kw_only=True)
class TaskDefaults:
    """Limits of a task that sets none of its own.  `[task]`"""

    timeout_s: float = 7200.0
    retries: int = 3
    """Runs after the first one."""
    backoff_first_s: float = 30.0
    backoff_cap_s: float = 300.0
    losses_max: int = 5
    """Attempts lost to dead workers before the task counts as poison."""
    failures_max: int = 5
    """Tasks of a plan that fail in a row before it is paused; 0: it never is."""
    waiting_max: int = 100_000
    """Tasks that may wait at one time; more are refused until the crew has caught up."""


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """How many processes host agents on this machine.  `[workers]`"""

    count: int | None = None
    slots: int = 1
    """Attempts that one worker runs at the same time."""
    drain_s: float = 300.0

    def number(self, cores: int) -> int:
        """Workers to start on a machine with that many cores: as configured, else one per core, at most 4."""
        return self.count if self.count is not None else max(1, min(4, cores))


@dataclass(frozen=True, kw_only=True)
class Health:
    """How soon a silent holder of a task is given up.  `[health]`"""

    heartbeat_s: float = 5.0
    lease_s: float = 15.0
    sweep_s: float = 0.5
    claim_lease_s: float = 1800.0
    """Of tasks that are taken by hand (`muster claim take`)."""
    orphan_grace_s: float = 600.0
    """How long the frozen work of a worker that cannot reach its store is kept before it is killed."""
    stall_after_s: float = STALL_AFTER_S
    """How long an attempt may show no sign of progress; 0: for ever."""


@dataclass(frozen=True)
class AgentConfig:
    """One executor: a command that gets a prompt, or a CLI that Muster knows.  `[agents.NAME]`"""

    name: str
    command: tuple[str, ...]
    prompt: str = "argument"
    """One of PROMPT_CHANNELS."""
    env_names: tuple[str, ...] = ()
    """Variables handed on from the worker's environment (`env`)."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables set to fixed values (`set`)."""
    exit_codes: Mapping[int, ErrorKind] = field(default_factory=dict)
    """What an exit code means where that is not `crash`."""
    capabilities: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    """What it serves: tasks with one of these targets may go to it."""
    slots: int | None = None
    """Most attempts of this agent at one time, over the whole crew; None: no limit."""
    heartbeat_s: float | None = None
    writes: bool = False
    """It changes files: no other that does so may work in the same folder at the same time."""
    home: str = USER_HOME
    """One of HOMES."""
    stall_after_s: float | None = None
    """None: as for all agents."""
    limits: Limits = field(default_factory=Limits)
    """`[agents.NAME.limits]`"""
    kind: str = COMMAND
    """COMMAND, or what its AgentKind is called."""
    model: str | None = None
    permission_mode: str | None = None
    """What the CLI may do without asking; where its kind has modes, it must be told."""
    max_budget_usd: float | None = None
    """Most that one run may cost."""
    args: tuple[str, ...] = ()
    """Further arguments for the CLI."""
    provider: str | None = None
    """Agents of one provider wait together when it is out of quota."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Of its kind alone, which checks them by itself."""

    @property
    def pool(self) -> str:
        return self.provider or self.name


SHELL = AgentConfig("shell", ("sh", "-eu"), "script")
"""Built in: the prompt is a shell script.  A project may redefine it."""


def built_in_agents() -> dict[str, AgentConfig]:
    return {SHELL.name: SHELL}


@dataclass(frozen=True, kw_only=True)
class RetentionSettings:
    """How long what is over is kept.  `[retention]`"""

    events_s: float = 90 * 86400.0
    logs_s: float = 30 * 86400.0
    """Output, its files, and the checkpoints of tasks that have ended."""
    idempotency_s: float = 7 * 86400.0
    trees_s: float = 14 * 86400.0
    """Working trees of tasks that have ended, as far as they are still there; their work stays behind refs."""


@dataclass(frozen=True, kw_only=True)
class Git:
    """Where agents that write work, in a repository.  `[git]`"""

    worktrees: bool = True
    """Each task in a working tree and on a branch of its own; else one at a time in the project's folder."""
    setup: str = ""
    """A shell command that makes a new tree ready to work in."""
    merge: bool = True
    """Finished work goes on to the branch of its plan, where the next tasks begin."""
    keep: bool = False
    """Also the trees and branches of tasks that are done stay."""


@dataclass(frozen=True, kw_only=True)
class Config:
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    git: Git = field(default_factory=Git)
    task: TaskDefaults = field(default_factory=TaskDefaults)
    workers: WorkerSettings = field(default_factory=WorkerSettings)
    health: Health = field(default_factory=Health)
    agents: Mapping[str, AgentConfig] = field(default_factory=built_in_agents)
    limits: Mapping[str, int] = field(default_factory=dict)
    """Most tasks of one limit key that run at one time, over the whole crew.  `[limits]`"""
    profiles: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: PROFILES)
    """Words that ask for a kind of agent.  `[profiles]`"""
    default_agent: str | None = None
    """The agent of a task that names none (`agent` at the top of the file)."""

    def lease_of(self, agent: AgentConfig) -> float:
        return max(self.health.lease_s, 3 * (agent.heartbeat_s or 0.0))

    @property
    def writers(self) -> frozenset[str]:
        return frozenset(name for name, agent in self.agents.items() if agent.writes)

    @property
    def general(self) -> tuple[str, ...]:
        """Agents for tasks that name none.  Never a shell unless that was said: it runs prose as a script."""
        if self.default_agent is not None:
            return (self.default_agent,)
        return tuple(sorted(self.agents.keys() - {SHELL.name}))
