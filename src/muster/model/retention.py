"""How long what is over is kept."""

from __future__ import annotations

from msgspec import Struct

_DAY_S = 86400.0


class Retention(Struct, frozen=True, kw_only=True):
    """Seconds.  The defaults are DESIGN.md part 4's."""

    events_s: float = 90 * _DAY_S
    logs_s: float = 30 * _DAY_S
    """Output, its files on this host, and the checkpoints of tasks that have ended."""
    idempotency_s: float = 7 * _DAY_S
