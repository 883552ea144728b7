"""What is said of secrets.  None of it has a value in clear: values come sealed."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from muster.model import patterns
from muster.model.commands.base import AttemptCommand, Command
from muster.model.scalars import Count, Name

SecretName = Annotated[str, Meta(pattern=patterns.SECRET.regex)]
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
    """The same values, sealed by the key that seals now: of secrets, and of what signs webhooks' messages."""

    actor: Name


class ResealInputs(Command, frozen=True, kw_only=True):
    """The secrets of input contexts, by the key that seals now: of so many tasks after this one."""

    after: Count
    actor: Name
    limit: Count = 500


class TakeKey(Command, frozen=True, kw_only=True):
    """A server of a store that others share has this key first, which is to seal from now on."""

    server: str
    """As Lead has it."""
    keys: Annotated[tuple[str, ...], Meta(min_length=1)]
    """The names of its keys."""


class GiveUpKeys(Command, frozen=True, kw_only=True):
    """Nothing is sealed by keys of these names any more."""

    keys: tuple[str, ...]


class ResetKey(Command, frozen=True, kw_only=True):
    """The key of a store that servers share is lost: what it has sealed goes, and another one seals."""

    seal_key: str
    """As Join has it."""
    keys: Annotated[tuple[str, ...], Meta(min_length=1)]
    actor: Name
