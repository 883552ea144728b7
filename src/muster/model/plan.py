"""A plan as it was read from a file: what `plans/` produces and the engine takes in."""

from __future__ import annotations

from msgspec import Struct

from muster.model.commands import Spec


class PlanTask(Spec, frozen=True, kw_only=True, omit_defaults=True):
    """One `- [ ]` item; its key is `{#id}`, else a leading code (`T001.002:`), else heading path and title."""

    key: str
    line: int = 0
    """1-based line of the box in the file."""


class PlanDocument(Struct, frozen=True, kw_only=True):
    name: str
    title: str
    tasks: tuple[PlanTask, ...]
