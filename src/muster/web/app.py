"""The owner's HTTP application: what answers which path."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from muster.model.errors import MusterError
from muster.web import (
    attempt_routes,
    audit_routes,
    claim_routes,
    crew_routes,
    plan_routes,
    pool_routes,
    store_routes,
    task_routes,
    worker_routes,
)
from muster.web.api_routes import Api
from muster.web.backend import Backend
from muster.web.http import on_bug, on_http_error, on_muster_error


def build(backend: Backend) -> Starlette:
    return Starlette(
        routes=[
            *worker_routes.routes(backend),
            *attempt_routes.routes(backend),
            *audit_routes.routes(backend),
            *plan_routes.routes(backend),
            *store_routes.routes(backend),
            *claim_routes.routes(backend),
            *crew_routes.routes(backend),
            *pool_routes.routes(backend),
            *task_routes.routes(backend),
            *Api(backend).routes(),
        ],
        exception_handlers={
            MusterError: on_muster_error,
            HTTPException: on_http_error,
            Exception: on_bug,
        },
    )
