"""Shows others what the store holds, and tells them what is written: hints, for the store alone is right."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from muster.engine.service import PAGE_ROWS, Service
from muster.model.rows import WorkerRow, Workspace
from muster.model.task import Attempt, Now
from muster.model.views import EventView, TaskFilter
from muster.ports.runtime import (
    EVENTS,
    Clock,
    CrewMember,
    HeldTask,
    Listener,
    LiveEvent,
    Picture,
    Runtime,
    WaitingTask,
)
from muster.ports.store import Reads

SHOW_MS, SHOW_IDLE_MS = 1_000, 5_000
"""Between two pictures: while things happen, and while nothing does; what was lost is shown again by then."""
PAUSE_S = 0.05
"""Between two looks at new events, however many come."""
BEHIND_PAGES_MAX = 20
"""Who is further behind goes on with what is newest: who needs all of them reads the store's."""
WAITING_MAX = 200
"""Tasks of one workspace that are shown."""
HELD_MAX = 5_000
WORKSPACES = 20
"""Whose waiting tasks are read for one picture; the others follow with the next ones."""
KNOWN_MAX = 10_000
WORKER = "worker "


class Mirror(Service):
    """`silence_of` says why a worker is thought to be gone, or None.  It leads: others would show the same."""

    name = "mirror"
    interval_s = 1.0

    def __init__(
        self, clock: Clock, reads: Reads, runtime: Runtime, silence_of: Callable[[WorkerRow, Now], str | None]
    ) -> None:
        super().__init__(clock)
        self._reads, self._runtime = reads, runtime
        self._silence_of = silence_of
        self._at: int | None = None
        """Events up to this one were told."""
        self._pages = 0
        self._moved = True
        self._shown_ms = -SHOW_IDLE_MS
        self._waiting: dict[int, Sequence[WaitingTask]] = {}
        self._turn = 0
        self._workspace_of: dict[int, int | None] = {}
        """By task."""
        self._hints: Listener | None = None

    async def run(self) -> None:
        with self._runtime.wakeups.listen(EVENTS) as self._hints:
            await super().run()

    async def pause(self) -> None:
        await self.clock.sleep(PAUSE_S)
        if self._hints is not None and not self.behind:
            await self._hints.wait(self.interval_s - PAUSE_S)

    async def run_once(self) -> None:
        if self._runtime.state != "connected":
            self._at = None  # what happens meanwhile is no news by then
            return
        await self._tell()
        now = self.clock.now()
        due_ms = SHOW_MS if self._moved else SHOW_IDLE_MS
        if now.mono_ms - self._shown_ms >= due_ms:
            self._moved, self._shown_ms = False, now.mono_ms
            await self._runtime.show(await self._picture(now))

    async def _tell(self) -> None:
        if self._at is None or self._pages > BEHIND_PAGES_MAX:
            self._at, self._pages, self._moved = await self._reads.last_event_id(), 0, True
        page = await self._reads.events(after_id=self._at, task_id=None, limit=PAGE_ROWS)
        self.behind = len(page) == PAGE_ROWS
        self._pages = self._pages + 1 if self.behind else 0
        if page:
            self._at, self._moved = page[-1].id, True
            told = [await self._live(event) for event in page]
            self._runtime.tell([one for one in told if one is not None])

    async def _live(self, event: EventView) -> LiveEvent | None:
        """None: it is about neither a task nor a worker."""
        if event.subject.startswith(WORKER):
            worker_id = event.subject.removeprefix(WORKER)
            worker = await self._reads.worker(worker_id)
            if worker is None:
                return None
            return LiveEvent(worker.workspace_id, event.id, event.event, 0, worker_id, "")
        workspace_id = None if event.subject else await self._of(event.task_id)
        if workspace_id is None:
            return None
        name = f"task_{event.event}"
        return LiveEvent(workspace_id, event.id, name, event.task_id, "", str(event.new_status))

    async def _of(self, task_id: int) -> int | None:
        if task_id not in self._workspace_of:
            if len(self._workspace_of) >= KNOWN_MAX:
                del self._workspace_of[next(iter(self._workspace_of))]
            self._workspace_of[task_id] = await self._reads.workspace_of(task_id)
        return self._workspace_of[task_id]

    async def _picture(self, here: Now) -> Picture:
        now = await self._reads.now(here)
        await self._look_at_waiting(await self._reads.workspaces())
        workers = {worker.id: worker for worker in await self._reads.living_workers()}
        held = [one async for one in self._held(workers)]
        busy = {one.worker_id for one in held}
        crew = [
            CrewMember(
                worker.workspace_id,
                worker.id,
                "busy" if worker.id in busy else "idle",
                worker.last_seen_at_ms,
                self._silence_of(worker, now) is not None,
            )
            for worker in workers.values()
        ]
        return Picture(dict(self._waiting), held, crew)

    async def _look_at_waiting(self, workspaces: Sequence[Workspace]) -> None:
        there = [workspace.id for workspace in workspaces]
        self._waiting = {one: tasks for one, tasks in self._waiting.items() if one in there}
        self._turn %= len(there)
        for workspace_id in there[self._turn : self._turn + WORKSPACES]:
            self._waiting[workspace_id] = await self._waiting_in(workspace_id)
        self._turn += WORKSPACES

    async def _waiting_in(self, workspace_id: int) -> Sequence[WaitingTask]:
        reads = self._reads.of(workspace_id)
        ids = tuple(await reads.next_ready(WAITING_MAX))
        views = await reads.task_views(TaskFilter(ids=ids, limit=WAITING_MAX)) if ids else []
        return [WaitingTask(view.id, view.priority, view.created_at_ms) for view in views]

    async def _held(self, workers: dict[str, WorkerRow]) -> AsyncIterator[HeldTask]:
        after, count = (0, 0), 0
        while page := await self._reads.open_attempts(after, PAGE_ROWS):
            for attempt in page:
                if (workspace_id := await self._workspace_with(attempt, workers)) is not None:
                    yield _held_task(attempt, workspace_id)
            count += len(page)
            if len(page) < PAGE_ROWS or count >= HELD_MAX:
                return
            after = (page[-1].task_id, page[-1].epoch)

    async def _workspace_with(self, attempt: Attempt, workers: dict[str, WorkerRow]) -> int | None:
        worker = workers.get(attempt.worker_id)
        return await self._of(attempt.task_id) if worker is None else worker.workspace_id


def _held_task(attempt: Attempt, workspace_id: int) -> HeldTask:
    return HeldTask(
        workspace_id,
        attempt.task_id,
        attempt.worker_id,
        attempt.agent,
        attempt.session_key,
        attempt.assigned_at_ms,
    )
