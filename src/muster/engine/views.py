"""The views of one transaction, one for each workspace that it touches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from muster.engine.view import View
from muster.model.task import Now
from muster.ports.store import Transaction, Tx


class Views:
    def __init__(
        self, tx: Transaction, clock: Callable[[], Now], make: Callable[[Tx], Awaitable[View]]
    ) -> None:
        self.tx = tx
        self._clock, self._make = clock, make
        self.made: dict[int, View] = {}
        """By workspace."""

    @property
    def now(self) -> Now:
        """As View.now."""
        return self._clock()

    async def of(self, workspace_id: int) -> View:
        view = self.made.get(workspace_id)
        if view is None:
            view = self.made[workspace_id] = await self._make(self.tx.of(workspace_id))
        return view

    async def all(self) -> list[View]:
        return [await self.of(workspace_id) for workspace_id in await self.tx.workspaces()]

    async def of_tasks(self, ids: Iterable[int]) -> list[tuple[View, list[int]]]:
        """The tasks, loaded, by workspace."""
        by_workspace: dict[int, list[int]] = {}
        for task_id, workspace_id in (await self.tx.workspace_of_tasks([*ids])).items():
            by_workspace.setdefault(workspace_id, []).append(task_id)
        found = [(await self.of(workspace_id), mine) for workspace_id, mine in by_workspace.items()]
        for view, mine in found:
            await view.load(mine)
        return found
