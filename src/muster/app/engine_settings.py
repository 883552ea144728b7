"""What the engine has of a project's settings."""

from __future__ import annotations

from muster.config.settings import Config
from muster.engine.policy import Policy
from muster.model.retention import Retention
from muster.model.retry import RetryPolicy


def policy_of(config: Config, hostname: str = "", *, writers: frozenset[str] = frozenset()) -> Policy:
    """`writers` are the agents that share one folder for what they write."""
    task = config.task
    return Policy(
        retry=RetryPolicy(
            first_s=task.backoff_first_s,
            cap_s=task.backoff_cap_s,
            losses_max=task.losses_max,
            rounds_max=task.rounds,
        ),
        lease_s=config.health.lease_s,
        leases={agent.name: config.lease_of(agent) for agent in config.agents.values() if agent.heartbeat_s},
        remote_lease_s=config.health.remote_lease_s,
        starts_workers=not config.serve.shared,
        heartbeat_s=config.health.heartbeat_s,
        claim_lease_s=config.health.claim_lease_s,
        agent_slots={agent.name: agent.slots for agent in config.agents.values() if agent.slots is not None},
        writers=writers,
        limits=config.limits,
        pools={agent.name: agent.pool for agent in config.agents.values()},
        budget_task_microusd=_microusd(config.budget.task_usd),
        budget_plan_microusd=_microusd(config.budget.plan_usd),
        failures_max=task.failures_max,
        waiting_max=task.waiting_max,
        profiles=config.profiles,
        scripts=frozenset(agent.name for agent in config.agents.values() if agent.prompt == "script"),
        usual_agent=config.default_agent,
        timeout_s=int(task.timeout_s),
        retries=task.retries,
        hostname=hostname,
    )


def _microusd(usd: float | None) -> int | None:
    return None if usd is None else round(usd * 1e6)


def retention_of(config: Config) -> Retention:
    kept = config.retention
    return Retention(
        events_s=kept.events_s,
        logs_s=kept.logs_s,
        idempotency_s=kept.idempotency_s,
        tasks_s=kept.tasks_s,
    )
