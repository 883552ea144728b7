"""The owner's HTTP application."""

from __future__ import annotations

from importlib import import_module

from muster.web.backend import Backend
from muster.web.routes import Application

RESOURCES = (
    *("attempts", "audit", "budgets", "claims", "coordinator", "crew", "db", "events", "owner", "plans"),
    *("pools", "tasks", "worker_protocol", "workers"),
)
"""A module each."""


def build(backend: Backend) -> Application:
    return Application(backend, (import_module(f"muster.web.{name}").routes for name in RESOURCES))
