"""JSON objects as they come off the wire.  Imports nothing: every command needs it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Json = dict[str, Any]
else:
    Json = dict
