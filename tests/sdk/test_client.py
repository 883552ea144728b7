"""Clients, beside a crew and without one."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import muster
from muster.config.project import Project
from muster.model.errors import BadInput, NotFound, WaitTimeout
from muster.model.states import TaskStatus
from muster.sdk import links
from muster.sdk.links import EMBEDDED, owning
from muster_command import MUSTER, run_muster
from patience import PATIENCE_S, until


def test_work_for_agents(tmp_path: Path):
    with muster.Client(tmp_path) as client:
        first = client.add("Log in", key="model", plan="auth", priority=8)
        second = client.add(
            "Log out",
            "say goodbye",
            agent="shell",
            model="opus",
            system_prompt="be kind",
            after=["auth/model"],
            timeout="30m",
            retries=2,
            idempotency_key="gh-812",
            tags=["web"],
        )
        again = client.add(
            "Log out",
            "say goodbye",
            agent="shell",
            model="opus",
            system_prompt="be kind",
            after=first,
            timeout="30m",
            retries=2,
            idempotency_key="gh-812",
            tags=["web"],
        )
        assert again.id == second.id
        view = second.task()
        assert (view.model, view.system_prompt, view.timeout_s, view.max_retries) == (
            "opus",
            "be kind",
            1800,
            2,
        )
        assert view.waits_for == ("model",)
        assert [task.id for task in client.tasks(tags=["web"])] == [second.id]
        assert [task.id for task in client.tasks(text="AUTH/MOD")] == [first.id]
        assert client.tasks("tasks", text="auth/mod") == []
        assert client.handle("auth/model").id == first.id == client.handle(first.id).id
        assert {plan.name for plan in client.plans()} == {"auth", "tasks"}
        first.cancel("by a client")
        assert first.task().status is TaskStatus.CANCELLED
        assert client.tasks(status=["CANCELLED"])[0].id == first.id
        assert next(client.events()).event == "enqueued"
        assert client.status().plans == tuple(client.plans())
        assert [task.id for task in client.inbox().tasks] == [second.id]
        assert client.request("GET", f"/api/v1/agent-tasks/{first.id}")["task"]["id"] == first.id
        with pytest.raises(NotFound):
            client.handle("nothing/like-this")
        with pytest.raises(BadInput, match="no option 'agnet'; did you mean 'agent'"):
            client.add("x", agnet="shell")  # type: ignore[call-arg]


@pytest.mark.parametrize("by_socket", [False, True], ids=["in process", "socket"])
def test_the_same_for_asynchronous_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_socket: bool):
    app = muster.App("shop", project=tmp_path)

    @app.task
    def price(n: int) -> int:
        return n * 3

    async def main() -> None:
        async with muster.AsyncClient(tmp_path) as client:
            first = await client.add("Log in", key="model", plan="auth")
            second = await client.add("Log out", plan="auth", after=["auth/model"])
            assert (await second.task()).waits_for == ("model",)
            await first.cancel()
            with pytest.raises(muster.TaskCancelled):
                await first.result(PATIENCE_S)
            handles = await asyncio.gather(*(price.enqueue_async(n) for n in range(20)))
            made = await asyncio.gather(*(handle.result(PATIENCE_S) for handle in handles))
            assert made == [n * 3 for n in range(20)]
            assert len(await client.tasks("shop")) == 20
            assert [task.id for task in await client.tasks(text="log OUT")] == [second.id]
            async for event in client.events():
                if event.task_id == first.id and event.new_status is TaskStatus.CANCELLED:
                    break

    with app.running(3), monkeypatch.context() as patch:
        if by_socket:
            patch.delitem(EMBEDDED, app.link.project.folder)
        asyncio.run(main())


def test_an_app_in_another_process_and_the_command_line_see_the_same(tmp_path: Path):
    """The owner is in this process; who comes by the socket has the same answers."""
    app = muster.App("shop", project=tmp_path)

    @app.task
    def price(n: int) -> int:
        return n * 3

    with app.running():
        assert price.enqueue(2).result(PATIENCE_S) == 6
        shown = run_muster(tmp_path, "task", "list", "--json").stdout
        assert '"COMPLETED"' in shown
        assert "shop" in run_muster(tmp_path, "status").stdout


ASKING = """
import sys, muster
client = muster.Client(sys.argv[1])
while True:
    client.tasks()
    print("asked", flush=True)
"""


@pytest.mark.parametrize("embedded", [True, False])
def test_a_nul_is_refused_before_anything_is_added(tmp_path: Path, embedded: bool):
    up = owning(Project(tmp_path)) if embedded else contextlib.nullcontext()
    with up, muster.Client(tmp_path) as client:
        for title, prompt in (("a\0b", "c"), ("a", "b\0c"), ("a\\\0", "")):
            with pytest.raises(BadInput, match="NUL character; nothing was"):
                client.add(title, prompt)
        client.add("a\\u0000 is how JSON writes it", "b")
        assert len(client.tasks()) == 1


def test_who_only_asks_keeps_no_program_from_its_store(tmp_path: Path):
    """A client without an owner holds the store for each of its requests."""
    app = muster.App("shop", project=tmp_path)

    @app.task
    def price(n: int) -> int:
        return n * 3

    argv = [sys.executable, "-c", ASKING, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as asking:
        assert asking.stdout is not None
        try:
            for n in range(5):
                assert asking.stdout.readline() == b"asked\n"
                with app.running():
                    assert price.enqueue(n).result(PATIENCE_S) == n * 3
        finally:
            asking.kill()


def test_what_its_program_starts_is_told_the_truth_and_the_program_itself_may(tmp_path: Path):
    app = muster.App("reports", project=tmp_path)
    going = threading.Event()

    @app.task
    def wait() -> None:
        going.wait(PATIENCE_S)

    pause = [*MUSTER, "-C", str(tmp_path), "plan", "pause", "reports"]
    with app.running(), muster.Client(tmp_path) as client:
        handle = wait.enqueue()
        until(lambda: handle.task().status is TaskStatus.RUNNING, "a task runs")
        refused = subprocess.run(pause, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        worker = client.request("GET", "/api/v1/workers")[0]["id"]
        assert refused.returncode == 4
        assert f"comes from a process that {worker} has started, perhaps for one of its" in refused.stderr
        assert "inside attempt:" not in refused.stderr
        assert "may do it with muster.Client()" in refused.stderr
        client.request("POST", "/api/v1/plans/reports/pause", {"actor": "user:ada"})
        going.set()
        handle.result(PATIENCE_S)


def test_who_waits_while_nobody_is_up_seldom_opens_the_store_and_sees_soon_that_somebody_is(
    app: muster.App, monkeypatch: pytest.MonkeyPatch
):
    opened: list[float] = []
    direct = links.direct

    def counted(project: Any) -> Any:
        opened.append(time.monotonic())
        return direct(project)

    @app.task
    def one() -> int:
        return 1

    handle = one.enqueue()
    monkeypatch.setattr(links, "direct", counted)
    with pytest.raises(WaitTimeout, match="no worker is up"):
        handle.result(1.5)
    many = len(opened)
    assert many <= 6, "the news at first, twice while it waits and at the end, and why"
    monkeypatch.setattr(links, "_NOBODY_S", 2 * PATIENCE_S)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(handle.result, 4 * PATIENCE_S)
        until(lambda: len(opened) == many + 2, "it has seen that there is no news")
        with app.running():
            assert waiting.result(PATIENCE_S) == 1
