"""Tests of programs that use Muster: the real engine on a store of the test's own, a clock that the test moves,
and agents that say what they are told to say.  Nothing happens but while the test calls for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from muster.app.embedded import EmbeddedOwner
from muster.app.settings import load_config
from muster.client.http import ClientRequest
from muster.config.project import Project
from muster.hosts.local_host import LocalHost
from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.durations import parse_duration
from muster.model.errors import WaitTimeout
from muster.model.states import ErrorKind
from muster.runtimes.chance import SystemChance
from muster.sdk.app import App
from muster.sdk.attempt import CURRENT
from muster.sdk.client import Client
from muster.sdk.errors import GiveUp
from muster.sdk.function_worker import FunctionWorker
from muster.sdk.links import EMBEDDED, WAIT, ProjectLink, registration_of
from muster.sdk.schedules import Schedules
from muster.sdk.values import encode
from muster.testing.virtual_clock import TICK_S, VirtualClock
from muster.worker.orders import Orders

Reply = Callable[[ClaimedJob], Any] | BaseException | Any
WORK_MAX = 10_000


class Question(Exception):
    """As a reply: the agent asks a person, and its task is paused for the answer."""


class _KitOwner(EmbeddedOwner):
    """Who waits in the thread that would call `work()` is told so at once: it would wait without end."""

    tests_thread: int

    def request(self, asked: ClientRequest) -> tuple[int, bytes]:
        return self._told(*super().request(self._at_once(asked)), asked)

    async def request_async(self, asked: ClientRequest) -> tuple[int, bytes]:
        return self._told(*await super().request_async(self._at_once(asked)), asked)

    def _waits(self, asked: ClientRequest) -> bool:
        """For news.  Another thread may wait for what the test is to do, unless it runs a task."""
        here = threading.get_ident() == self.tests_thread or CURRENT.get() is not None
        return here and asked.target.startswith("/api/v1/events?") and WAIT.search(asked.target) is not None

    def _at_once(self, asked: ClientRequest) -> ClientRequest:
        if not self._waits(asked):
            return asked
        return ClientRequest(
            asked.method, WAIT.sub(r"\g<1>0", asked.target), asked.body, asked.headers, reply_s=asked.reply_s
        )

    def _told(self, status: int, data: bytes, asked: ClientRequest) -> tuple[int, bytes]:
        if data == b"[]" and self._waits(asked):
            raise WaitTimeout(
                "what is waited for has not happened, and nothing does until the test calls muster_kit.work()",
                "call muster_kit.work() first, and muster_kit.advance() for what is due later",
            )
        return status, data


class MusterKit:
    """Use as a context manager, or as the fixture `muster_kit`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: list[ClaimedJob] = []
        """What scripted agents were given, in order: prompt, model, note, and all that they know."""
        self._scripts: dict[str, list[Reply]] = {}
        self._apps: list[App] = []
        self._schedules: list[Schedules] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        project = Project(self.folder)
        self._clock = VirtualClock(LocalHost().boot_id)
        self._owner = _KitOwner.begin(project, load_config(self.folder), clock=self._clock)
        self._owner.tests_thread = threading.get_ident()
        self._stack.enter_context(self._owner)
        EMBEDDED[project.folder] = self._owner
        self._stack.callback(EMBEDDED.pop, project.folder, None)
        self.client = Client(project.folder)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def now(self) -> datetime:
        """By the clock that the test moves."""
        return datetime.fromtimestamp(self._clock.now().wall_ms / 1000, UTC)

    def use(self, *apps: App) -> None:
        """Their tasks come here until the end of the test."""
        for app in apps:
            self._stack.enter_context(self._linked(app))
            self._apps.append(app)
            crons = [(name, task.cron) for name, task in app.tasks.items() if task.cron is not None]
            self._schedules.append(Schedules(crons, app.add_for_cron))

    def agent(self, name: str, *replies: Reply) -> None:
        """An agent of this name; each reply is for one attempt, and the last one for all that follow.

        A reply is its result, an exception (a crash; GiveUp; Question), or a function that is given the job and
        returns or raises one.
        """
        self._scripts[name] = list(replies)

    def advance(self, time: float | str) -> None:
        """Moves the clock: what was due meanwhile has happened when this returns, each thing once."""
        self._owner.run(self._clock.advance(parse_duration(time)))
        for schedules in self._schedules:
            schedules.look(self.now)
        self._owner.run(self._clock.advance(TICK_S))

    def work(self) -> int:
        """Runs all that is ready, and what becomes ready by that; how many attempts."""
        agents = (*(app.name for app in self._apps), *self._scripts)
        offers = {app.name: c.Offer(capabilities=tuple(sorted(app.tasks))) for app in self._apps if app.tasks}
        registration = registration_of(agents, 1, offers, general=tuple(self._scripts))
        return _Inline(self, registration).work()

    def reply(self, job: ClaimedJob) -> Any:
        """Raises what the script says."""
        self.jobs.append(job)
        replies = self._scripts[job.agent]
        reply = replies.pop(0) if len(replies) > 1 else replies[0] if replies else None
        if callable(reply) and not isinstance(reply, BaseException):
            reply = reply(job)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    @contextmanager
    def _linked(self, app: App) -> Iterator[None]:
        before, app.link = app.link_or_none, ProjectLink(self._owner.project)
        try:
            yield
        finally:
            app.link = before

    def scripted(self, agent: str) -> bool:
        return agent in self._scripts

    def tasks_of(self, agent: str) -> dict[str, Any]:
        return next((app.tasks for app in self._apps if app.name == agent), {})

    def crew(self) -> Any:
        return self._owner.crew()


class _Inline(FunctionWorker):
    """Works in the thread of the test, until there is nothing more to do."""

    claim_wait_s = 0.0

    def __init__(self, kit: MusterKit, registration: c.Register) -> None:
        super().__init__(kit.crew(), SystemChance(), registration, {}, orphan_grace_s=0)
        self._kit = kit

    def work(self) -> int:
        loop = threading.Thread(target=self._loop, daemon=True)
        loop.start()
        self._register()
        done, claim, claimed = 0, self._new_claim(), None
        try:
            while done < WORK_MAX:
                claimed = claimed or self._claim(claim)
                if claimed is None or not claimed.jobs:
                    return done
                done, claim = done + 1, self._new_claim()
                claimed = self._run_jobs(claimed.jobs, claim)
            raise AssertionError(f"after {WORK_MAX} attempts there is still something to do")
        finally:
            self._crew.deregister(c.Deregister(worker_id=self._worker_id, reason="the test has worked"))
            self._finished.set()
            self._looping.call_soon_threadsafe(self._looping.stop)
            loop.join()
            self._looping.close()

    def _attempt(self, job: ClaimedJob, orders: Orders) -> list[c.AttemptCommand]:
        if not self._kit.scripted(job.agent):
            self._tasks = self._kit.tasks_of(job.agent)
            return super()._attempt(job, orders)
        named: dict[str, Any] = {"task_id": job.task_id, "epoch": job.epoch, "proof": job.proof}
        try:
            result = encode(self._kit.reply(job), f"the reply of {job.agent}")
        except Question as question:
            return [c.Park(**named, question=str(question))]
        except GiveUp as error:
            return [c.Fail(**named, kind=ErrorKind.INVALID, message=str(error))]
        except (Exception, asyncio.CancelledError) as error:
            return [c.Fail(**named, kind=ErrorKind.CRASH, message=f"{type(error).__name__}: {error}")]
        return [c.Complete(**named, result=result, exit_code=0)]
