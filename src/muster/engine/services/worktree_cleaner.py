"""Puts away the working trees of tasks that ended long ago, badly or well; their work stays behind refs."""

from __future__ import annotations

import asyncio
import logging

from muster.engine.service import PAGE_ROWS, Service
from muster.hosts.detached_call import detached_call
from muster.model.retention import tree_is_over
from muster.model.views import TaskFilter
from muster.ports.files import TaskTrees
from muster.ports.runtime import Clock
from muster.ports.store import Reads

log = logging.getLogger(__name__)


class WorktreeCleaner(Service):
    name = "worktree_cleaner"
    interval_s = 600.0

    def __init__(
        self, clock: Clock, reads: Reads, trees: TaskTrees, *, kept_s: float, keep_done: bool
    ) -> None:
        super().__init__(clock)
        self._reads = reads
        self._trees = trees
        self._kept_ms = int(kept_s * 1000)
        self._keep_done = keep_done
        self._told: dict[int, str] = {}
        self._after_id = 0

    async def run_once(self) -> None:
        known = await asyncio.to_thread(self._trees.ids)
        page = [task_id for task_id in known if task_id > self._after_id][:PAGE_ROWS]
        self._after_id = page[-1] if len(page) == PAGE_ROWS else 0
        if not page:
            return
        before_ms = self.clock.now().wall_ms - self._kept_ms
        for task in await self._reads.task_views(TaskFilter(ids=tuple(page), limit=len(page))):
            if not tree_is_over(task, before_ms, keep_done=self._keep_done):
                continue
            # Not waited for by the end of the owner: git may take minutes, and may be left alone.
            why = await detached_call(self._trees.put_away, task.id, task.plan, task.key, task.epoch)
            if why and self._told.get(task.id) != why:
                log.warning("the tree of %s/%s stays: %s", task.plan, task.key, why)
                self._told[task.id] = why
