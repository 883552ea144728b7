"""An app: functions that run as tasks, and the worker that runs them."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from muster.app.embedded import owner_ended
from muster.model import commands as c
from muster.model.agents import NAME_RULE, can_be_called
from muster.model.commands.base import SLOTS_MAX
from muster.model.durations import parse_duration
from muster.model.errors import BadInput, MusterError
from muster.runtimes.chance import SystemChance
from muster.sdk.attempt import NAG_S
from muster.sdk.context import AsyncTaskContext, TaskContext
from muster.sdk.errors import WorkerBroken
from muster.sdk.function_worker import FunctionWorker
from muster.sdk.handles import AsyncHandle, Handle
from muster.sdk.links import EMBEDDED, Owned, ProjectLink, owning, project_at, registration_of
from muster.sdk.options import FunctionOptions
from muster.sdk.schedules import Schedules
from muster.sdk.tasks import AppTask, Call, settle

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

LOOK_S = 0.5
"""Between two looks at what is due by a cron."""
STOP_S = 2 * NAG_S + 1
"""How long a function may take to end that was told to, and is interrupted then."""


class TaskDecorator(Protocol):
    """Keeps the signature of the function, without the context that the worker gives it."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[AsyncTaskContext, P], Awaitable[R]]
    ) -> AppTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[TaskContext, P], R]) -> AppTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> AppTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> AppTask[P, R]: ...


class App:
    """A queue of its own: a plan of this name, and an agent of this name that only its workers have."""

    def __init__(self, name: str, *, project: str | os.PathLike[str] | None = None) -> None:
        """`project` is the folder that holds `.muster/`; without it that of the working directory."""
        if not can_be_called(name):
            raise BadInput(f"no app can be called {name!r}: {NAME_RULE}")
        self.name = name
        self.tasks: dict[str, AppTask[..., Any]] = {}
        self._folder = project
        self._linking = threading.Lock()
        self._linked: ProjectLink | None = None

    @property
    def link(self) -> ProjectLink:
        """Found when it is needed first: an app may be made wherever its module is imported."""
        with self._linking:
            if self._linked is None:
                self._linked = ProjectLink(project_at(self._folder))
            return self._linked

    @link.setter
    def link(self, link: ProjectLink | None) -> None:
        self._linked = link

    @property
    def link_or_none(self) -> ProjectLink | None:
        return self._linked

    # -- tasks

    @overload
    def task(
        self, function: Callable[Concatenate[AsyncTaskContext, P], Awaitable[R]], /
    ) -> AppTask[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[TaskContext, P], R], /) -> AppTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> AppTask[P, R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> AppTask[P, R]: ...
    @overload
    def task(self, /, *, name: str | None = None, **options: Unpack[FunctionOptions]) -> TaskDecorator: ...
    def task(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        **options: Unpack[FunctionOptions],
    ) -> Any:
        """Makes a function a task.

        A first parameter that is annotated with TaskContext (AsyncTaskContext for a function that is
        asynchronous) is given by the worker.
        """

        def make(function: Callable[..., Any]) -> AppTask[..., Any]:
            called = name or function.__name__
            if called in self.tasks:
                raise BadInput(f"app {self.name} has a task {called!r} already", "give it another name=")
            made: AppTask[..., Any] = AppTask(self, function, called, options)
            self.tasks[called] = made
            return made

        return make if function is None else make(function)

    def enqueue(self, calls: Sequence[Call[R]]) -> list[Handle[R]]:
        """Adds all of them in one commit, or none.

        A call is one task: the same one added again gives the task that it has become.
        """
        added = self.link.enqueue(self._command(calls))
        return [self._handle(call, number) for call, number in zip(calls, added.task_ids, strict=True)]

    async def enqueue_async(self, calls: Sequence[Call[R]]) -> list[AsyncHandle[R]]:
        added = await self.link.enqueue_async(self._command(calls))
        return [
            AsyncHandle(self.link, number, call.task.returns)
            for call, number in zip(calls, added.task_ids, strict=True)
        ]

    def _handle(self, call: Call[R], number: int) -> Handle[R]:
        return Handle(self.link, number, call.task.returns)

    def add_for_cron(self, name: str, key: str) -> None:
        self.tasks[name].with_options(idempotency_key=f"{self.name} {key}").enqueue()

    def _command(self, calls: Sequence[Call[Any]]) -> c.Enqueue:
        _refuse_others(calls)
        specs = tuple(call.spec for call in calls)
        if len(set(map(id, specs))) < len(specs):
            _refuse_again(calls)
        return c.Enqueue(plan=self.name, source=None, tasks=specs, actor=self.link.actor)

    # -- workers

    @contextlib.contextmanager
    def running(
        self, concurrency: int = 1, *, batch: int = 1, embedded: bool | None = None, stop_s: float = 10.0
    ) -> Iterator[RunningApp]:
        """With a worker of so many threads in this process; at the end what runs has `stop_s` to finish.

        The owner that is up hands out the work; where none is, this process is it (`embedded`: whether it is
        to be in any case).
        """
        stop_s = _seconds("stop_s", stop_s)
        with contextlib.ExitStack() as stack:
            if embedded is not False:
                stack.enter_context(self.owning() if embedded else Owned(self.link.project))
            running = RunningApp(self, self._worker(concurrency, batch))
            stack.callback(running.end, stop_s)
            running.begin()
            yield running

    def run_worker(
        self, concurrency: int = 1, *, batch: int = 1, embedded: bool | None = None, stop_s: float = 10.0
    ) -> None:
        """As `running`, until Ctrl-C, SIGTERM, or the end of the crew.  For the main thread."""
        asked = threading.Event()
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, lambda *_: asked.set()) for number in numbers}
        try:
            with self.running(concurrency, batch=batch, embedded=embedded, stop_s=stop_s) as running:
                while not asked.wait(0.2) and running.alive:
                    pass
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextlib.contextmanager
    def owning(self) -> Iterator[None]:
        """This process holds the store, also while no worker of the app runs in it."""
        with owning(self.link.project):
            yield

    def _worker(self, concurrency: int, batch: int) -> FunctionWorker:
        if not self.tasks:
            raise BadInput(f"app {self.name} has no tasks", "decorate a function with @app.task")
        given = {"concurrency": concurrency, "batch": batch}
        if all(isinstance(number, int) for number in given.values()):
            given["both together"] = concurrency * batch
        for name, number in given.items():
            if not isinstance(number, int) or not 1 <= number <= SLOTS_MAX:
                raise BadInput(
                    f"{name} cannot be {number!r}; nothing was begun",
                    f"concurrency times batch is 1 to {SLOTS_MAX}: so many tasks a worker may hold",
                )
        for task in self.tasks.values():
            settle(task)
        registration = registration_of(
            (self.name,), concurrency, {self.name: c.Offer(capabilities=tuple(sorted(self.tasks)))}
        )
        crew = self.link.crew()
        return FunctionWorker(
            crew, SystemChance(), registration, self.tasks, batch=batch, orphan_grace_s=600.0
        )


def _seconds(name: str, given: float) -> float:
    """Raises BadInput."""
    try:
        return parse_duration(given)
    except BadInput as error:
        raise BadInput(f"{name}: {error.message}; nothing was begun", error.hint) from None


def _refuse_others(calls: object) -> None:
    """Raises BadInput for what is no list of calls."""
    others = [one for one in calls if not isinstance(one, Call)] if isinstance(calls, Sequence) else [calls]
    if not others:
        return
    wrong = others[0]
    task = wrong if isinstance(wrong, AppTask) else getattr(wrong, "task", None)
    name = task.name if isinstance(task, AppTask) else "TASK"
    raise BadInput(
        f"app.enqueue takes a list of calls, and {wrong!r:.100} is none; nothing was added",
        f"write [{name}.call(...)]",
    )


def _refuse_again(calls: Sequence[Call[Any]]) -> None:
    """Raises BadInput where one call is there more often than once, unless its idempotency key tells that."""
    (again, often), *_ = Counter(calls).most_common(1)
    if often > 1 and again.spec.idempotency_key is None:
        name = again.task.name
        raise BadInput(
            f"the same call of {name} is there {often} times, and a call is one task; nothing was added",
            f"make a call for each task: [{name}.call(...) for _ in range({often})]",
        )


class RunningApp:
    """A worker in threads of this process."""

    def __init__(self, app: App, worker: FunctionWorker) -> None:
        self.app = app
        self._worker = worker
        self._thread = threading.Thread(target=self._run, name=f"muster-{app.name}", daemon=True)
        self._error: BaseException | None = None
        self._link = app.link
        self._pid = os.getpid()
        self._ending = threading.Event()
        crons = [(name, task.cron) for name, task in app.tasks.items() if task.cron is not None]
        self._schedules = Schedules(crons, app.add_for_cron) if crons else None

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def begin(self) -> None:
        self._link.fault = self.fault
        self._thread.start()
        if self._schedules is not None:
            threading.Thread(target=self._look, args=(self._schedules,), daemon=True).start()

    def end(self, stop_s: float) -> None:
        """Raises what has ended it, if that was no end of ours."""
        self._link.fault = None
        if os.getpid() != self._pid:
            return  # a forked child: the worker is its parent's
        self._ending.set()
        self._worker.drain()
        self._thread.join(stop_s)
        if self._thread.is_alive():
            self._worker.stop()
            self._thread.join(max(stop_s, STOP_S))
        if self._thread.is_alive():
            log.warning("a task of %s does not stop: it is lost with this process", self.app.name)
        if (error := self._error or self._worker.error) is not None:
            raise error

    def fault(self) -> MusterError | None:
        """What has ended it, told to whoever waits for its tasks."""
        error = self._error or self._worker.error
        owner = EMBEDDED.get(self._link.project.folder)
        if error is None:
            return owner_ended() if owner is not None and owner.ended else None
        broken = WorkerBroken(
            f"the worker of {self.app.name} in this program has ended: {type(error).__name__}: {error}; "
            "its tasks are kept and wait for another worker",
            "leave `running()`, which raises the error itself, and begin it again",
        )
        broken.__cause__ = error
        return broken

    def _run(self) -> None:
        try:
            self._worker.run()
        except BaseException as error:
            self._error = error

    def _look(self, schedules: Schedules) -> None:
        """The wall clock may jump, so it is looked at often."""
        while not self._ending.is_set():
            schedules.look(datetime.now(UTC))
            self._ending.wait(LOOK_S)
