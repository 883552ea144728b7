"""What is said of secrets.  None of it has a value in clear: values come sealed."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster.model.commands.base import AttemptCommand, Command
from muster.model.scalars import Id, Name

SecretName = Annotated[str, Meta(pattern="^(?!MUSTER_)[A-Za-z_][A-Za-z0-9_]{0,99}$")]
"""Muster sets the variables with its own name itself."""


class PutSecret(Command, frozen=True, kw_only=True):
    """Sets it, also in place of an older value."""

    name: SecretName
    sealed: str
    actor: Name


class RemoveSecret(Command, frozen=True, kw_only=True):
    name: SecretName
    actor: Name


class AskSecrets(AttemptCommand, frozen=True, kw_only=True):
    """Of the agent whose lease this is."""

    names: Annotated[tuple[Name, ...], Meta(max_length=100)]


class Reseal(Command, frozen=True, kw_only=True):
    """The same values, sealed by a new key."""

    secrets: dict[SecretName, str]
    webhooks: dict[Id, str]
    """What signs the messages of each."""
    actor: Name
