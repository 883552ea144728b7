"""The store as a whole: `/api/v1/db`."""

from __future__ import annotations

from pathlib import Path

from muster.model.answers import BackedUp
from muster.model.commands import Text
from muster.model.errors import BadInput
from muster.web.backend import Backend
from muster.web.http import Body
from muster.web.routes import Routes

routes = Routes()


class BackupBody(Body, frozen=True, kw_only=True):
    path: Text
    """On the owner's host, absolute."""
    force: bool = False


@routes.post("/api/v1/db/backup")
async def back_up(web: Backend, body: BackupBody) -> BackedUp:
    """Copies the store to a file while it is in use."""
    target = Path(body.path)
    if not target.is_absolute():
        raise BadInput(f"{body.path} is no absolute path; no backup was made", "begin it with /")
    return await web.owner.back_up(target, body.force)
