"""Which working trees are put away by themselves, and when."""

from __future__ import annotations

import asyncio
import threading

import pytest
from engine_rig import Rig, complete

from muster.engine.services import worktree_cleaner as module
from muster.engine.services.worktree_cleaner import WorktreeCleaner
from muster.model import commands as c
from muster.model.states import ErrorKind
from patience import HOURS_S

KEPT_S = 100.0


class Trees:
    """Those of all tasks up to the last one."""

    def __init__(self) -> None:
        self.left: list[int] = []
        self.asked: list[tuple[int, str, str, int]] = []
        self.why = ""

    def ids(self) -> list[int]:
        return self.left

    def put_away(self, task_id: int, plan: str, key: str, epoch: int) -> str:
        self.asked.append((task_id, plan, key, epoch))
        return self.why


@pytest.fixture
def trees() -> Trees:
    return Trees()


def look(rig: Rig, trees: Trees, *, keep_done: bool = False) -> list[str]:
    """Keys of the tasks whose trees are put away."""
    worktree_cleaner = WorktreeCleaner(rig.clock, rig.reads, trees, kept_s=KEPT_S, keep_done=keep_done)
    trees.asked.clear()
    asyncio.run(worktree_cleaner.run_once())
    return [key for _, _, key, _ in trees.asked]


def ended(rig: Rig, trees: Trees, *keys: str) -> None:
    """One task for each word, which says how it ended."""
    specs = tuple(c.Spec(title=key, key=key, max_retries=0) for key in keys)
    ids = rig.do(c.Enqueue(plan="p", source=None, tasks=specs, actor="ada")).task_ids
    rig.register()
    trees.left = [*ids, max(ids) + 1]
    for job in rig.started(slots=10):
        if job.key == "failed":
            rig.do(c.Fail(task_id=job.task_id, epoch=job.epoch, kind=ErrorKind.INVALID, message="no"))
        elif job.key == "completed":
            rig.do(complete(job))
        elif job.key in {"cancelled", "lingers"}:
            rig.do(c.Cancel(task_id=job.task_id, actor="ada"))
            if job.key == "cancelled":
                rig.do(c.ProcessesExited(task_id=job.task_id, epoch=job.epoch))


ALL = ("failed", "completed", "cancelled", "lingers", "running")


def test_those_that_ended_long_enough_ago(rig, trees):
    ended(rig, trees, *ALL)
    rig.clock.advance(KEPT_S - 1)
    assert look(rig, trees) == []
    rig.clock.advance(2)
    assert sorted(look(rig, trees)) == ["cancelled", "completed", "failed"]
    assert {epoch for _, _, _, epoch in trees.asked} == {1}
    assert sorted(look(rig, trees, keep_done=True)) == ["cancelled", "failed"]


def test_a_retried_task_keeps_its_tree(rig, trees):
    ended(rig, trees, "failed")
    rig.clock.advance(KEPT_S + 1)
    rig.do(c.Retry(task_id=trees.left[0], actor="ada"))
    assert look(rig, trees) == []


def test_one_that_stays_is_told_once(rig, trees, caplog):
    ended(rig, trees, "failed")
    rig.clock.advance(KEPT_S + 1)
    trees.why = "somebody works in it"
    worktree_cleaner = WorktreeCleaner(rig.clock, rig.reads, trees, kept_s=KEPT_S, keep_done=False)
    for _ in range(3):
        asyncio.run(worktree_cleaner.run_once())
    assert caplog.text.count("the tree of p/failed stays: somebody works in it") == 1
    assert len(trees.asked) == 3, "it is tried again"


def test_a_look_is_bounded_and_goes_on_where_it_was(rig, trees, monkeypatch):
    monkeypatch.setattr(module, "PAGE_ROWS", 2)
    ended(rig, trees, "failed", "completed", "cancelled")
    rig.clock.advance(KEPT_S + 1)
    worktree_cleaner = WorktreeCleaner(rig.clock, rig.reads, trees, kept_s=KEPT_S, keep_done=False)
    seen = []
    for _ in range(3):
        trees.asked.clear()
        asyncio.run(worktree_cleaner.run_once())
        seen.append(sorted(key for _, _, key, _ in trees.asked))
    assert seen[0] == ["completed", "failed"] and seen[1] == ["cancelled"] and seen[2] == []


def test_an_owner_that_ends_does_not_wait_for_git(
    rig: Rig, trees: Trees, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(rig, trees, "failed")
    rig.clock.advance(KEPT_S + 1)
    begun, go_on = threading.Event(), threading.Event()

    def hangs(*_: object) -> str:
        begun.set()
        go_on.wait(HOURS_S)
        return ""

    monkeypatch.setattr(trees, "put_away", hangs)

    async def end_on_the_way() -> None:
        worktree_cleaner = WorktreeCleaner(rig.clock, rig.reads, trees, kept_s=KEPT_S, keep_done=False)
        task = asyncio.create_task(worktree_cleaner.run_once())
        assert await asyncio.to_thread(begun.wait, 20)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    try:
        asyncio.run(end_on_the_way())
    finally:
        go_on.set()
