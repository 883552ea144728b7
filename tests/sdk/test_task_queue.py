"""The queue of prompts, in the words of source 003."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from quick_retries import SETTINGS

import muster
from muster.model.errors import BadInput, Conflict, NotFound
from muster.sdk.task_queue import QueueStatus, QueueTask, TaskQueue, TaskTool
from patience import PATIENCE_S

WAIT_MS = int(PATIENCE_S * 1000)


def queued(folder: Path, story: Callable[[TaskQueue], Awaitable[None]]) -> None:
    (folder / "muster.toml").write_text(SETTINGS)

    async def run() -> None:
        async with TaskQueue(folder) as queue:
            await story(queue)

    asyncio.run(run())


def prompt(text: str, **more: Any) -> QueueTask:
    return QueueTask(prompt=text, subagent_type="researcher", **more)


def test_what_cannot_be_is_refused_in_words(tmp_path: Path):
    async def story(queue: TaskQueue) -> None:
        await queue.enqueue(prompt("find it"))
        with pytest.raises(BadInput, match="priority is 'high'"):
            await queue.enqueue(prompt("find it", priority="high"))
        with pytest.raises(BadInput, match="'bogus' is no status") as refused:
            await queue.list_by_user("ada", status="bogus")
        assert "stalled" in refused.value.hint
        for time in (-1, "a", float("nan"), float("inf")):
            with pytest.raises(BadInput, match="timeout_ms is"):
                await queue.dequeue(uuid4(), timeout_ms=time)  # type: ignore[arg-type]

    queued(tmp_path, story)


def test_the_life_of_a_task(tmp_path: Path):
    async def story(queue: TaskQueue) -> None:
        task = prompt("find it", system_prompt="be brief", model="opus", tags=["a"], user_id="ada")
        assert await queue.enqueue(task) == task.id == await queue.enqueue(task)
        assert await queue.get_status(task.id) is QueueStatus.PENDING
        worker = uuid4()
        await queue.register_worker(worker, capacity=1)
        given = await queue.dequeue(worker, WAIT_MS)
        assert given is not None and given.id == task.id and given.agent_id == worker
        assert (given.prompt, given.system_prompt, given.model) == ("find it", "be brief", "opus")
        assert await queue.get_status(task.id) is QueueStatus.RUNNING
        assert await queue.dequeue(worker, timeout_ms=10) is None, "it has no place for another one"
        await queue.heartbeat(worker)
        await queue.complete(task.id, {"found": 3})
        done = await queue.get(task.id)
        assert (done.status, done.result, done.user_id) == (QueueStatus.COMPLETED, {"found": 3}, "ada")
        assert (
            done.created_at <= (done.started_at or done.created_at) <= (done.completed_at or done.created_at)
        )
        with pytest.raises(Conflict, match="no worker of this queue holds"):
            await queue.complete(task.id, {})

    queued(tmp_path, story)


def test_low_numbers_come_first_and_each_user_sees_their_own(tmp_path: Path):
    async def story(queue: TaskQueue) -> None:
        for n, priority in enumerate([100, 20, 101, 180, 0]):
            await queue.enqueue(prompt(str(priority), priority=priority, user_id="ada" if n else "bob"))
        worker = uuid4()
        order = []
        while (task := await queue.dequeue(worker, timeout_ms=10)) is not None:
            order.append(task.prompt)
            await queue.complete(task.id, {})
        assert order == ["0", "20", "100", "101", "180"]
        await queue.enqueue(prompt("another", user_id="ada"))
        assert len(await queue.list_by_user("ada")) == 5
        (pending,) = await queue.list_by_user("ada", "pending")
        assert (pending.subagent_type, pending.priority) == ("researcher", 100)
        assert await queue.list_by_user("nobody") == []

    queued(tmp_path, story)


def test_failures_are_tried_again_where_they_may_be(tmp_path: Path):
    async def story(queue: TaskQueue) -> None:
        worker = uuid4()
        task = prompt("x", max_retries=1)
        await queue.enqueue(task)
        for n in (1, 2):
            given = await queue.dequeue(worker, WAIT_MS)
            assert given is not None and given.retry_count == n - 1
            await queue.fail(task.id, f"boom {n}")
        assert await queue.get_status(task.id) is QueueStatus.FAILED
        assert (await queue.get(task.id)).error == "boom 2"
        await queue.retry(task.id)
        assert await queue.dequeue(worker, WAIT_MS) is not None
        await queue.fail(task.id, "syntax", retryable=False)
        assert await queue.get_status(task.id) is QueueStatus.FAILED
        other = prompt("y")
        await queue.enqueue(other)
        assert await queue.dequeue(worker, WAIT_MS) is not None
        await queue.cancel(other.id)
        assert await queue.get_status(other.id) is QueueStatus.CANCELLED
        with pytest.raises(Conflict):
            await queue.complete(other.id, {})
        with pytest.raises(NotFound):
            await queue.get_status(uuid4())

    queued(tmp_path, story)


def test_a_worker_that_is_unregistered_gives_back_what_it_holds(tmp_path: Path):
    async def story(queue: TaskQueue) -> None:
        first, second = uuid4(), uuid4()
        await queue.enqueue(prompt("x"))
        given = await queue.dequeue(first, WAIT_MS)
        assert given is not None
        await queue.unregister_worker(first, "leaving")
        again = await queue.dequeue(second, WAIT_MS)
        assert again is not None and again.id == given.id
        with pytest.raises(NotFound):
            await queue.heartbeat(first)

    queued(tmp_path, story)


def _hold(folder: str, said: Any) -> None:
    async def run() -> None:
        queue = TaskQueue(folder)
        task = await queue.dequeue(uuid4(), WAIT_MS)
        assert task is not None
        said.send(str(task.id))
        await asyncio.sleep(PATIENCE_S)

    asyncio.run(run())


def test_what_a_killed_worker_held_is_free_at_once(tmp_path: Path):
    async def story(queue: TaskQueue) -> None:
        task = prompt("x")
        await queue.enqueue(task)
        hear, said = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("spawn").Process(target=_hold, args=(str(tmp_path), said))
        process.start()
        try:
            assert await asyncio.to_thread(hear.poll, PATIENCE_S)
            assert UUID(hear.recv()) == task.id
            assert await queue.get_status(task.id) is QueueStatus.RUNNING
            os.kill(process.pid or 0, signal.SIGKILL)
            await asyncio.to_thread(process.join)
            await queue.requeue_stalled()
            assert await queue.get_status(task.id) is QueueStatus.STALLED
            given = await queue.dequeue(uuid4(), WAIT_MS)
            assert given is not None and given.id == task.id
        finally:
            process.kill()
            process.join()
            process.close()
            hear.close()
            said.close()

    queued(tmp_path, story)


def test_the_tool_runs_now_or_keeps_it(tmp_path: Path):
    async def work(queue: TaskQueue) -> None:
        while (task := await queue.dequeue(uuid4(), WAIT_MS)) is not None:
            if task.prompt == "bad":
                await queue.fail(task.id, "boom", retryable=False)
            else:
                await queue.complete(task.id, {"said": task.prompt})

    async def story(queue: TaskQueue) -> None:
        async def at_once(task: QueueTask) -> dict[str, Any]:
            return {"now": task.prompt}

        now = await TaskTool(queue, at_once).run("hello", "coder")
        assert (now.status, now.result) == ("completed", {"now": "hello"})
        tool = TaskTool(queue)
        kept = await tool.run("later", "coder", persist=True, priority=10, tags=["t"])
        assert kept.status == "pending" and await queue.get_status(kept.task_id) is QueueStatus.PENDING
        working = asyncio.create_task(work(queue))
        assert (await tool.wait(kept.task_id)).result == {"said": "later"}
        assert (await tool.run("good", "coder")).result == {"said": "good"}
        failed = await tool.run("bad", "coder")
        assert failed.status == "failed" and "boom" in (failed.error or "")
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    queued(tmp_path, story)
    assert len(muster.Client(tmp_path).tasks("queue")) == 3
