"""Secrets: what agents are given in their environment, and nobody else is told."""

from __future__ import annotations

from msgspec import Struct

VALUE_CHARS_MIN = 8
"""A shorter one could not be told from other text where it is to be blacked out."""
VALUE_CHARS_MAX = 16_000
"""In all its forms it fits into one chunk of output."""


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
    return f"{_its(name)}is not set: muster secrets set {name}"


def key_lost(name: str) -> str:
    """The same where it is set, and the key that has sealed it is gone."""
    return f"{_its(name)}cannot be opened, its key is lost: muster secrets set {name}"


def lacks(why: str, name: str) -> bool:
    """Whether an agent cannot run for want of this secret."""
    return why.startswith(_its(name))


def _its(name: str) -> str:
    return f"its secret {name} "
