"""The store as a whole: `/api/v1/db`."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from muster.model.commands import Text
from muster.model.errors import BadInput, Unavailable
from muster.web.backend import Backend
from muster.web.http import Handler, JsonResponse, body


class BackupBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    path: Text
    """On the owner's host, absolute."""
    force: bool = False


def routes(backend: Backend) -> list[Route]:
    return [Route("/api/v1/db/backup", _backup(backend), methods=["POST"])]


def _backup(backend: Backend) -> Handler:
    async def handle(request: Request) -> Response:
        given = await body(request, BackupBody)
        target = Path(given.path)
        if not target.is_absolute():
            raise BadInput(f"{given.path} is no absolute path; no backup was made", "begin it with /")
        if backend.back_up is None:
            raise Unavailable("this owner makes no backups", "muster down, then muster db backup")
        return JsonResponse(await backend.back_up(target, given.force))

    return handle
