"""The owner's HTTP application."""

from __future__ import annotations

from muster.web import (
    attempts,
    audit,
    claims,
    coordinator,
    crew,
    db,
    events,
    owner,
    plans,
    pools,
    tasks,
    worker_protocol,
    workers,
)
from muster.web.backend import Backend
from muster.web.routes import Application

RESOURCES = (
    worker_protocol,
    attempts,
    audit,
    claims,
    coordinator,
    crew,
    db,
    events,
    owner,
    plans,
    pools,
    tasks,
    workers,
)


def build(backend: Backend) -> Application:
    return Application(backend, (resource.routes for resource in RESOURCES))
