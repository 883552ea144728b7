"""What people have said that agents may do, or may not: one exact command at a time."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec
from msgspec import Struct

Verdicts = dict[str, bool]
"""By exact command: whether it is allowed."""

_verdicts = msgspec.json.Decoder(Verdicts)


class Permission(Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """`answer --always`: it stands for every task of this plan that this agent does, until it is revoked."""

    number: int
    plan_id: int
    agent: str
    command: str
    allow: bool
    by: str
    at_ms: int


_permissions = msgspec.json.Decoder(tuple[Permission, ...])


@lru_cache(maxsize=1)
def permissions_of(text: str | None) -> tuple[Permission, ...]:
    """Of what the store holds; each claim asks, and they hardly ever change."""
    return _permissions.decode(text) if text else ()


def verdicts_of(text: str) -> Verdicts:
    return _verdicts.decode(text) if text else {}


def with_verdict(text: str, command: str, *, allow: bool) -> str:
    return msgspec.json.encode(verdicts_of(text) | {command: allow}).decode()


def standing_for(standing: Iterable[Permission], plan_id: int | None, agent: str) -> Verdicts:
    return {one.command: one.allow for one in standing if (one.plan_id, one.agent) == (plan_id, agent)}
