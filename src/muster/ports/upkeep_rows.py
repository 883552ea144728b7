"""What keeps a store tidy: retention, the clock's jumps, rows that disagree."""

from __future__ import annotations

from typing import Protocol


class UpkeepTx(Protocol):
    """Of all workspaces."""

    async def prune_logs(self, before_ms: int, limit: int) -> int:
        """Drops the oldest output; how many chunks."""

    async def prune_checkpoints(self, before_ms: int, limit: int) -> int:
        """Drops checkpoints of tasks that ended before then."""

    async def prune_idempotency(self, before_ms: int, limit: int) -> int: ...

    async def prune_messages(self, before_ms: int, limit: int) -> int:
        """Drops what webhooks were told, or were to be, before then."""

    async def prune_beats(self, before_ms: int, limit: int) -> int:
        """Drops what agents said of themselves before then."""

    async def prune_sessions(self, before_ms: int, limit: int) -> int:
        """Drops the tokens of browsers' sessions that ended before then."""

    async def shift_waits(self, by_ms: int) -> None:
        """Retries, pins and messages to webhooks are due that much later (earlier where it is negative)."""

    async def bound_retries(self, wall_ms: int, longest_ms: int) -> None:
        """No failed attempt is tried again later than so long from then, or than its task itself wants."""

    async def bound_messages(self, latest_ms: int) -> None:
        """No message to a webhook is tried again later than then."""


class UpkeepReads(Protocol):
    async def anything_old(self, logs_before_ms: int, keys_before_ms: int, beats_before_ms: int) -> bool:
        """Whether `Prune` would find something."""

    async def suspects(self, after_id: int, limit: int) -> tuple[int | None, list[int]]:
        """Of the next `limit` tasks in id order: (the last one's id, or None at the end; those whose row
        disagrees with its attempts or dependencies)."""

    async def old_done(self, after_id: int, limit: int, before_ms: int) -> tuple[int | None, list[int]]:
        """As `suspects`: those that were completed before that time, in plans where nothing is left to do."""
