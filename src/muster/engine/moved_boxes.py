"""Boxes that another plan's file had before: the store is asked in the transaction that would add them, the files
before and after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from muster.model.answers import Answer
from muster.model.commands import Command, Enqueue
from muster.model.edits import MovedBox
from muster.model.errors import BoxesMoved, MusterError
from muster.model.moved import RECENT_MS, Boxes, fresh_boxes, refusal, same_work
from muster.ports.engine import Execute
from muster.ports.store import Common

Left = Callable[[Collection[MovedBox]], Awaitable[tuple[MovedBox, ...]]]
"""As `OtherFiles.left`."""
Titles = Callable[[str], Mapping[str, str] | None]
"""By name, the titles of the boxes that a file holds now; None where nobody can tell."""


async def namesakes(
    store: Common, plan_id: int, command: Enqueue, known: Enqueue, *, keys: Iterable[str], now_ms: int
) -> tuple[MovedBox, ...]:
    """Of what would be new work in that plan, what other plans have or had; the rest as `fresh_boxes`."""
    fresh = fresh_boxes(command, known, {*keys})
    if not fresh or not await store.other_files(plan_id):
        return ()
    boxes = Boxes({box: spec.title for box, spec in fresh.items()})
    found = await store.namesakes(plan_id, [*fresh], boxes.telling, now_ms - RECENT_MS)
    return same_work(boxes, {box: spec.key or "" for box, spec in fresh.items()}, found, command.apart)


async def all_left(moved: Collection[MovedBox]) -> tuple[MovedBox, ...]:
    """Where there are no files."""
    return tuple(moved)


class OtherFiles:
    """An engine that adds a box of another plan's as well where it still stands in that plan's file: then it is a
    copy, and other work."""

    def __init__(
        self,
        engine: Execute,
        titles: Titles,
        *,
        in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        self._engine, self._titles, self._in_thread = engine, titles, in_thread

    async def execute(self, command: Command) -> Answer:
        while True:
            try:
                return await self._engine.execute(command)
            except BoxesMoved as error:
                assert isinstance(command, Enqueue), "no other one adds boxes"
                left = await self.left(error.moved)
                if len(left) == len(error.moved):
                    raise
                if left:
                    raise refusal(left, command.source) from None
                command = replace(command, apart=command.apart | {one.task.id for one in error.moved})

    async def execute_all(self, commands: Sequence[Command]) -> list[Answer | MusterError]:
        return await self._engine.execute_all(commands)

    async def left(self, moved: Collection[MovedBox]) -> tuple[MovedBox, ...]:
        """Those that no longer stand in their own files, or of which nobody can tell."""
        gone: list[MovedBox] = []
        for source in sorted({one.task.source for one in moved}):
            titles = await self._in_thread(self._titles, source)
            boxes = Boxes(titles or {})
            gone += [
                one
                for one in moved
                if one.task.source == source and not boxes.find(one.task.box, one.task.title)
            ]
        return tuple(gone)
