"""What users' own tests are given: a clock that they move, and agents that say what they are told to say."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import muster
from muster.model.errors import WaitTimeout
from muster.model.states import TaskStatus


def test_nothing_happens_but_when_the_test_works(muster_kit: muster.MusterKit):
    app = muster.App("shop")
    ran: list[int] = []

    @app.task(retries=1)
    def flaky(n: int) -> int:
        ran.append(n)
        if len(ran) < 2:
            raise ValueError("boom")
        return n * 2

    muster_kit.use(app)
    handle = flaky.enqueue(4)
    assert not ran and handle.task().status is TaskStatus.PENDING
    assert muster_kit.work() == 1
    assert handle.task().status is TaskStatus.ABORTED, "the next try waits as the settings say"
    with pytest.raises(WaitTimeout):
        handle.result(0)
    assert muster_kit.work() == 0
    muster_kit.advance("10m")
    assert muster_kit.work() == 1 and handle.result(0) == 8


def test_who_waits_for_what_only_the_test_can_do_is_told_at_once(muster_kit: muster.MusterKit):
    app = muster.App("shop")

    @app.task
    def price(n: int) -> int:
        return n * 3

    @app.task
    def prices() -> int:
        return price.enqueue(1).result()

    muster_kit.use(app)
    handle = price.enqueue(2)
    for wait in (handle.result, lambda: handle.result("1h"), lambda: list(handle.events())):
        with pytest.raises(WaitTimeout, match=r"until the test calls muster_kit\.work\(\)"):
            wait()

    async def waits() -> int:
        return await (await price.enqueue_async(3)).result()

    with pytest.raises(WaitTimeout, match=r"muster_kit\.work"):
        asyncio.run(waits())
    outer = prices.with_options(retries=0).enqueue()
    muster_kit.work()
    assert handle.result() == 6
    with pytest.raises(muster.TaskFailed, match=r"muster_kit\.work"):
        outer.result()


def test_a_thread_of_the_program_may_wait_for_what_the_test_does(muster_kit: muster.MusterKit):
    app = muster.App("shop")

    @app.task
    def price(n: int) -> int:
        return n * 3

    muster_kit.use(app)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(price.enqueue(2).result, "1m")
        time.sleep(0.1)  # it waits by then, as a rule; it is right all the same where it begins later
        muster_kit.work()
        assert waiting.result() == 6


def test_delays_and_limits_pass_in_no_time(muster_kit: muster.MusterKit):
    app = muster.App("shop")

    @app.task(delay="3h")
    async def later() -> str:
        await asyncio.sleep(0)
        return "done"

    @app.task(expires="1h")
    def soon() -> None: ...

    muster_kit.use(app)
    begun, late, gone = muster_kit.now, later.enqueue(), soon.enqueue()
    muster_kit.advance("2h")
    muster_kit.advance("59m")
    assert muster_kit.work() == 0
    with pytest.raises(muster.TaskFailed):
        gone.result(0)
    muster_kit.advance("2m")
    assert muster_kit.work() == 1 and late.result(0) == "done"
    assert timedelta(hours=3) <= muster_kit.now - begun <= timedelta(hours=3, minutes=2)


def test_set_times_come_as_the_clock_is_moved(muster_kit: muster.MusterKit):
    app = muster.App("shop")

    @app.task(cron="0 0 * * *")
    def nightly() -> None: ...

    muster_kit.use(app)
    days = []
    for _ in range(3):
        midnight = muster_kit.now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        muster_kit.advance((midnight - muster_kit.now).total_seconds() + 5)
        muster_kit.advance("12h")
        days.append(midnight.date())
    assert muster_kit.work() == 3
    made = [view.created_at_ms / 1000 for view in muster_kit.client.tasks("shop")]
    assert [datetime.fromtimestamp(at, UTC).date() for at in made] == days


def test_agents_say_what_they_are_told_to(muster_kit: muster.MusterKit):
    muster_kit.agent("claude", ValueError("no answer"), muster.Question("which one?"), {"tests": 3})
    task = muster_kit.client.add(
        "Fix the tests", "make test", agent="claude", model="opus", system_prompt="be kind"
    )
    other = muster_kit.client.add("Deploy", "go", agent="claude", after=[task])
    assert muster_kit.work() == 1
    muster_kit.advance("10m")
    assert muster_kit.work() == 1
    assert task.task().question == "which one?"
    task.answer("the first")
    assert muster_kit.work() == 2
    assert task.result(0) == other.result(0) == {"tests": 3}
    assert [job.title for job in muster_kit.jobs] == ["Fix the tests"] * 3 + ["Deploy"]
    assert (muster_kit.jobs[0].model, muster_kit.jobs[0].system_prompt) == ("opus", "be kind")
    assert "the first" in muster_kit.jobs[2].note


def test_an_agents_reply_may_be_made_from_what_it_was_given(muster_kit: muster.MusterKit):
    muster_kit.agent("shell", lambda job: job.description.upper())
    assert muster_kit.client.add("a", "say it", agent="shell").id
    muster_kit.work()
    (handle,) = [muster_kit.client.handle(view.id) for view in muster_kit.client.tasks()]
    assert handle.result(0) == "SAY IT"


SUITE = """
import muster

app = muster.App("shop")

@app.task(delay="1h")
def price(n: int) -> int:
    return n * 3

def test_price(muster_kit):
    muster_kit.use(app)
    handle = price.enqueue(2)
    muster_kit.advance("2h")
    assert muster_kit.work() == 1
    assert handle.result(0) == 6
"""


def test_the_plugin_in_a_suite_of_its_own(tmp_path: Path):
    (tmp_path / "test_shop.py").write_text(SUITE)
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--basetemp",
        str(tmp_path / "base"),
    ]
    done = subprocess.run([*argv, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
