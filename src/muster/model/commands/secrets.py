"""What is said of secrets.  None of it has a value in clear: values come sealed."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster.model.commands.base import AttemptCommand, Command
from muster.model.scalars import Count, Id, Name

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
    inputs: bool = False
    """Those of the task's input context as well."""


class Reseal(Command, frozen=True, kw_only=True):
    """The same values, sealed by a new key."""

    secrets: dict[SecretName, str]
    webhooks: dict[Id, str]
    """What signs the messages of each."""
    actor: Name


class ResealInputs(Command, frozen=True, kw_only=True):
    """The secrets of input contexts, by the newest key: of so many tasks after this one."""

    after: Count
    actor: Name
    limit: int = 500
