"""Secrets: what agents are given in their environment, and nobody else is told."""

from __future__ import annotations

from msgspec import Struct

VALUE_CHARS_MIN = 8
"""A shorter one could not be told from other text where it is to be blacked out."""
VALUE_CHARS_MAX = 32_000
"""Programs can be given little more in one variable."""


class Secret(Struct, frozen=True, rename="camel"):
    name: str
    """Of the variable that holds it."""
    set_by: str
    set_at_ms: int


def secret_purpose(workspace_id: int, name: str) -> str:
    """What it is sealed for in the vault."""
    return f"secret {name} of workspace {workspace_id}"


def not_set(name: str) -> str:
    """Why an agent that is to have it cannot run."""
    return f"its secret {name} is not set: muster secrets set {name}"
