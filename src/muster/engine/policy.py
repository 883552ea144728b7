"""What the engine is configured with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from muster.model.breaker import FAILURES_MAX
from muster.model.errors import BadInput
from muster.model.retry import RetryPolicy
from muster.model.task import TaskFields

F = TypeVar("F", bound=TaskFields)
NO_LIMITS: Mapping[str, int] = {}
NO_LEASES: Mapping[str, float] = {}
NO_POOLS: Mapping[str, str] = {}
NO_PROFILES: Mapping[str, Sequence[str]] = {}


class Policy(Struct, frozen=True, kw_only=True):
    """Times in seconds."""

    retry: RetryPolicy = RetryPolicy()
    lease_s: float = 15.0
    leases: Mapping[str, float] = NO_LEASES
    """Of agents that are heard less often than the others."""
    heartbeat_s: float = 5.0
    claim_lease_s: float = 1800.0
    """Of tasks that are taken by hand."""
    agent_slots: Mapping[str, int] = NO_LIMITS
    """Most attempts of an agent at one time, over all workers; an agent that is absent has no limit."""
    writers: frozenset[str] = frozenset()
    """Agents that write in one and the same folder: one attempt of all of them together at a time."""
    limits: Mapping[str, int] = NO_LIMITS
    """Most attempts at one time of all tasks with one limit key; a key that is absent has no limit."""
    pools: Mapping[str, str] = NO_POOLS
    """The pool (provider) of each agent; an agent that is absent has a pool of its own name."""
    budget_task_microusd: int | None = None
    budget_plan_microusd: int | None = None
    """Of all tasks and plans that have none of their own; None: no limit."""
    failures_max: int = FAILURES_MAX
    """Tasks of a plan that fail in a row before it is paused; 0: it never is."""
    waiting_max: int = 100_000
    """Tasks that may wait before more are refused."""
    profiles: Mapping[str, Sequence[str]] = NO_PROFILES
    """The words of each kind of agent, for tasks that are added without one; empty: nothing is chosen."""
    scripts: frozenset[str] = frozenset()
    """Agents that run a task's text as a script."""
    usual_agent: str | None = None
    """Who does what asks for nothing in particular."""
    timeout_s: int = 7200
    """Of a task that says nothing else."""
    retries: int = 3
    remote_lease_s: float = 0.0
    """At least, where the worker is on another host than the store: a network has its bad minutes."""
    hostname: str = ""
    """The store's own host: what runs there is killed by its coordinator before it is given out again, so
    nothing there is frozen.  Empty: no worker is known to be on it."""
    starts_workers: bool = True
    """`muster up` does; not where servers share a store."""

    def elsewhere(self, hostname: str) -> bool:
        """Known to be another host: a restart of the store's own one ends nothing there."""
        return bool(self.hostname) and hostname != self.hostname

    def filled(self, fields: F) -> F:
        """With what the settings say where the task says nothing."""
        if fields.timeout_s is not None and fields.max_retries is not None:
            return fields
        retries = self.retries if fields.max_retries is None else fields.max_retries
        return replace(fields, timeout_s=fields.timeout_s or self.timeout_s, max_retries=retries)

    def refuse_bare_script(self, fields: TaskFields) -> None:
        """Raises BadInput for a task without a text whose title would be run as a script."""
        anybody = fields.agent is None and not (fields.capabilities or fields.profile or fields.target)
        agent = self.usual_agent if anybody else fields.agent
        if agent in self.scripts and not fields.description.strip():
            raise BadInput(
                f"task {fields.title[:80]!r} has no text, and agent {agent} runs a task's text as a script; "
                "nothing was changed",
                "in a plan write the commands below the task's line, indented; else --prompt 'COMMANDS', "
                '{"description": "COMMANDS"}',
            )

    @property
    def limited(self) -> bool:
        return bool(self.limits or self.agent_slots or self.writers)

    def lease_ms(self, agent: str, hostname: str) -> int:
        """For an attempt of this agent on that host."""
        lease_s = self.leases.get(agent, self.lease_s)
        return int((max(lease_s, self.remote_lease_s) if self.elsewhere(hostname) else lease_s) * 1000)

    def pool(self, agent: str) -> str:
        return self.pools.get(agent, agent)
