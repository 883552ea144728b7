"""Functions as tasks, with the owner in this process."""

from __future__ import annotations

import asyncio
import dataclasses
import re
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import muster
from muster.model.errors import BadInput, Conflict, WaitTimeout
from muster.model.states import ErrorKind, TaskStatus
from muster.sdk import function_worker
from muster.worker.lease_guard import boot_s
from patience import PATIENCE_S, until


@dataclasses.dataclass
class Report:
    repo: str
    at: datetime
    lines: tuple[int, ...] = ()


def test_arguments_and_results_keep_their_types(app: muster.App):
    seen: list[object] = []

    @app.task
    def build(report: Report, *more: int, factor: float = 1.5) -> Report:
        seen.append((report, more, factor))
        return dataclasses.replace(report, lines=more)

    given = Report("x", datetime(2026, 1, 2, tzinfo=UTC))
    with app.running():
        assert build.enqueue(given, 3, 4).result(PATIENCE_S) == dataclasses.replace(given, lines=(3, 4))
    assert seen == [(given, (3, 4), 1.5)]


def test_what_does_not_fit_is_refused_where_it_is_added(app: muster.App):
    @app.task
    def add(a: int, b: int = 2) -> int:
        return a + b

    with pytest.raises(TypeError, match="add: missing a required argument"):
        add.enqueue()  # type: ignore[call-arg]
    with pytest.raises(BadInput, match="cannot be written as JSON"):
        add.enqueue(threading.Lock())  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="no option 'retrys'"):
        add.with_options(retrys=1)
    assert add(1) == 3, "the function itself is still there"


@pytest.mark.parametrize("name", ["", " ", "a/b\0", "x" * 201, "\ud800"])
def test_an_app_is_called_as_an_agent_may_be(name: str):
    with pytest.raises(BadInput, match="no app can be called"):
        muster.App(name)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"title": "\ud800"}, "surrogates"),
        ({"title": ""}, "length >= 1"),
        ({"title": "a\0b"}, "NUL character"),
        ({"tags": ["a\0"]}, "NUL character"),
        ({"tags": "abc"}, "is one text"),
        ({"tags": [7]}, "got `int`"),
        ({"timeout": 0}, "end before it begins"),
        ({"expires": "0s"}, "expire before it begins"),
        ({"not_before": "2027-01-01"}, "not_before is '2027-01-01'"),
        ({"not_before": datetime(1, 1, 1)}, "no time that can come"),  # noqa: DTZ001
        ({"priority": 11}, "<= 10"),
    ],
)
def test_an_option_is_refused_where_it_is_said(app: muster.App, options, said: str):
    with pytest.raises(BadInput, match=said):
        app.task(name="named", **options)(print)
    task = app.task(name="other")(lambda: None)
    with pytest.raises(BadInput, match=said):
        task.with_options(**options)


def test_progress_that_cannot_be_is_refused_and_the_task_goes_on(app: muster.App):
    @app.task
    def tell(ctx: muster.TaskContext) -> list[str]:
        said = []
        for done, step in (
            (float("nan"), "x"),
            (float("inf"), "x"),
            (1, "\ud800"),
            (1, "x" * 20_000),
            (1, "a\0"),
        ):
            with pytest.raises(BadInput) as refused:
                ctx.progress(done, step=step)
            said.append(str(refused.value))
        ctx.progress(50, step="half")
        return said

    with app.running():
        assert len(tell.enqueue().result(PATIENCE_S)) == 5


def test_no_step_has_a_nul_in_its_name(app: muster.App):
    ran: list[str] = []

    @app.task
    def build(ctx: muster.TaskContext) -> None:
        ctx.step("a", ran.append, "a")
        ctx.step("a\0b", ran.append, "b")

    @app.task
    async def build_async(ctx: muster.AsyncTaskContext) -> None:
        await ctx.step("a\0b", ran.append, "b")

    @app.task
    def nameless(ctx: muster.TaskContext, name: Any) -> None:
        ctx.step(name, ran.append, "b")

    with app.running():
        for task in (build, build_async):
            with pytest.raises(muster.TaskFailed, match="NUL character; it was not run"):
                task.enqueue().result(PATIENCE_S)
        for name in ("", 7):
            with pytest.raises(muster.TaskFailed, match=f"no step can be called {name!r}"):
                nameless.enqueue(name).result(PATIENCE_S)
    assert ran == ["a"]


def test_a_failure_is_tried_again_and_told(app: muster.App):
    calls: list[int] = []

    @app.task(retries=1)
    def flaky(ctx: muster.TaskContext) -> int:
        calls.append(ctx.attempt)
        if len(calls) < 3:
            raise ValueError("boom")
        return 7

    with app.running():
        handle = flaky.enqueue()
        with pytest.raises(muster.TaskFailed, match=r"reports/flaky-.* failed: ValueError: boom") as told:
            handle.result(PATIENCE_S)
        assert [attempt.error_kind for attempt in told.value.attempts] == [ErrorKind.CRASH] * 2
        assert "Traceback" in handle.detail().log_tail
        handle.retry()
        assert handle.result(PATIENCE_S) == 7
    assert calls == [1, 2, 3]


@pytest.mark.parametrize("error", [muster.GiveUp("hopeless"), BadInput("hopeless")], ids=["own", "refused"])
def test_what_no_other_try_would_mend_is_not_tried_again(app: muster.App, error: Exception):
    @app.task
    def hopeless() -> None:
        raise error

    with app.running(), pytest.raises(muster.TaskFailed, match="hopeless") as told:
        hopeless.enqueue().result(PATIENCE_S)
    (attempt,) = told.value.attempts
    assert attempt.error_kind is ErrorKind.INVALID


def test_steps_are_not_run_again_by_a_retry(app: muster.App):
    ran: list[str] = []

    def work(name: str) -> tuple[str, int]:
        ran.append(name)
        return name, len(ran)

    @app.task
    def steps(ctx: muster.TaskContext) -> list[tuple[str, int]]:
        made = [ctx.step("one", work, "a"), ctx.step("one", work, "b")]
        state = ctx.checkpoint.load({"n": 0})
        ctx.checkpoint.save({"n": state["n"] + 1})
        if state["n"] == 0:
            raise ValueError("after two steps")
        assert state == {"n": 1}
        return [*made, ctx.step("two", work, "c")]

    with app.running():
        assert steps.enqueue().result(PATIENCE_S) == [("a", 1), ("b", 2), ("c", 3)]
    assert ran == ["a", "b", "c"]


def test_asynchronous_tasks(app: muster.App):
    ran: list[str] = []

    async def fetch(name: str) -> str:
        await asyncio.sleep(0)
        ran.append(name)
        return name.upper()

    @app.task
    async def gather(ctx: muster.AsyncTaskContext, names: list[str]) -> list[str]:
        await ctx.progress(1, 2, "fetching")
        found = [await ctx.step(name, fetch, name) for name in names]
        await ctx.checkpoint.save(len(ran))
        if ctx.attempt == 1:
            raise ConnectionError
        assert ctx.checkpoint.load(0) == 2
        return [*found, await ctx.step("plain", str.lower, "C")]

    async def main() -> list[str]:
        handle = await gather.enqueue_async(["a", "b"])
        events = [event.event async for event in handle.events()]
        assert events.count("checkpoint") == 5 and events[-1] == "completed"
        return await handle.result(PATIENCE_S)

    with app.running(2):
        assert asyncio.run(main()) == ["A", "B", "c"]
    assert ran == ["a", "b"]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["thread", "async"])
def test_a_cancel_stops_the_function_and_nothing_of_it_counts(app: muster.App, asynchronous: bool):
    begun, ended = threading.Event(), threading.Event()

    @app.task(name="long")
    def plain(ctx: muster.TaskContext) -> None:
        begun.set()
        try:
            while True:
                ctx.raise_if_stopped()
                time.sleep(0.01)
        finally:
            ended.set()

    @app.task(name="long async")
    async def awaiting() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with app.running():
        handle = (awaiting if asynchronous else plain).enqueue()
        assert begun.wait(PATIENCE_S)
        handle.cancel("not wanted")
        with pytest.raises(muster.TaskCancelled, match="not wanted"):
            handle.result(PATIENCE_S)
        assert ended.wait(PATIENCE_S)
        until(lambda: handle.task().lingering_epoch is None, "its worker says that it has ended")


def test_a_function_that_hears_nothing_is_interrupted_when_its_time_is_over(app: muster.App, monkeypatch):
    monkeypatch.setattr("muster.sdk.function_worker.NAG_S", 0.1)

    @app.task(timeout="1s", retries=0)
    def deaf() -> None:
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                pytest.fail("it is no error")

    with app.running(), pytest.raises(muster.TaskFailed, match="longer than 1 s") as told:
        deaf.enqueue().result(PATIENCE_S)
    assert told.value.attempts[0].error_kind is ErrorKind.TIMEOUT


def test_what_a_function_returns_after_its_time_does_not_count(app: muster.App):
    @app.task(timeout="1s", retries=0)
    def late() -> int:
        time.sleep(1.2)  # a call that nothing interrupts, and that ends after its time
        return 1

    with app.running(), pytest.raises(muster.TaskFailed, match="longer than 1 s") as told:
        late.enqueue().result(PATIENCE_S)
    assert told.value.attempts[0].error_kind is ErrorKind.TIMEOUT


def test_a_pause_keeps_what_was_done(app: muster.App):
    begun, go_on = threading.Event(), threading.Event()

    @app.task
    def counting(ctx: muster.TaskContext) -> int:
        n = ctx.checkpoint.load(0)
        ctx.checkpoint.save(n + 1)
        begun.set()
        while not go_on.is_set():
            ctx.raise_if_stopped()
            time.sleep(0.01)
        return n + 1

    with app.running():
        handle = counting.enqueue()
        assert begun.wait(PATIENCE_S)
        handle.pause()
        until(lambda: handle.task().status is TaskStatus.PAUSED, "it is paused")
        assert not handle.detail().attempts[0].error_kind
        go_on.set()
        handle.resume()
        assert handle.result(PATIENCE_S) == 2


def test_waiting_ends_and_the_task_goes_on(app: muster.App):
    @app.task(delay="1h")
    def later() -> None: ...

    handle = later.enqueue()
    with pytest.raises(WaitTimeout, match="is not done"):
        handle.result(timeout=0.1)
    assert handle.task().status is TaskStatus.PENDING


def test_tasks_wait_for_each_other_and_know_their_parent(app: muster.App):
    @app.task
    def child(n: int) -> int:
        return n * 2

    @app.task
    def parent() -> int:
        return child.enqueue(4).id

    with app.running(2):
        first = parent.enqueue()
        second = child.with_options(after=[first], priority=9).enqueue(5)
        assert second.result(PATIENCE_S) == 10
        assert first.task().status is TaskStatus.COMPLETED
        made = muster.Handle[int](app.link, first.result(), int)
        assert made.result(PATIENCE_S) == 8
        assert made.task().parent_task_id == first.id


def test_one_key_is_one_task(app: muster.App):
    ran: list[int] = []

    @app.task(idempotency_key="gh-812")
    def once(n: int) -> None:
        ran.append(n)

    with app.running():
        first, again = once.enqueue(1), once.enqueue(1)
        assert first.id == again.id
        first.result(PATIENCE_S)
        with pytest.raises(Conflict, match="another task"):
            once.enqueue(2)
    assert ran == [1]


def test_a_call_is_one_task(app: muster.App):
    @app.task
    def greet(name: str) -> str:
        return f"hello {name}"

    call, keyed = greet.call("ada"), greet.with_options(idempotency_key="gh-813").call("ada")
    with app.owning():
        with pytest.raises(BadInput, match="the same call of greet is there 3 times") as refused:
            app.enqueue([greet.call("bob"), *[call] * 3])
        assert "[greet.call(...) for _ in range(3)]" in refused.value.hint
        with pytest.raises(BadInput, match="idempotency key gh-813 is given twice"):
            app.enqueue([keyed] * 2)
        (first,), (again,) = app.enqueue([call]), app.enqueue([call])
        assert first.id == again.id
        assert len({handle.id for handle in app.enqueue([greet.call("ada") for _ in range(3)])}) == 3


@pytest.mark.parametrize("batch", [1, 7])
def test_all_of_many_are_run_once(app: muster.App, batch: int):
    ran: list[int] = []

    @app.task
    def note(n: int) -> int:
        ran.append(n)
        if n % 10 == 3:
            raise muster.GiveUp(str(n))
        return n

    handles = app.enqueue([note.call(n) for n in range(50)])
    with app.running(3, batch=batch):
        for n, handle in enumerate(handles):
            if n % 10 == 3:
                with pytest.raises(muster.TaskFailed, match=str(n)):
                    handle.result(PATIENCE_S)
            else:
                assert handle.result(PATIENCE_S) == n
    assert sorted(ran) == [*range(50)]


def test_the_end_of_one_is_told_while_another_of_its_batch_goes_on(app: muster.App):
    go_on = threading.Event()

    @app.task
    def wait(long: bool) -> None:
        assert not long or go_on.wait(PATIENCE_S)

    *short, last = app.enqueue([wait.call(long) for long in (False, False, True)])
    with app.running(batch=3):
        for handle in short:
            handle.result(PATIENCE_S)
        assert last.task().status is TaskStatus.RUNNING
        go_on.set()
        last.result(PATIENCE_S)


@pytest.mark.promise("L5")
def test_what_waits_for_its_turn_is_not_begun_once_its_lease_may_be_over(
    app: muster.App, monkeypatch: pytest.MonkeyPatch
):
    """As when its process was stopped, and somebody else has done it since."""
    ran: list[tuple[int, int]] = []
    slept_s = [0.0]
    monkeypatch.setattr(function_worker, "boot_s", lambda: boot_s() + slept_s[0])
    monkeypatch.setattr(function_worker, "GATHER_S", PATIENCE_S)  # they are quick on any machine

    @app.task
    def note(ctx: muster.TaskContext, n: int) -> None:
        ran.append((n, ctx.attempt))
        if n == 60 and ctx.attempt == 1:
            slept_s[0] = 3600.0

    handles = app.enqueue([note.call(n) for n in range(64)])
    with app.running(batch=4):
        for handle in handles:
            handle.result(PATIENCE_S)
    assert ran[:61] == [(n, 1) for n in range(61)], "quick ones start with their claim"
    assert sorted(ran[61:]) == [(61, 2), (62, 2), (63, 2)]
    assert not any(handle.task().retries or handle.task().losses for handle in handles)


def test_what_expires_while_it_waits_in_its_batch_is_not_begun(
    app: muster.App, monkeypatch: pytest.MonkeyPatch
):
    ran: list[int] = []
    monkeypatch.setattr(function_worker, "GATHER_S", PATIENCE_S)  # they are quick on any machine

    @app.task
    def note(n: int) -> None:
        ran.append(n)
        time.sleep(1.5 * (n == 60))  # longer than those behind it may wait

    late = note.with_options(expires="1s")
    handles = app.enqueue([*(note.call(n) for n in range(62)), late.call(62), late.call(63)])
    with app.running(batch=4):
        for handle in handles[62:]:
            with pytest.raises(muster.TaskFailed, match="expired"):
                handle.result(PATIENCE_S)
    assert ran == [*range(62)]


def test_a_function_that_stops_by_itself_has_failed(app: muster.App):
    """Given back, it would begin again at once, for ever."""
    ran: list[int] = []

    @app.task(retries=0)
    def give_up() -> None:
        ran.append(1)
        raise muster.TaskStopped("enough")

    with app.running(), pytest.raises(muster.TaskFailed, match="TaskStopped: enough"):
        give_up.enqueue().result(PATIENCE_S)
    assert len(ran) == 1


@pytest.mark.parametrize(
    ("concurrency", "batch"), [(0, 1), (1, 0), (20, 100), (1, -1), ("a", 1), (2, 1.5), (1.5, "a")]
)
def test_what_a_worker_cannot_hold_is_refused_at_once(app: muster.App, concurrency: int, batch: int):
    @app.task
    def noop() -> None: ...

    with pytest.raises(BadInput, match="cannot be"), app.running(concurrency, batch=batch):
        raise AssertionError


def test_a_worker_that_ends_gives_back_what_it_has_not_begun(app: muster.App, tmp_path: Path):
    ran: list[int] = []

    @app.task
    def slow(ctx: muster.TaskContext, n: int) -> None:
        ran.append(n)
        while not ctx.stopped:
            time.sleep(0.01)
        ctx.raise_if_stopped()

    handles = app.enqueue([slow.call(n) for n in range(4)])
    with app.running(batch=4, stop_s=0):
        until(lambda: ran, "one has begun")
    states = [handle.task() for handle in handles]
    assert [view.status for view in states] == [TaskStatus.PENDING] * 4
    assert not any(view.losses or view.retries for view in states)
    assert ran == [0]


def test_every_name_of_the_package_is_there_and_none_is_loaded_for_nothing():
    stub = Path(muster.__file__ or "").with_suffix(".pyi").read_text()
    told = set(re.findall(r" as (\w+)$", stub, re.MULTILINE))
    assert told == {name for name in dir(muster) if name[0].isupper()}
    assert all(getattr(muster, name).__name__ == name for name in told)
    code = "import muster, sys; sys.exit(any(name.startswith('muster.') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
