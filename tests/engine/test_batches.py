"""Commands that arrive together: each is decided on what those before it have done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from engine_rig import W1, W2, FakeClock, FixedChance, Rig, cancel, complete, enqueue, fail, release

from muster.engine.batch import Batcher, drive
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.answers import Answer, Enqueued
from muster.model.errors import MusterError, NotFound, StoreHalted, Unavailable
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.states import CrewStatus, StopAction
from muster.model.views import TaskFilter
from muster.ports.runtime import EVENTS, READY, orders_for
from muster.stores.sqlite.store import SqliteStore
from patience import PATIENCE_S, until


def test_a_refused_command_does_not_touch_its_neighbours(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": []})
    a, b = rig.started()
    stale = c.Complete(task_id=a.task_id, epoch=a.epoch + 1)
    assert rig.batch(stale, complete(b), cancel(999), fail(a)) == [
        "stale_epoch",
        "Moved",
        "not_found",
        "Moved",
    ]
    assert rig.statuses() == {"a": "ABORTED", "b": "COMPLETED"}


def test_an_empty_batch_is_nothing(rig: Rig) -> None:
    assert rig.apply().outcomes == []


@pytest.mark.promise("S11")
@pytest.mark.parametrize("cancel_first", [True, False])
def test_cancel_and_complete_in_one_batch_the_first_wins(rig: Rig, cancel_first: bool) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": ["a"]})
    (job,) = rig.started()
    pair = [cancel(job.task_id), complete(job)]
    if cancel_first:
        assert rig.batch(*pair) == ["Moved", "stale_epoch"]
        assert rig.statuses() == {"a": "CANCELLED", "b": "PENDING"}
        assert rig.task("b").unmet == 1
    else:
        assert rig.batch(*reversed(pair)) == ["Moved", "illegal_move"]
        assert rig.statuses() == {"a": "COMPLETED", "b": "PENDING"}
        assert rig.task("b").ready


@pytest.mark.promise("S4")
def test_complete_twice_in_one_batch_is_one_completion(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": ["a"]})
    (job,) = rig.started()
    first, second = rig.apply(complete(job, "1"), complete(job, "2")).outcomes
    assert first == second
    assert rig.names("a").count("completed") == 1
    assert drive(rig.reads.texts(job.task_id)).result == "1"


@pytest.mark.promise("S8")
@pytest.mark.parametrize("same_batch", [True, False])
def test_a_diamonds_end_becomes_ready_exactly_once(rig: Rig, same_batch: bool) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]})
    (a,) = rig.started()
    rig.do(complete(a))
    b, c_ = rig.started()
    if same_batch:
        applied = rig.apply(complete(b), complete(c_))
        assert READY in applied.topics
    else:
        assert READY not in rig.apply(complete(b)).topics
        assert not rig.task("d").ready
        assert READY in rig.apply(complete(c_)).topics
    assert rig.task("d").ready
    assert rig.names("d") == ["enqueued", "unblocked"]


def test_the_whole_path_of_a_chain_in_one_batch_each(rig: Rig) -> None:
    """A claim sees what its neighbours have done: the child goes out in the batch that readied it."""
    rig.register()
    rig.enqueue({"a": [], "b": ["a"], "c": ["b"]})
    (job,) = rig.started()
    for key in ("b", "c"):
        _, claimed = rig.apply(complete(job), rig.claim_command()).outcomes
        (job,) = claimed.jobs  # type: ignore[union-attr]
        assert job.key == key


@pytest.mark.parametrize("complete_first", [True, False])
def test_a_child_that_is_added_while_its_parent_completes_is_not_forgotten(
    rig: Rig, complete_first: bool
) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.started()
    commands = [complete(job), enqueue({"a": [], "b": ["a"]})]
    rig.apply(*(commands if complete_first else reversed(commands)))
    assert rig.task("b").ready
    assert [job.key for job in rig.claim()] == ["b"]


def test_one_plan_enqueued_twice_in_one_batch_is_added_once(rig: Rig) -> None:
    first, second = rig.apply(enqueue({"a": []}), enqueue({"a": [], "b": ["a"]})).outcomes
    assert isinstance(first, Enqueued) and isinstance(second, Enqueued)
    assert (first.added, second.added, second.existing) == (1, 1, 1)
    assert first.plan_id == second.plan_id


def _stop(job: Any) -> c.Command:
    return c.RequestStop(
        task_id=job.task_id, epoch=job.epoch, action=StopAction.RELEASE, stop_by_s=5, actor="ada"
    )


ABOUT_ALL_HELD: list[c.Command] = [
    c.Deregister(worker_id=W1),
    c.StopCrew(stop_by_s=5, actor="ada"),
    c.FreshLeases(term=0),
    c.NewBoot(),
]


@pytest.mark.parametrize("command", ABOUT_ALL_HELD, ids=lambda command: type(command).__name__)
@pytest.mark.parametrize("end", [complete, fail, release, lambda job: cancel(job.task_id), _stop])
def test_what_concerns_all_attempts_passes_over_those_that_end_in_the_same_batch(
    rig: Rig, command: c.Command, end: Any
) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": []})
    a, _ = rig.started()
    assert rig.batch(end(a), command)[1] in {"Done", "TookOver"}


def test_topics_name_who_is_to_be_woken(rig: Rig) -> None:
    rig.register()
    assert rig.apply(enqueue({"a": []})).topics == {READY, EVENTS}
    (job,) = rig.started()
    assert rig.apply(cancel(job.task_id)).topics == {EVENTS, orders_for(W1)}
    assert rig.apply(cancel(job.task_id)).topics == frozenset()
    rig.register(W2)
    assert rig.apply(c.SetCrew(status=CrewStatus.STOPPED)).topics >= {READY, orders_for(W1), orders_for(W2)}


# -- the thread that commits


class Line:
    """A batcher whose next transaction can be held, so that what is submitted meanwhile forms one batch."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteStore.open(path)
        self.engine = Engine(self.store, FixedChance(), Policy())
        self.batches: list[int] = []
        self.published: list[frozenset[str]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        plain = self.engine.apply

        async def apply(commands: Any, now: Any) -> Any:
            self.batches.append(len(commands))
            self.reached.set()
            assert self.gate.wait(PATIENCE_S)
            return await plain(commands, now)

        self.engine.apply = apply  # type: ignore[method-assign]
        self.batcher = Batcher(self.engine, FakeClock().now, self.published.append)
        self.served = self.batcher.of(DEFAULT_WORKSPACE)

    def together(self, *commands: c.Command) -> list[Future[Answer]]:
        self.gate.clear()
        self.reached.clear()
        first = self.served.submit(enqueue({}, plan="first"))
        assert self.reached.wait(PATIENCE_S)
        futures = [self.served.submit(command) for command in commands]
        self.batches.clear()
        self.gate.set()
        first.exception(30)
        for future in futures:
            future.exception(30)
        return futures


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    made = Line(tmp_path / "muster.db")
    yield made
    made.gate.set()
    made.batcher.close()
    made.store.close()


def test_a_page_of_commands_shares_a_commit_and_a_refusal_is_one_of_its_answers(line: Line) -> None:
    async def page() -> list[Any]:
        line.gate.clear()
        line.reached.clear()
        first = asyncio.ensure_future(line.served.execute(enqueue({}, plan="first")))
        assert await asyncio.to_thread(line.reached.wait, 30)
        commands = [enqueue({"a": []}, plan="one"), cancel(404), enqueue({"b": []}, plan="two")]
        waiting = asyncio.ensure_future(line.served.execute_all(commands))
        await asyncio.sleep(0)  # it has put its commands in and waits
        line.gate.set()
        await first
        return await waiting

    answers = asyncio.run(page())
    assert line.batches == [1, 3]
    assert [type(answer) for answer in answers] == [Enqueued, NotFound, Enqueued]


POISON = [
    enqueue({"bad": []}, specs={"bad": {"title": "half a pair: \ud800"}}),
    enqueue({"bad": []}, specs={"bad": {"sort_key": 1 << 70}}),
    enqueue({"bad": []}, specs={"bad": {"priority": 99}}),
    cancel(1 << 64),
    c.SetTicked(plan_id=1 << 64, event_id=1),
]


@pytest.mark.parametrize("poison", POISON, ids=lambda command: type(command).__name__)
def test_a_poisoned_command_fails_alone(line: Line, poison: c.Command) -> None:
    good = [enqueue({"a": []}, plan="good"), enqueue({"b": []}, plan="better")]
    before, bad, after = line.together(good[0], poison, good[1])
    assert line.batches == [3, 1, 1, 1]
    assert isinstance(before.result(), Enqueued) and isinstance(after.result(), Enqueued)
    assert bad.exception() is not None and not isinstance(bad.exception(), MusterError)
    views = drive(line.store.reads.task_views(TaskFilter()))
    assert {view.key for view in views} == {"a", "b"}
    assert {plan.name for plan in drive(line.store.reads.plans())} == {"first", "good", "better"}
    assert isinstance(line.served.submit(good[0]).result(PATIENCE_S), Enqueued), "the thread lives on"


def test_what_waits_for_one_sync_shares_the_next(line: Line) -> None:
    futures = line.together(*(enqueue({"a": []}, plan=f"p{i}") for i in range(40)))
    assert line.batches == [40]
    assert all(isinstance(future.result(), Enqueued) for future in futures)


def test_lanes_of_a_batch_that_was_undone_are_forgotten(line: Line) -> None:
    """The undone batch had made a lane in memory: no task may go into a lane that the store does not know."""
    line.served.submit(enqueue({"z": []}, plan="good", specs={"z": {"agent": "codex"}})).result(PATIENCE_S)
    line.together(enqueue({"a": []}, plan="good", specs={"a": {"agent": "claude"}}), POISON[0])

    async def lanes(tx: Any) -> list[Any]:
        return list(tx._known.lanes)

    async def used(tx: Any) -> list[int]:
        return [lane.id for lane in await tx.of(DEFAULT_WORKSPACE).open_lanes()]

    known = drive(line.store.transact(lanes))
    assert len(known) == 2
    assert set(drive(line.store.transact(used))) == set(known)
    register = c.Register(
        worker_id=W1, hostname="h", pid=1, pid_start=1, boot_id="boot-a", agents=("claude",)
    )
    line.served.submit(register).result(PATIENCE_S)
    claimed = line.served.submit(c.Claim(worker_id=W1, request_id="r")).result(PATIENCE_S)
    assert [job.key for job in claimed.jobs] == ["a"]  # type: ignore[attr-defined]


@pytest.mark.promise("S17")
def test_a_halted_store_answers_everybody_so(line: Line) -> None:
    async def halted(*_: Any) -> Any:
        raise StoreHalted("no sync")

    line.store.transact = halted  # type: ignore[method-assign]
    futures = line.together(enqueue({"a": []}), enqueue({"b": []}, plan="other"))
    assert [type(future.exception()) for future in futures] == [StoreHalted, StoreHalted]
    assert line.batches == [2], "nothing was tried again one by one"


def test_after_its_end_it_refuses_and_names_why(line: Line) -> None:
    pending = [line.served.submit(enqueue({"a": []}, plan=f"p{i}")) for i in range(20)]
    line.batcher.close()
    assert all(isinstance(future.result(0), Enqueued) for future in pending)
    with pytest.raises(Unavailable, match="shutting down"):
        line.served.submit(enqueue({})).result(0)


def test_what_comes_in_while_it_ends_is_answered(line: Line) -> None:
    class Slow:
        """The queue, with the end coming between a caller's look and its put."""

        def __init__(self, queue: Any) -> None:
            self.queue = queue
            self.get, self.get_nowait = queue.get, queue.get_nowait
            self.closer: threading.Thread | None = None

        def put(self, call: Any) -> None:
            if call is not None and self.closer is None:
                self.closer = threading.Thread(target=line.batcher.close)
                self.closer.start()
                self.closer.join(0.3)
            self.queue.put(call)

    # The thread waits in the old queue's `get`, which is the same queue.
    slow = line.batcher._queue = Slow(line.batcher._queue)  # type: ignore[assignment]
    assert isinstance(line.served.submit(enqueue({"a": []})).result(PATIENCE_S), Enqueued)
    assert slow.closer is not None
    slow.closer.join(PATIENCE_S)


def test_a_store_that_suspends_is_told_from_one_that_does_not() -> None:
    class Suspends:
        def __await__(self) -> Any:
            yield

    with pytest.raises(RuntimeError, match="suspends"):
        drive(Suspends())


def test_a_caller_commits_for_itself_where_nobody_else_does(line: Line) -> None:
    committed_by: list[str] = []
    line.batcher._publish = lambda _: committed_by.append(threading.current_thread().name)
    added, refused = line.served.call_all([enqueue({"a": []}, plan="one"), cancel(404)])
    assert isinstance(added, Enqueued) and isinstance(refused, NotFound)
    assert line.batches == [2] and committed_by == [threading.current_thread().name]


def test_a_caller_that_may_be_interrupted_leaves_it_to_the_committing_thread(line: Line) -> None:
    committed_by: set[str] = set()
    line.batcher._publish = lambda _: committed_by.add(threading.current_thread().name)
    assert isinstance(line.served.call(enqueue({"a": []}, plan="one")), Enqueued)
    with pytest.raises(NotFound):
        line.served.call(cancel(404))
    assert committed_by == {"commit"}
    line.batcher.close()
    with pytest.raises(Unavailable, match="shutting down"):
        line.served.call(cancel(404))


def test_a_caller_leaves_it_to_whoever_commits_already(line: Line) -> None:
    line.gate.clear()
    first = line.served.submit(enqueue({}, plan="first"))
    assert line.reached.wait(PATIENCE_S)
    answers: list[Any] = []
    caller = threading.Thread(
        target=lambda: answers.extend(line.served.call_all([enqueue({"a": []}, plan="one"), cancel(404)]))
    )
    caller.start()
    until(lambda: line.batcher._queue.qsize() == 2, "it has put its commands in")
    line.gate.set()
    caller.join(PATIENCE_S)
    assert isinstance(first.result(PATIENCE_S), Enqueued)
    assert [type(answer) for answer in answers] == [Enqueued, NotFound] and line.batches == [1, 2]


def test_nobody_waits_for_ever_beside_callers_that_never_rest(line: Line) -> None:
    refused: list[Any] = []

    def call() -> None:
        while True:
            (answer,) = line.served.call_all([cancel(404)])
            if isinstance(answer, Unavailable):
                refused.append(answer)
                return

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    for n in range(50):
        assert isinstance(line.served.submit(enqueue({}, plan=f"p{n}")).result(PATIENCE_S), Enqueued)
    line.batcher.close()
    for caller in callers:
        caller.join(PATIENCE_S)
        assert not caller.is_alive()
    assert len(refused) == 3
