"""What the audit needs of a store: events, and the seals on them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from muster.model.seals import Numbered, Seal
from muster.model.views import EventView
from muster.ports.found_rows import EventSpan


class AuditCommon(Protocol):
    async def last_seal(self) -> Seal | None: ...


class AuditTx(Protocol):
    async def prune_events(self, to_id: int, at_ms: int, proof: str) -> int:
        """Makes the seal that ends with `to_id` a stub and drops its events."""

    async def add_seal(self, seal: Seal) -> None: ...


class AuditReads(Protocol):
    """A reader never sees an event before one with a smaller number that is still to be committed: who reads on
    after the last number it has seen misses none."""

    async def last_event_id(self) -> int:
        """0 where nothing has happened yet."""

    async def event_counts(self, after_id: int, to_id: int) -> list[tuple[str, str | None, int]]:
        """(event, the error kind where a task has failed by it, how many) of those after the one and up to the
        other."""

    async def events(self, *, after_id: int, task_id: int | None, limit: int) -> list[EventView]: ...

    async def audit_events(
        self,
        *,
        task_id: int | None,
        levels: Collection[str],
        since_ms: int,
        limit: int,
        subjects: Collection[str] = (),
    ) -> list[EventView]:
        """The newest events of these levels, oldest of them first, about any of these: `token 12`, `token`."""

    async def seals(self, after_id: int, limit: int) -> list[Seal]:
        """Seals whose last event is newer than `after_id`, in order."""

    async def numbered_events(self, after_id: int, to_id: int | None, limit: int) -> list[Numbered]: ...

    async def tail(self, after_id: int) -> tuple[int, int]:
        """(how many events after this one there are, how many there were).

        What nobody has sealed yet and is gone counts for everybody: it cannot say whose it was.
        """

    async def oldest_kept_seal(self) -> Seal | None:
        """The oldest one whose events were not pruned."""

    async def event_spans(self, after_task_id: int, limit: int) -> list[EventSpan]:
        """What events there are of each task, in the order of their ids."""

    async def last_events(self, task_id: int, limit: int) -> list[EventView]:
        """The task's newest events, oldest of them first."""
