"""A project's crew under supervision: its owner and workers as children of this process, and how they end."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from muster.app.agents import agents_of
from muster.app.forked import begin_forks
from muster.app.interrupts import DRAIN, KILL, STOP, Interrupts
from muster.app.leftovers import Leftovers, kill_leftovers
from muster.app.parts import make_state_dir, python_module, repository_of
from muster.app.salvage import attempts_at_work, keep_work
from muster.app.settings import load_config
from muster.client.api import Api
from muster.client.http import Connection, answers
from muster.config.identity import refuse_copy, refuse_host, settle
from muster.config.project import Project
from muster.config.settings import Config
from muster.hosts.file_lock import Lock, holder
from muster.hosts.given_file import sweep
from muster.hosts.local_host import LocalHost, become_subreaper
from muster.hosts.log_file import LogFile
from muster.hosts.process_tree import kill_recorded
from muster.hosts.service_manager import ServiceManager
from muster.model.errors import (
    Conflict,
    MusterError,
    OwnerUnavailable,
    StoreFault,
    StoreFull,
    StoreRefused,
    Unavailable,
    from_wire,
)
from muster.model.marks import worker_mark
from muster.model.states import STOP_BY_S, CrewStatus
from muster.model.wording import counted
from muster.worker.git import GitRefused
from muster.worker.supervisor import DISK_FULL, HELD, NO_STORE, TICK_S, Ended, Supervisor

READY_S = 20.0
STATUS_S = 1.0
HEALTH_S = 0.5
CONTROL_S = 2.0
"""How long the owner may take to answer while the crew is being ended."""
STOP_S = STOP_BY_S + 10.0
"""How long stopping may take: the agents' part of it, and the workers' reports."""
KILL_S = 3.0
OWNER_END_S = 10.0
"""It answers who still asks, and ticks the boxes of what is done."""
OWNER_AWAY_S = 20.0
"""Who ends a crew whose owner is away for longer kills it."""
OWNER_HUNG_S = 60.0
"""An owner that runs and answers nothing for so long is killed; the next one takes up its workers."""
UNHEARD = 3
"""Questions in a row without an answer, at least: it may have been this process that stood still."""
STEP_WORDS = {
    STOP: "stopping: agents are interrupted and give their tasks back (Ctrl-C: kill)",
    KILL: "killing everything; what ran is resumed by the next `muster up`",
}


_ENDS = {DRAIN: "drained", STOP: "stopped", KILL: "killed"}
"""How the history of the crew calls an end by these steps."""


def refuse_early(project: Project, config: Config, workers: int) -> None:
    """Before anything is made: raises as `SupervisedCrew`."""
    if workers:
        agents_of(config, project)
    _refuse_server(project)
    refuse_git(project, config)
    refuse_host(project, shares_store=config.serve.shared)


def refuse_git(project: Project, config: Config) -> None:
    """Raises GitRefused."""
    try:
        repository_of(config, project)
    except GitRefused as error:
        raise GitRefused(f"nothing was started: {error.message}", error.hint) from error


def _refuse_server(project: Project) -> None:
    """Raises Conflict in the folder of a server that shares its store, and is up."""
    if project.shares_store and (pid := holder(project.owner_lock)) is not None:
        raise Conflict(
            f"a server that shares its store is up in {project.folder} (pid {pid}), and starts no workers; "
            "nothing was done",
            "muster worker start --server URL, in a folder for them; muster plan add PLAN.md adds a plan",
        )


class SupervisedCrew:
    """Call `tick` a few times a second while it is at work, then `wind_down`; `give_up` after an error."""

    def __init__(
        self,
        project: Project,
        config: Config,
        workers: int,
        *,
        say: Callable[[str], None],
        actor: str,
        interrupts: Interrupts,
        manager: ServiceManager | None = None,
    ) -> None:
        """Raises OwnerUnavailable where another process supervises this crew, Conflict as refuse_host,
        BadConfig where no worker could make its agents: nothing is begun then."""
        refuse_early(project, config, workers)
        make_state_dir(project)
        refuse_copy(project)
        self._log_file = LogFile(project.log_file)
        self._log_file.hold()
        self._lock = Lock.take(project.supervisor_lock)
        self._project = project
        self._lease_s = config.health.lease_s
        self._serve = config.serve
        self._drain_s = config.workers.drain_s
        self._say = say
        self._actor = actor
        self._interrupts = interrupts
        self._manager = manager or ServiceManager()
        self._hung_s = min(OWNER_HUNG_S, (self._manager.watchdog_s or math.inf) / 2)
        project_id = settle(project)
        self._host = LocalHost(project_id)
        adopts = become_subreaper()  # the parent of orphans: a dead worker's processes can be found here
        self._forks = begin_forks(project) if adopts and workers else None
        self.supervisor = Supervisor(
            self._host,
            project.log_file,
            project.crew_file,
            owner_argv=[*python_module("muster.app.owner"), str(project.root)],
            worker_argv=[*python_module("muster.app.worker"), str(project.root)],
            workers=workers,
            say=say,
            project=project_id,
            folder=project.folder,
            forks=self._forks,
        )
        self.api = Api(Connection(project.socket))
        self.control = Api(Connection(project.socket), reply_s=CONTROL_S)
        self._heard_s = self._looked_s = self._asked_s = time.monotonic()
        self._unheard = 0
        self._leftovers = Leftovers()
        """Who was there at the last sweep; None: it found something, so there may be more."""
        self._took_over = self._up = False
        self._waits_for_space = False
        self._marks: set[str] = set()
        """Of all workers that were ever seen: their agents' processes carry them."""
        self._run = secrets.token_hex(8)
        """What the history of the crew calls this one."""
        self._ordered: int | None = None
        """What was ordered before is no matter of this crew."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self.give_up(error)

    def adopt(self) -> None:
        """Takes over what a dead supervisor has left running."""
        found = self.supervisor.adopt()
        self._took_over = bool(found)
        told = None
        if answers(self._project.socket):
            with suppress(Unavailable):  # it may die any moment: then it is started anew
                told = self.control.get("/api/v1/owner")
                # A supervisor that was killed at once has not recorded the owner that it had started.
                if self.supervisor.adopt_owner(told["pid"]) and found:
                    found.insert(0, f"owner {told['pid']}")
        if found:
            self._say(f"took over from a dead supervisor: {', '.join(found)}")
        if told is not None:
            with suppress(Unavailable):
                self._replace_if_elsewhere(told)

    def _replace_if_elsewhere(self, told: dict[str, Any]) -> None:
        """An owner listens as it was told when it began: another one does so as we were told.  Workers go on."""
        wanted = self._serve.url
        if told.get("listening", "") == wanted and (not wanted or told["login"] == self._serve.login):
            return
        how = (
            f"does not listen at {wanted}"
            if wanted
            else f"listens at {told['listening']}, which nobody wants"
        )
        self._say(f"owner {told['pid']} {how}: another one takes its place")
        self.supervisor.stop_owner(OWNER_END_S)
        self.supervisor.owner.due_s = 0.0

    def start(self) -> bool:
        """Returns once the owner answers, and waits for space on a full disk; False where it is to end before.

        The first `tick` starts workers: before it a plan can be added, or changed, while nobody takes its tasks.
        Raises StoreFault, or the error with its own words that keeps the owner from starting.
        """
        self.adopt()
        self.supervisor.start_owner()
        deadline_s = time.monotonic() + READY_S
        while not self._began():
            if self._interrupts.level:
                return False
            late = time.monotonic() > deadline_s
            for ended in self.supervisor.tick_owner():
                self._refuse_end(ended)
                if late or (ended.code not in (DISK_FULL, HELD) and (ended.code or 0) > 0):
                    words, fix = self.supervisor.last_words(ended.child)
                    raise MusterError(f"the owner did not start: {words}", fix or "muster doctor")
            if self._waits_for_space:
                deadline_s = time.monotonic() + READY_S
                self._manager.not_yet("waits for space on the disk", READY_S)
            elif time.monotonic() > deadline_s + STATUS_S:
                raise MusterError(f"the owner did not start in {READY_S:.0f} s", "muster doctor")
            time.sleep(TICK_S / 5)
        self._up = True
        self._manager.ready(counted(len(self.supervisor.workers), "worker"))
        return True

    def _began(self) -> bool:
        """Whether the owner answers, and gives out work."""
        if not answers(self._project.socket):
            return False
        try:
            self.control.post("/api/v1/crew", {"actor": self._actor, "status": CrewStatus.RUNNING})
            self.control.post("/api/v1/coordinator/runs", {"actor": self._actor, "run": self._run})
        except StoreFull:
            self._wait_for_space()
            return False
        except Unavailable:
            return False
        return True

    def last_event(self) -> int:
        """Through restarts of the owner, before there are workers.  Raises Unavailable where it stays away."""
        deadline_s = time.monotonic() + READY_S
        while True:
            try:
                crew = self.api.get("/api/v1/crew")
                self._obey(crew)
                return int(crew["lastEventId"])
            except Unavailable:
                if time.monotonic() > deadline_s:
                    raise
                for ended in self.supervisor.tick_owner():
                    self._refuse_end(ended)
                time.sleep(TICK_S)

    def tick(self) -> None:
        """Keeps everybody running.  Raises StoreFault where the store is gone or may not be written any more."""
        if not self._lock.in_place:
            raise self._displaced()
        for ended in self.supervisor.tick():
            self._refuse_end(ended)
        if self._interrupts.reload:
            self._reload()
        if not self.supervisor.draining:
            self.supervisor.refuse_hopeless()
        now_s = time.monotonic()
        self._leftovers.look(self.supervisor.own_pids)
        silent_s = now_s - max(self._heard_s, self.supervisor.owner.started_s)
        if silent_s < self._hung_s or self._unheard < UNHEARD:
            self._manager.ping()
        elif self.supervisor.kill_owner(f"has not answered for {silent_s:.0f} s"):
            self._unheard = 0
        if now_s - self._asked_s < HEALTH_S:
            return
        self._asked_s = now_s
        self._log_file.follow()
        if (owner := self._ask("/api/v1/owner")) is not None and owner["halted"]:
            raise from_wire(**owner["halted"])
        if owner is None or now_s - self._looked_s < STATUS_S:
            return
        self._looked_s = now_s
        if (crew := self._ask("/api/v1/crew")) is None:
            return
        self._obey(crew)
        workers = [worker for worker in crew["workers"] if worker["pid"] is not None]
        self._marks |= {worker_mark(worker["id"]) for worker in workers}
        self.supervisor.let_go({worker["pid"] for worker in workers if worker["status"] == "stopping"})
        self.supervisor.replace_silent({worker["pid"] for worker in workers}, self._lease_s)
        if self.supervisor.draining and crew["crew"] == CrewStatus.STOPPED:
            self.supervisor.drop_unknown({worker["pid"] for worker in workers})

    def _reload(self) -> None:
        """Owner and workers begin anew, each once it has finished what it holds; agents go on."""
        self._interrupts.reload = False
        self._manager.reloading()
        try:
            agents_of(load_config(self._project.root), self._project)
        except MusterError as error:
            self._say(
                f"Settings  not reloaded, the crew goes on as it is: {error.message}; fix: {error.hint}"
            )
        else:
            self._say("Settings  reloaded: the owner begins anew, and each worker once its task has ended")
            self.supervisor.renew()
        self._manager.ready()

    def work_until(self, done: Callable[[], bool]) -> bool:
        """False on Ctrl-C, or when somebody else ends the crew (`muster down`)."""
        asked_s = -math.inf
        while not self._interrupts.level:
            self.tick()
            if self.supervisor.drained():
                return False
            if time.monotonic() - asked_s > STATUS_S / 5:
                asked_s = time.monotonic()
                if done():
                    return True
            time.sleep(TICK_S)
        return False

    def _displaced(self) -> StoreRefused:
        now = self._lock.path_now
        if now is not None and self._project.root.exists():
            state_dir = self._project.state_dir
            return StoreRefused(
                f"{state_dir} was moved to {now.parent} while its crew was at work; the crew is ended",
                f"put it back, and go on: mv {now.parent} {state_dir}; muster up",
            )
        if now is not None:
            place = now.parent.parent
            return StoreRefused(
                f"{self._project.folder} was moved to {place} while its crew was at work; the crew is ended",
                f"muster -C {place} up goes on with everything that is left",
            )
        return StoreRefused(
            f"{self._project.state_dir} was deleted or replaced while its crew was at work; "
            "the crew is ended; the store, the logs, and files that were neither staged nor committed are gone",
            "put it back, or run the plan again; `git clean` spares it with -e .muster",
        )

    def _ask(self, path: str) -> Any:
        """None while the owner is away.  Raises StoreFault."""
        try:
            found = self.control.get(path)
        except OwnerUnavailable:
            self._unheard += 1
            return None
        except StoreFault:
            raise
        except MusterError:
            found = None
        self._heard_s = time.monotonic()
        self._unheard = 0
        self._waits_for_space = False
        return found

    def _refuse_end(self, ended: Ended) -> None:
        """Raises StoreFault where an owner has ended because of its store."""
        if ended.child is not self.supervisor.owner:
            return
        if ended.code == NO_STORE:
            raise StoreFault(*self.supervisor.last_words(ended.child))
        if ended.code == DISK_FULL:
            self._wait_for_space()

    def _wait_for_space(self) -> None:
        if not self._waits_for_space:
            self._waits_for_space = True
            self._say("The disk is full: the owner begins as soon as there is space (Ctrl-C: end)")

    def _obey(self, crew: dict[str, Any]) -> None:
        """Does what was ordered since the last look: an end, or more workers (`muster worker start`)."""
        if crew["crew"] == CrewStatus.STOPPED:
            self._interrupts.ask(DRAIN)
        new = 0 if self._ordered is None else crew["workersOrdered"] - self._ordered
        self._ordered = crew["workersOrdered"]
        if new > 0 and not self.supervisor.draining:
            self._say(f"Crew     {counted(new, 'more worker')}, as ordered")
            self.supervisor.add_workers(new)

    def _tell(self, path: str, content: dict[str, Any]) -> None:
        # It may be full, or being started again: the loop that winds down asks once more.
        with suppress(Unavailable):
            self.control.post(path, {"actor": self._actor, **content})

    def wind_down(self) -> None:
        """Drains, stops or kills as was asked for, until every worker has ended; then the owner ends.

        Each step has its time, and the next one follows.
        """
        self._manager.stopping("drains")
        self.supervisor.drain()
        step, told_s = DRAIN, -math.inf
        self._heard_s = since_s = time.monotonic()
        while not self.supervisor.drained():
            now_s, wanted = time.monotonic(), max(self._interrupts.level, step)
            if now_s - since_s > (self._drain_s if step == DRAIN else STOP_S):
                wanted = step + 1
            if now_s - self._heard_s > OWNER_AWAY_S:
                self._say(f"The owner has not answered for {OWNER_AWAY_S:.0f} s.")
                wanted, step = KILL, STOP
            if wanted > step:
                step, since_s, told_s = step + 1, now_s, -math.inf
                self._say(STEP_WORDS[step])
            if step == KILL:
                self.kill()
                self.close(KILL_S, how=_ENDS[step])
                return
            if now_s - told_s > STATUS_S:
                told_s = now_s
                self._tell("/api/v1/crew", {"status": CrewStatus.STOPPED})
                if step == STOP:
                    self._tell("/api/v1/crew/stop", {})
            self.tick()
            time.sleep(TICK_S / 2)
        self.close(how=_ENDS[step])

    def kill(self) -> None:
        """Workers and their agents at once, whether the owner answers or not."""
        pids = self.supervisor.kill_workers()
        if pids:
            self._say(f"killed   workers with pid {', '.join(map(str, pids))}")
        deadline_s = time.monotonic() + KILL_S
        # The owner sees them die, kills their agents' processes and frees their tasks.
        while time.monotonic() < deadline_s and self._living_workers():
            kill_leftovers(self.supervisor.own_pids)
            time.sleep(TICK_S)
        self._sweep()

    def _sweep(self) -> None:
        """Of dead workers' agents no process is left, whether or not anybody has noted it."""
        kill_recorded(self._project.attempts_dir, self._host)
        sweep(self._project.attempts_dir)
        self._host.kill_marked(self._marks)
        deadline_s = time.monotonic() + KILL_S
        while kill_leftovers(self.supervisor.own_pids) and time.monotonic() < deadline_s:
            time.sleep(TICK_S / 10)

    def _living_workers(self) -> bool:
        """Those of this machine: nobody here ends the others, nor agents that serve themselves."""
        try:
            workers = self.control.get("/api/v1/workers")
        except MusterError:
            return False
        return any(worker["hostname"] == self._host.hostname for worker in workers)

    def close(self, grace_s: float = OWNER_END_S, *, how: str = _ENDS[DRAIN]) -> None:
        self.supervisor.kill_workers()  # those that had been given up
        self._note_end(how)
        self.supervisor.stop_owner(grace_s)
        self._release()

    def _note_end(self, how: str) -> None:
        # Nobody waits for it: whoever begins next notes that this one has died.
        with suppress(MusterError):
            self._tell("/api/v1/coordinator/runs", {"run": self._run, "how": how})

    def give_up(self, error: BaseException) -> None:
        """After an error.  A crew that was taken over is left as it was found, any other one is ended.

        Nobody works on without a store that is sound: then all are ended, with what they have made kept.
        """
        if isinstance(error, StoreFault):
            if self._up or self._took_over:
                self._say("The store cannot be used any more: every agent is stopped.")
            self.supervisor.kill_workers()
            # Closed in order, SQLite would remove files by the names that they had here.
            self.supervisor.owner_dies()
            self.supervisor.stop_owner(0)
            cut_off = attempts_at_work(self._project)
            deadline_s = time.monotonic() + KILL_S
            while not self.supervisor.drained() and time.monotonic() < deadline_s:
                self.supervisor.tick()
                time.sleep(TICK_S / 10)
            self._sweep()
            for line in keep_work(self._project, cut_off):
                self._say(line)
        elif not self._took_over:
            self.kill()
            self._note_end("failed")
            self.supervisor.stop_owner(KILL_S)
        self._release()

    def _release(self) -> None:
        if self._forks is not None:
            self._forks.close()
        self.api.close()
        self.control.close()
        self._lock.release()
