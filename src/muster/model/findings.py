"""What was found where somebody has looked whether all is well."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    name: str
    ok: bool | None
    """None: neither good nor bad, something to know."""
    found: str
    fix: str = ""
