"""Secrets: what agents are given in their environment, and nobody else is told."""

from __future__ import annotations

from msgspec import Struct

from muster.model.errors import BadInput

NAME_CHARS_MAX = 100
OUR_PREFIX = "MUSTER_"
VALUE_CHARS_MIN = 8
"""A shorter one could not be told from other text where it is to be blacked out."""
VALUE_CHARS_MAX = 16_000
"""In all its forms it fits into one chunk of output."""
VAULT_KEY = "MUSTER_VAULT_KEY"
"""The variable that may hold the key of all that is sealed.  No program that Muster starts for others has it."""

_SET = "muster secrets set "


class Secret(Struct, frozen=True, rename="camel"):
    name: str
    """Of the variable that holds it."""
    set_by: str
    set_at_ms: int


def check_name(name: str) -> None:
    """Raises BadInput for what no secret can be called: it names a variable, and none of Muster's own."""
    shown = name[:NAME_CHARS_MAX]
    if name.startswith(OUR_PREFIX):
        wrong = f"{shown!r} cannot be a secret: Muster sets the variables with its own name itself"
        fix = "another name, that does not begin with MUSTER_"
    elif not (name.isascii() and name.isidentifier()):
        wrong = (
            f"{shown!r} cannot be the name of a variable: that has letters, digits and _, and no digit first"
        )
        fix = f"like {_like(shown)}"
    elif len(name) > NAME_CHARS_MAX:
        wrong = f"{shown}... has {len(name)} characters; a secret's name has at most {NAME_CHARS_MAX}"
        fix = "a shorter name"
    else:
        return
    error = BadInput(f"{wrong}; nothing was changed", fix)
    error.pointer = "/name"
    raise error


def refuse_blank(value: str) -> None:
    """Raises BadInput for one of spaces only: nobody has one, and indented text would be blacked out."""
    if value.isspace():
        error = BadInput("the value is spaces only; nothing was changed", "look at what has written it")
        error.pointer = "/value"
        raise error


def _like(name: str) -> str:
    """What was meant, perhaps."""
    near = "".join(char if char.isascii() and char.isalnum() else "_" for char in name).strip("_").upper()
    return near if near and not near[0].isdigit() and not near.startswith(OUR_PREFIX) else "GITHUB_TOKEN"


def secret_purpose(workspace_id: int, name: str) -> str:
    """What it is sealed for in the vault."""
    return f"secret {name} of workspace {workspace_id}"


def not_set(name: str) -> str:
    """Why an agent that is to have it cannot run."""
    return f"{_its(name)}is not set: {_SET}{name}"


def key_lost(name: str) -> str:
    """The same where it is set, and the key that has sealed it is gone."""
    return f"{_its(name)}cannot be opened, its key is lost: {_SET}{name}"


def setting(name: str) -> str:
    """The command that helps an agent which lacks this secret; empty where it lacks none."""
    return f"{_SET}{name}" if name else ""


def _its(name: str) -> str:
    return f"its secret {name} "
