"""What people are told: references, reasons, and whether a plan has come to rest."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import W1, W2, Rig, complete, fail, release

from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.errors import Ambiguous, NotFound, StaleEpoch
from muster.model.states import CrewStatus, ErrorKind
from muster.model.views import LogChunk, TaskFilter


def why(rig: Rig, key: str) -> str:
    return rig.views()[key].why


def settled(rig: Rig, plan: str = "api") -> bool:
    return drive(rig.queries.plan(plan)).settled


# -- why


def test_no_list_counts_the_tasks_of_all_plans(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.enqueue({"a": [], "b": []})
    rig.enqueue({"c": []}, plan="other")
    rig.do(c.PausePlan(plan="other", actor="ada"))
    rig.register()
    monkeypatch.setattr(type(rig.reads), "plans", None)
    whys = {view.key: view.why for view in drive(rig.queries.tasks(TaskFilter()))}
    assert whys["a"] == "ready, a worker takes it now"
    assert whys["c"].startswith("plan other is paused")
    assert drive(rig.queries.plan("api")).plan.counts == {"PENDING": 2}
    assert drive(rig.queries.task(rig.id("a"))).task.key == "a"


def test_every_waiting_task_says_for_what(rig: Rig) -> None:
    tasks = {"a": [], "b": ["a"], "c": [], "d": [], "e": []}
    rig.enqueue(tasks, specs={"d": {"agent": "rust"}, "e": {"agent": "codex"}})
    assert why(rig, "a") == "no worker is up: `muster up` starts some"
    rig.register(slots=1, agents=("claude", "codex"), unfit={"codex": "no such file: codex"})
    assert why(rig, "a") == "ready, a worker takes it now"
    assert why(rig, "b") == "waits for a"
    assert why(rig, "d").startswith("no worker offers agent rust")
    assert why(rig, "e") == "agent codex cannot run: no such file: codex"
    (a,) = rig.started()
    assert (why(rig, "a"), why(rig, "c")) == (
        f"running on {W1} with agent claude",
        "waits for a free worker",
    )
    rig.do(fail(a, ErrorKind.INVALID))
    assert (why(rig, "a"), why(rig, "b")) == ("failed for good: no", "waits for a (FAILED)")
    rig.do(c.SetCrew(status=CrewStatus.STOPPED))
    assert why(rig, "c") == "the crew is stopped: `muster up` goes on"


def test_a_retry_tells_when(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.started()
    rig.do(fail(job))
    assert why(rig, "a") == "retry in 15 s, run 1 of 4 failed: no"
    rig.clock.advance(60)
    assert why(rig, "a") == "retry is due, run 1 of 4 failed: no"


def test_an_agent_that_one_of_two_workers_can_run_is_not_unfit(rig: Rig) -> None:
    rig.register(W1, unfit={"claude": "no such file"})
    rig.enqueue({"a": []}, specs={"a": {"agent": "claude"}})
    assert why(rig, "a") == "agent claude cannot run: no such file"
    rig.register(W2)
    assert why(rig, "a") == "ready, a worker takes it now"


def test_done_by_an_attempt_or_by_a_person(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": []})
    a, b = rig.started()
    rig.do(complete(a))
    rig.do(fail(b, ErrorKind.INVALID))
    rig.do(c.CompleteByPerson(task_id=b.task_id, actor="ada"))
    assert (why(rig, "a"), why(rig, "b")) == ("done by attempt 1", "done by a person")


def test_a_worker_that_comes_between_two_looks_is_no_error(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.enqueue({"a": []})
    plain = rig.reads.holds

    async def then_one_registers() -> Any:
        held = await plain()
        rig.register()
        return held

    monkeypatch.setattr(rig.reads, "holds", then_one_registers)
    assert why(rig, "a") == "ready, a worker takes it now"


# -- settled


def test_a_plan_rests_when_all_is_final(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": ["a"]})
    assert not settled(rig)
    (a,) = rig.claim()
    assert not settled(rig)
    rig.do(complete(a))
    assert not settled(rig)
    (b,) = rig.started()
    rig.do(complete(b))
    assert settled(rig)


def test_a_plan_rests_when_only_blocked_children_are_left(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": ["a"], "c": ["b"]})
    (a,) = rig.started()
    rig.do(fail(a, ErrorKind.INVALID))
    assert settled(rig)
    rig.do(c.Retry(task_id=a.task_id, actor="ada"))
    assert not settled(rig)


def test_a_plan_does_not_rest_while_a_retry_is_due(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.started()
    rig.do(fail(job))
    assert not settled(rig)
    rig.do(c.Promote(task_id=job.task_id))
    (job,) = rig.started()
    rig.do(fail(job, ErrorKind.QUOTA))
    assert not settled(rig)


@pytest.mark.parametrize("take", [True, False])
def test_a_plan_does_not_rest_while_a_person_takes_a_task_over(rig: Rig, take: bool) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.started()
    rig.do(c.Pause(task_id=job.task_id, actor="ada", take=take))
    rig.do(release(job))
    assert (rig.statuses()["a"], settled(rig)) == ("PAUSED", not take)
    taken = rig.do(c.Take(task_id=job.task_id, actor="ada", token_hash="0" * 64))
    assert not settled(rig)
    rig.do(c.GiveBack(task_id=job.task_id, epoch=taken.job.epoch, actor="ada"))
    assert [given.key for given in rig.claim()] == ["a"]


@pytest.mark.parametrize(
    ("unfit", "agents", "rests"),
    [
        ({}, ("claude",), False),
        ({"claude": "missing"}, ("claude",), True),
        ({}, ("codex",), True),
        ({"claude": "missing"}, ("claude", "codex"), True),
        ({"codex": "missing"}, ("claude", "codex"), False),
    ],
)
def test_a_ready_task_whose_agent_cannot_run_waits_for_a_person(
    rig: Rig, unfit: dict[str, str], agents: tuple[str, ...], rests: bool
) -> None:
    rig.enqueue({"a": [], "b": ["a"]}, specs={"a": {"agent": "claude"}})
    assert not settled(rig), "without any worker there is nothing to judge by"
    rig.register(agents=agents, unfit=unfit, general=())
    assert settled(rig) == rests


def test_a_task_that_names_no_agent_needs_one_for_such_tasks(rig: Rig) -> None:
    rig.enqueue({"a": []})
    rig.register(W1, unfit={"claude": "missing"})
    assert settled(rig)
    rig.register(W2)
    assert not settled(rig)


def test_full_workers_are_no_reason_to_rest(rig: Rig) -> None:
    rig.register(slots=1)
    rig.enqueue({"x": []}, plan="other")
    rig.started()
    rig.enqueue({"a": []})
    assert not settled(rig)


def test_an_unknown_plan_is_said_to_be_unknown(rig: Rig) -> None:
    with pytest.raises(NotFound, match="no plan 'web'"):
        settled(rig, "web")


# -- references


@pytest.fixture
def named(rig: Rig) -> Rig:
    rig.register()
    keys = ("login", "logout", "fix #12", "fix #12 too", "a#3")
    rig.enqueue(dict.fromkeys(keys, ()))
    rig.clock.advance(1)
    rig.started(slots=1)
    return rig


@pytest.mark.parametrize(
    ("reference", "key", "epoch"),
    [
        ("login", "login", None),
        ("api/login", "login", None),
        ("api/login#1", "login", 1),
        ("login#1", "login", 1),
        ("logi#01", "login", 1),
        ("fix #12", "fix #12", None),
        ("a#3", "a#3", None),
        ("@last", "login", None),
    ],
)
def test_a_reference_is_resolved(named: Rig, reference: str, key: str, epoch: int | None) -> None:
    assert drive(named.queries.resolve(reference)) == (named.id(f"api/{key}"), epoch)


@pytest.mark.parametrize(
    "reference",
    ["nobody", "login#2", "login#" + "9" * 30, "login#²", "login#-1", "#", "#1", "login#", "@failed", "@"],
)
def test_what_does_not_exist_is_not_found(named: Rig, reference: str) -> None:
    with pytest.raises(NotFound):
        drive(named.queries.resolve(reference))


def test_an_ambiguous_reference_names_what_it_may_be(named: Rig) -> None:
    with pytest.raises(Ambiguous, match="api/login, api/logout"):
        drive(named.queries.resolve("log"))


# -- one task in full


def test_the_end_of_a_long_log_is_read_and_not_all_of_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.started()
    at = 0
    for size in (3000, 3000, 4, 1):
        data = b"".join(b"%d\n" % (at + line) for line in range(size))
        log = c.AppendLog(task_id=job.task_id, epoch=job.epoch, stream="stdout", offset=at * 100, data=data)
        rig.do(log)
        at += size
    limits: list[int] = []
    real = rig.reads.log_tail

    async def log_tail(task_id: int, epoch: int, *, limit: int) -> list[tuple[int, LogChunk]]:
        limits.append(limit)
        return await real(task_id, epoch, limit=limit)

    monkeypatch.setattr(rig.reads, "log_tail", log_tail)
    detail = drive(rig.queries.task(job.task_id))
    assert detail.log_tail.splitlines() == [str(line) for line in range(at - 20, at)]
    assert limits == [1, 2, 4]


def test_a_task_in_full(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": ["a"]})
    (job,) = rig.started()
    mine = {"task_id": job.task_id, "epoch": job.epoch}
    rig.do(c.AddArtifact(**mine, name="report", location="out.md"))
    for i in range(30):
        line = f"line {i}\n".encode()
        rig.do(c.AppendLog(**mine, stream="stdout", offset=i * 100, data=line))
    rig.do(complete(job, '{"ok": true}'))
    detail = drive(rig.queries.task(job.task_id))
    assert (detail.blocks, detail.artifacts, detail.result) == (
        ("b",),
        (("report", "out.md"),),
        '{"ok": true}',
    )
    assert detail.log_tail.splitlines() == [f"line {i}" for i in range(10, 30)]
    assert [event.event for event in detail.events] == [
        "enqueued",
        "claimed",
        "started",
        "artifact",
        "completed",
    ]
    assert detail.attempts[0].log_bytes == sum(len(f"line {i}\n") for i in range(30))
    with pytest.raises(NotFound):
        drive(rig.queries.task(1))


def test_a_log_that_is_no_text_is_shown_all_the_same(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.started()
    data = b"\xff\xfe half \xe2\x82"
    rig.do(c.AppendLog(task_id=job.task_id, epoch=1, stream="stderr", offset=0, data=data))
    assert "half" in drive(rig.queries.task(job.task_id)).log_tail


def test_output_that_is_sent_again_is_counted_once_and_what_is_new_in_it_is_kept(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.started()

    def send(offset: int, data: bytes) -> c.AppendLog:
        return c.AppendLog(task_id=job.task_id, epoch=1, stream="stdout", offset=offset, data=data)

    for data in (b"one\n", b"one\n", b"one\ntwo\n", b"one\ntwo\n", b"one\n"):
        rig.do(send(0, data))
    rig.batch(send(8, b"three\n"), send(8, b"three\n"))
    detail = drive(rig.queries.task(job.task_id))
    assert detail.log_tail.splitlines() == ["one", "two", "three"]
    assert detail.attempts[0].log_bytes == len("one\ntwo\nthree\n")
    rig.do(release(job))
    rig.claim()
    with pytest.raises(StaleEpoch):
        rig.do(send(0, b"one\n"))  # held up on its way


def test_what_the_last_worker_could_not_run_is_still_said_when_it_has_gone(rig: Rig) -> None:
    rig.register(
        unfit={"claude": "claude not found on PATH"}, agents=("claude", "shell"), general=("claude",)
    )
    rig.enqueue({"any": [], "named": []}, specs={"named": {"agent": "claude"}})
    rig.do(c.Deregister(worker_id=W1, reason="drained"))
    views = rig.views()
    assert (
        views["any"].why == "agent claude cannot run: claude not found on PATH; mend that, then `muster up`"
    )
    assert views["named"].why == views["any"].why


def test_a_suspicion_is_part_of_why_until_the_task_shows_progress(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    job, *_ = rig.started()
    mine = {"task_id": job.task_id, "epoch": job.epoch}
    rig.do(c.Suspect(**mine, evidence="it printed nothing for 10 min"))
    assert "; attempt 1 seems to hang: it printed nothing for 10 min" in rig.views()["a"].why
    rig.do(c.Suspect(**mine))
    assert "hang" not in rig.views()["a"].why
    rig.do(c.Suspect(**mine, evidence="again"))
    rig.do(c.Progress(**mine, percent=50))
    assert "hang" not in rig.views()["a"].why
