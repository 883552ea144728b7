"""Which agents there are beside those of the settings, as whoever is asked knows them."""

from __future__ import annotations

from muster.client.api import Api


def known_agents(api: Api, plan: str | None = None, source: str | None = None) -> set[str]:
    """Whom a task may name; those of this plan, or of the plan in this file, also whom they name already."""
    return set(api.get("/api/v1/known-agents", {"plan": plan, "source": source}))


def offered(api: Api) -> set[str]:
    """By the workers that are up, also those of other hosts."""
    return {agent for worker in api.get("/api/v1/workers") for agent in worker["agents"]}


def registered(api: Api) -> set[str]:
    """Programs that serve themselves, heard or not."""
    return {agent["id"] for agent in api.get("/api/v1/agents") if agent["servesItself"]}
