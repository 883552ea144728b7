"""Supervising in the foreground: what `run` and `up` share."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from muster.cli.context import answers
from muster.cli.output import Screen, clean, plan_counts
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.config.settings import Config
from muster.model.errors import MusterError, OwnerUnavailable, StoreFault, StoreRefused, Unavailable

READY_S = 20.0
TICK_S = 0.1
STATUS_S = 1.0
SWEEP_S = 5.0
"""How often the supervisor looks for processes of dead workers while nobody has ended."""
FOOTER_TASKS = 5
CONTROL_S = 2.0
"""How long the owner may take to answer while the crew is being ended."""
DRAIN, STOP, KILL = 1, 2, 3
_STEP_WORDS = {
    STOP: "stopping: agents are interrupted and give their tasks back (Ctrl-C: kill)",
    KILL: "killing everything; what ran is resumed by the next `muster up`",
}
STOP_BY_S = 15.0
"""Both rungs of the stop ladder, and some air."""
KILL_S = 3.0
OWNER_END_S = 10.0
"""It answers who still asks, and ticks the boxes of what is done."""


class Interrupts:
    """Counts Ctrl-C (and SIGTERM, SIGHUP): the first drains, the second stops, the third kills."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def counting(self) -> Iterator[Interrupts]:
        def count(*_: object) -> None:
            self.count += 1

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, count) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Feed:
    """Follows the events in a thread of its own, through restarts of the owner."""

    def __init__(
        self,
        project: Project,
        after: int,
        show: Callable[[dict[str, Any]], None],
        footer: Callable[[str], None] | None = None,
        plan: str | None = None,
    ) -> None:
        """`footer` is told how far things are, those of `plan` where one is named."""
        self._project = project
        self._after = after
        self._show = show
        self._footer = footer
        self._plan = plan
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="feed", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Shows what is still to be had, then ends."""
        self._closing.set()
        self._thread.join(timeout=5.0)

    def _follow(self) -> None:
        api = Api(Connection(self._project.socket))
        while True:
            last = self._closing.is_set()
            try:
                if self._footer is not None:
                    self._footer("" if last else _progress(api, self._plan))
                page = api.get("/api/v1/events", {"after": self._after, "wait": 0 if last else 1})
            except MusterError:
                if last:
                    return
                self._closing.wait(0.2)
                continue
            for event in page:
                self._after = event["id"]
                self._show(event)
            if last and not page:
                return


def _progress(api: Api, plan: str | None) -> str:
    """`✓ 3 completed  ● 2 running   api 40% pytest, docs`."""
    counts = plan_counts(api.get("/api/v1/status")["status"]["plans"], plan)
    query = {"plan": plan, "status": "running", "limit": FOOTER_TASKS}
    tasks = [
        clean(f"{task['key']} {task['percent']}% {task['step']}" if task["percent"] else task["key"]).rstrip()
        for task in api.get("/api/v1/agent-tasks", query)
    ]
    return f"{Screen('never').counts(counts)}   {', '.join(tasks)}".rstrip()


class Crew:
    """The owner and the workers as children of this process."""

    def __init__(
        self, project: Project, config: Config, workers: int, say: Callable[[str], None], actor: str
    ) -> None:
        from muster.app.parts import make_state_dir
        from muster.app.supervise import supervisor
        from muster.config.identity import refuse_copy
        from muster.hosts.file_lock import Lock

        refuse_copy(project)
        make_state_dir(project)
        self._lock = _take_patiently(lambda: Lock.take(project.supervisor_lock))
        self._project = project
        self._lease_s = config.health.lease_s
        self._drain_s = config.workers.drain_s
        self._say = say
        self._actor = actor
        self._log_from = project.log_file.stat().st_size if project.log_file.exists() else 0
        self.supervisor = supervisor(project, workers, say=say)
        self.api = Api(Connection(project.socket))
        self.control = Api(Connection(project.socket), reply_s=CONTROL_S)
        self._looked_s = self._swept_s = time.monotonic()
        self._swept_pids: set[int] | None = None
        """Who was there at the last sweep; None: it found something, so there may be more."""
        self._took_over = False
        self._ordered: int | None = None
        """What was ordered before is no matter of this crew."""

    def start(self) -> None:
        """Returns once the owner answers.  Raises StoreFault with its own words where it cannot start."""
        if found := self.supervisor.adopt():
            self._took_over = True
            self._say(f"took over from a dead supervisor: {', '.join(found)}")
        if answers(self._project.socket):
            with suppress(Unavailable):  # it may die any moment: then it is started anew
                self.supervisor.adopt_owner(self.api.get("/api/v1/status")["owner"]["pid"])
                self.api.post("/api/v1/crew", {"actor": self._actor, "status": "RUNNING"})
        self.supervisor.start_owner()
        deadline_s = time.monotonic() + READY_S
        while not answers(self._project.socket):
            process = self.supervisor.owner.process
            code = process.poll() if process is not None else None
            if (code is not None and code >= 0) or time.monotonic() > deadline_s:
                raise StoreFault(f"the owner did not start: {self._owner_words()}", "muster doctor")
            if process is None or code is not None:
                self.supervisor.tick()
            time.sleep(0.02)
        self.supervisor.tick()

    def last_event(self) -> int:
        """Through restarts of the owner.  Raises Unavailable where it stays away."""
        deadline_s = time.monotonic() + READY_S
        while True:
            try:
                crew = self.api.get("/api/v1/crew")
                self._obey(crew["workersOrdered"])
                return int(crew["lastEventId"])
            except Unavailable:
                if time.monotonic() > deadline_s:
                    raise
                self.tick()
                time.sleep(TICK_S)

    def _owner_words(self) -> str:
        from muster.app.parts import last_words

        return last_words(self._project.log_file, self._log_from) or f"nothing was said in {READY_S:.0f} s"

    def tick(self) -> None:
        """Keeps everybody running.  Call a few times a second."""
        if not self._lock.in_place:
            raise self._displaced()
        self.supervisor.tick()
        now_s, pids = time.monotonic(), self.supervisor.own_pids
        # To look through all processes takes milliseconds, and they come to us when somebody has died.
        if pids != self._swept_pids or now_s - self._swept_s >= SWEEP_S:
            self._swept_s = now_s
            self._swept_pids = None if self._kill_leftovers() else pids
        if now_s - self._looked_s < STATUS_S:
            return
        self._looked_s = now_s
        try:
            crew = self.control.get("/api/v1/crew")
        except MusterError:
            return
        self._obey(crew["workersOrdered"])
        workers = crew["workers"]
        self.supervisor.let_go({worker["pid"] for worker in workers if worker["status"] == "stopping"})
        self.supervisor.replace_silent({worker["pid"] for worker in workers}, self._lease_s)

    def _displaced(self) -> StoreRefused:
        now = self._lock.path_now
        if now is not None:
            place = now.parent.parent
            return StoreRefused(
                f"{self._project.folder} was moved to {place} while its crew was at work; the crew is ended",
                f"muster -C {place} up goes on with everything that is left",
            )
        return StoreRefused(
            f"{self._project.state_dir} was deleted or replaced while its crew was at work; "
            "the crew is ended, and what it had written is gone",
            "run the plan again; `git clean` spares it with -e .muster",
        )

    def _obey(self, ordered: int) -> None:
        """Adds the workers that were ordered since the last look (`muster worker start`)."""
        new = 0 if self._ordered is None else ordered - self._ordered
        self._ordered = ordered
        if new > 0 and not self.supervisor.draining:
            self._say(f"Crew     {new} more {'worker' if new == 1 else 'workers'}, as ordered")
            self.supervisor.add_workers(new)

    def _kill_leftovers(self) -> bool:
        """Orphans that became our children are processes of dead workers' agents that shed their mark.

        Returns whether there were any: their own children come next.
        """
        from muster.hosts.local_host import adopted_orphans, reap_zombies
        from muster.hosts.process_table import send

        orphans = adopted_orphans(self.supervisor.own_pids)
        for orphan in orphans:
            if not orphan.gone:
                send(orphan.id, signal.SIGKILL)
        reap_zombies(orphans)
        return bool(orphans)

    def _tell(self, path: str, content: dict[str, Any]) -> None:
        # It may be full, halted, or being started again: the loop that winds down asks once more.
        with suppress(MusterError):
            self.control.post(path, {"actor": self._actor, **content})

    def wind_down(self, interrupts: Interrupts) -> None:
        """Drains, stops or kills as Ctrl-C says, until every worker has ended; then the owner ends."""
        self.supervisor.draining = True
        step, asked_s = DRAIN, 0.0
        drain_until_s = time.monotonic() + self._drain_s
        while not self.supervisor.drained():
            wanted = min(max(interrupts.count, DRAIN), KILL)
            if step == DRAIN and time.monotonic() > drain_until_s:
                wanted = max(wanted, STOP)
            if wanted > step:
                step, asked_s = step + 1, 0.0
                self._say(_STEP_WORDS[step])
            if step == KILL:
                self.kill()
                self.close(KILL_S)
                return
            if time.monotonic() - asked_s > STATUS_S:
                asked_s = time.monotonic()
                self._tell("/api/v1/crew", {"status": "STOPPED"})
                if step == STOP:
                    self._tell("/api/v1/crew/stop", {"stopByS": STOP_BY_S})
            self.supervisor.tick()
            self._kill_leftovers()
            time.sleep(TICK_S / 2)
        self.close()

    def kill(self) -> None:
        """Workers and their agents at once, whether the owner answers or not."""
        self.supervisor.kill_workers()
        deadline_s = time.monotonic() + KILL_S
        # The owner sees them die, kills their agents' processes and frees their tasks.
        while time.monotonic() < deadline_s and self._living_workers():
            self._kill_leftovers()
            time.sleep(TICK_S)
        self._kill_leftovers()

    def _living_workers(self) -> bool:
        try:
            return bool(self.control.get("/api/v1/workers"))
        except MusterError:
            return False

    def close(self, grace_s: float = OWNER_END_S) -> None:
        self.supervisor.stop_owner(grace_s)
        self._release()

    def give_up(self) -> None:
        """After an error of ours: a crew that was taken over is left as it was found, any other one is ended."""
        if not self._lock.in_place:
            # Closed in order, SQLite would remove files by the names that they had here.
            self.supervisor.owner_dies()
        if not self._took_over or not self._lock.in_place:
            self.kill()
            self.supervisor.stop_owner(KILL_S)
        self._release()

    def _release(self) -> None:
        self.api.close()
        self.control.close()
        self._lock.release()


def _take_patiently(take: Callable[[], Any]) -> Any:
    """The owner looks at this lock now and then, and for that moment it is not free."""
    deadline_s = time.monotonic() + 1.0
    while True:
        try:
            return take()
        except OwnerUnavailable:
            if time.monotonic() > deadline_s:
                raise
            time.sleep(0.01)


def running(api: Api) -> list[str]:
    """References of everything that an agent holds now."""
    workers = api.get("/api/v1/workers")
    return [reference for worker in workers for reference in worker["holds"]]


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
