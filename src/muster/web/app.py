"""The owner's HTTP application."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

from muster.web.backend import Backend
from muster.web.routes import Application, Route, Routes

RESOURCES = (
    *(
        "access",
        "agents",
        "artifacts",
        "attempts",
        "audit",
        "budgets",
        "channels",
        "claims",
        "coordinator",
        "crew",
        "db",
        "events",
        "far_git",
    ),
    *("metrics", "owner", "plans", "pools", "queues", "reference", "secrets", "sign_in_links", "streams"),
    *("tasks", "webhooks"),
    *("worker_protocol", "workers", "works"),
    *(
        f"pages.{name}"
        for name in (
            "board",
            "bulk",
            "edits",
            "live",
            "overview",
            "places",
            "plans",
            "proposals",
            "review",
            "setting_forms",
            "sign_in",
            "task_forms",
            "tasks",
        )
    ),
)
"""A module each."""


def build(backend: Backend) -> Application:
    return Application(backend, _resources())


def declared() -> list[tuple[str, Route]]:
    """All routes of the API, each with its method."""
    return [one for resource in _resources() for one in resource.made if not one[1].page]


def pages() -> list[tuple[str, Route]]:
    """All routes for browsers."""
    return [one for resource in _resources() for one in resource.made if one[1].page]


def _resources() -> Iterator[Routes]:
    return (import_module(f"muster.web.{name}").routes for name in RESOURCES)
