"""What a task raises ends its attempt alone; a worker that breaks by itself is no silence."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import NoReturn

import pytest

import muster
from muster.model import commands as c
from muster.model.answers import Moved
from muster.model.errors import WaitTimeout
from muster.model.states import AttemptStatus, ErrorKind
from muster.sdk import function_worker
from muster.sdk.function_worker import Answers, FunctionWorker
from patience import PATIENCE_S


class Abort(BaseException):
    """As of a library that wants no `except Exception` to hold it up."""


class Unsayable(Exception):
    def __str__(self) -> str:
        raise Abort


ERRORS = [
    Abort,
    GeneratorExit,
    SystemExit,
    KeyboardInterrupt,
    StopIteration,
    Unsayable,
    pytest.fail.Exception,
]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("error", ERRORS)
def test_whatever_a_function_raises_fails_its_attempt_alone(
    app: muster.App, error: type[BaseException], batch: int
) -> None:
    def step() -> None:
        raise error

    @app.task(retries=0)
    def leaks(ctx: muster.TaskContext) -> None:
        ctx.step("one", step)

    @app.task
    def fine() -> str:
        return "fine"

    with app.running(2, batch=batch):
        failing, well = leaks.enqueue(), fine.enqueue()
        check_failed(failing, error)
        assert well.result(PATIENCE_S) == "fine"
        assert fine.enqueue().result(PATIENCE_S) == "fine"


@pytest.mark.parametrize("where", ["itself", "step", "thread", "task"])
@pytest.mark.parametrize("error", ERRORS)
def test_the_same_of_one_that_is_asynchronous(
    app: muster.App, error: type[BaseException], where: str
) -> None:
    def raising() -> NoReturn:
        raise error

    async def awaiting() -> NoReturn:
        await asyncio.sleep(0)
        raise error

    @app.task(retries=0)
    async def leaks(ctx: muster.AsyncTaskContext) -> None:
        if where == "itself":
            raise error
        if where == "step":
            await ctx.step("one", awaiting)
        if where == "thread":
            await ctx.step("one", raising)
        await asyncio.create_task(awaiting())

    @app.task
    async def fine() -> str:
        await asyncio.sleep(0)
        return "fine"

    with app.running(2):
        # What is no value of a future, as StopIteration, comes as another error.
        check_failed(leaks.enqueue(), None if error is StopIteration else error)
        assert fine.enqueue().result(PATIENCE_S) == "fine"


def check_failed(handle: muster.Handle[None], error: type[BaseException] | None) -> None:
    with pytest.raises(muster.TaskFailed, match=None if error is None else error.__name__) as told:
        handle.result(PATIENCE_S)
    (attempt,) = told.value.attempts
    assert attempt.error_kind is ErrorKind.CRASH
    assert "File " in handle.detail().log_tail, "its trace is kept"


def test_one_that_is_cancelled_before_its_first_step_ends_all_the_same(app: muster.App) -> None:
    begun = threading.Event()

    @app.task(retries=0)
    async def greedy() -> None:
        mine, others = asyncio.current_task(), set[asyncio.Task[object]]()
        begun.set()
        while not others:
            others = asyncio.all_tasks() - {mine}
            for other in others:
                other.cancel()
            await asyncio.sleep(0)

    @app.task(retries=0)
    async def victim() -> None: ...

    with app.running(2):
        first = greedy.enqueue()
        assert begun.wait(PATIENCE_S)
        check_failed(victim.enqueue(), asyncio.CancelledError)
        first.result(PATIENCE_S)


def test_a_generator_is_no_result(app: muster.App) -> None:
    @app.task(retries=0)
    def numbers() -> object:
        yield 1

    @app.task
    def fine() -> int:
        return 1

    with app.running():
        with pytest.raises(muster.TaskFailed, match="what numbers has returned cannot be written as JSON"):
            numbers.enqueue().result(PATIENCE_S)
        assert fine.enqueue().result(PATIENCE_S) == 1


@pytest.mark.parametrize("part", ["_run_jobs", "_beat", "_mind"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "async"])
def test_a_worker_that_breaks_is_told_to_who_waits(
    app: muster.App, monkeypatch: pytest.MonkeyPatch, part: str, asynchronous: bool
) -> None:
    def breaks(*_: object) -> NoReturn:
        raise ZeroDivisionError("a bug of ours")

    @app.task(delay="1h")
    def later() -> None: ...

    @app.task
    def now() -> None: ...

    async def wait() -> None:
        await (await later.enqueue_async()).result()

    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(FunctionWorker, part, breaks)
        with app.running(2):
            now.enqueue()
            with pytest.raises(
                muster.WorkerBroken, match=r"worker of reports .* has ended: ZeroDivisionError"
            ):
                asyncio.run(wait()) if asynchronous else later.enqueue().result()
    with app.running(), pytest.raises(WaitTimeout):
        later.enqueue().result(0)


@pytest.mark.promise("S1")
def test_what_an_end_brings_after_its_lease_is_given_back(
    app: muster.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer was long on the way, and somebody else may have the task by then."""
    real_say, real_boot_s = FunctionWorker._say, function_worker.boot_s
    slow, late_s = threading.Event(), [0.0]

    def say(self: FunctionWorker, commands: Sequence[c.AttemptCommand]) -> Answers:
        answers = real_say(self, commands)
        if slow.is_set() and isinstance(answers[-1], Moved) and answers[-1].next:
            slow.clear()
            late_s[0] += 3_600.0
        return answers

    monkeypatch.setattr(FunctionWorker, "_say", say)
    monkeypatch.setattr(function_worker, "boot_s", lambda: real_boot_s() + late_s[0])

    @app.task
    def first() -> None:
        assert both.wait(PATIENCE_S)

    @app.task
    def second() -> int:
        return 2

    both = threading.Event()
    with app.running(1, batch=1):
        begun, waiting = first.enqueue(), second.enqueue()
        slow.set()
        both.set()
        begun.result(PATIENCE_S)
        assert waiting.result(PATIENCE_S) == 2
        released, done = waiting.detail().attempts
    assert not slow.is_set()
    assert released.status is AttemptStatus.RELEASED
    assert done.status is AttemptStatus.COMPLETED
