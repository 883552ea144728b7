"""What people do to tasks: pause, answer, transfer, skip, retry from the start."""

from __future__ import annotations

import pytest
from engine_rig import W1, W2, Rig, cancel, complete, fail, reap, release

from muster.engine.batch import drive
from muster.engine.services.scheduler import Scheduler
from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.errors import IllegalMove, MusterError, NotFound
from muster.model.states import TAKE_OVER_S, ErrorKind, StopAction
from muster.testing import promises


def pause(rig: Rig, key: str = "a") -> str:
    return str(rig.do(c.Pause(task_id=rig.id(key), actor="ada")).status)


def resume(rig: Rig, key: str = "a") -> str:
    return str(rig.do(c.Resume(task_id=rig.id(key), actor="ada")).status)


def ask(job: ClaimedJob, question: str = "which one?") -> c.Ask:
    return c.Ask(task_id=job.task_id, epoch=job.epoch, question=question)


def answer(rig: Rig, text: str = "the blue one") -> c.AnswerQuestion:
    return c.AnswerQuestion(task_id=rig.id("a"), actor="ada", text=text)


def transfer(rig: Rig, agent: str, key: str = "a", **more: float) -> str:
    return str(rig.do(c.Transfer(task_id=rig.id(key), actor="ada", agent=agent, **more)).status)


def scheduler(rig: Rig) -> Scheduler:
    return Scheduler(rig.clock, rig.reads, rig, term=rig.new_boot().term, interval_s=0.5)


def one_running(rig: Rig) -> ClaimedJob:
    rig.register(W1, agents=("claude", "codex"))
    rig.enqueue({"a": []})
    (job,) = rig.started()
    return job


# -- pause


def test_a_paused_task_is_not_given_out(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    assert (pause(rig), pause(rig)) == ("PAUSED", "PAUSED")
    assert rig.names("a") == ["enqueued", "paused"]
    assert rig.claim() == ()
    assert rig.views()["a"].why == "paused by a person"
    assert resume(rig) == "PENDING"
    assert [job.key for job in rig.claim()] == ["a"]


def test_a_running_task_saves_its_state_and_stops_before_it_is_paused(rig: Rig) -> None:
    job = one_running(rig)
    assert pause(rig) == "RUNNING"
    events = len(rig.events())
    assert pause(rig) == "RUNNING"
    assert len(rig.events()) == events
    assert rig.beat(W1, job).attempts[0].stop is StopAction.PAUSE
    rig.do(c.SaveCheckpoint(task_id=job.task_id, epoch=1, data=b"half"))
    rig.do(release(job))
    assert (rig.statuses()["a"], rig.views()["a"].paused_reason) == ("PAUSED", "user")
    assert rig.task("a").retries == 0
    resume(rig)
    (again,) = rig.claim()
    assert (again.epoch, again.checkpoint) == (2, b"half")


def take_over(rig: Rig) -> None:
    rig.do(c.Pause(task_id=rig.id("a"), actor="ada", take=True))


@pytest.mark.parametrize("held", [True, False])
def test_what_nobody_has_taken_over_in_time_is_its_agents_again(rig: Rig, held: bool) -> None:
    """Whoever wanted to was killed, and nobody tells of it."""
    if held:
        job = one_running(rig)
        take_over(rig)
        rig.clock.advance(TAKE_OVER_S)
        drive(scheduler(rig).run_once())
        assert rig.statuses()["a"] == "RUNNING", "its agent still stops"
        rig.do(release(job))
    else:
        rig.register()
        rig.enqueue({"a": []})
        take_over(rig)
    rig.clock.advance(TAKE_OVER_S - 1)
    drive(scheduler(rig).run_once())
    assert rig.statuses()["a"] == "PAUSED"
    assert rig.claim() == ()
    rig.clock.advance(1)
    drive(scheduler(rig).run_once())
    assert [job.key for job in rig.claim()] == ["a"]
    assert rig.views()["a"].paused_reason is None


def test_what_was_taken_over_or_given_back_waits_for_nothing(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    take_over(rig)
    assert resume(rig) == "PENDING"
    assert rig.views()["a"].next_attempt_at_ms is None
    take_over(rig)
    taken = rig.do(c.Take(task_id=rig.id("a"), actor="ada", token_hash="0" * 64))
    rig.do(c.GiveBack(task_id=rig.id("a"), epoch=taken.job.epoch, actor="ada"))
    assert [job.key for job in rig.claim()] == ["a"]


def test_a_date_that_a_task_had_before_is_kept_when_nobody_takes_it_over(rig: Rig) -> None:
    rig.register()
    begins_ms = rig.clock.now().wall_ms + 86_400_000
    rig.enqueue({"a": []}, specs={"a": {"not_before_ms": begins_ms}})
    take_over(rig)
    resume(rig)
    assert rig.views()["a"].next_attempt_at_ms == begins_ms


def test_resumed_before_it_has_stopped_it_goes_on_after_its_stop(rig: Rig) -> None:
    job = one_running(rig)
    pause(rig)
    assert resume(rig) == "RUNNING"
    assert rig.beat(W1, job).attempts[0].stop is StopAction.RELEASE
    rig.do(release(job))
    assert (rig.statuses()["a"], rig.task("a").paused_reason) == ("PENDING", None)
    assert rig.task("a").ready


@pytest.mark.parametrize("kind", [ErrorKind.CRASH, ErrorKind.LOST, ErrorKind.QUOTA, ErrorKind.TIMEOUT])
def test_a_pause_holds_also_where_the_attempt_fails_meanwhile(rig: Rig, kind: ErrorKind) -> None:
    job = one_running(rig)
    pause(rig)
    rig.do(fail(job, kind))
    assert rig.statuses()["a"] == "PAUSED"
    rig.clock.advance(10**6)
    drive(scheduler(rig).run_once())
    assert rig.claim() == ()
    resume(rig)
    drive(scheduler(rig).run_once())
    assert [job.epoch for job in rig.claim()] == [2]


def test_a_drain_does_not_undo_a_pause(rig: Rig) -> None:
    job = one_running(rig)
    pause(rig)
    rig.do(c.StopCrew(stop_by_s=5, actor="ada"))
    rig.do(release(job))
    assert rig.statuses()["a"] == "PAUSED"


def test_a_pause_during_a_drain_counts(rig: Rig) -> None:
    job = one_running(rig)
    rig.do(c.StopCrew(stop_by_s=5, actor="ada"))
    pause(rig)
    rig.do(release(job))
    assert rig.statuses()["a"] == "PAUSED"


@pytest.mark.parametrize("after", ["done", "final failure", "reaped"])
def test_what_has_ended_meanwhile_is_not_paused(rig: Rig, after: str) -> None:
    job = one_running(rig)
    pause(rig)
    if after == "done":
        rig.do(complete(job))
    elif after == "final failure":
        rig.do(fail(job, ErrorKind.INVALID))
    else:
        rig.do(reap(job, rig.new_boot().term))
    expected = {"done": "COMPLETED", "final failure": "FAILED", "reaped": "PAUSED"}[after]
    assert rig.statuses()["a"] == expected
    assert (rig.task("a").paused_reason is None) == (expected != "PAUSED")


def test_a_paused_child_is_freed_by_its_last_dependency_and_still_paused(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": ["a"]})
    pause(rig, "b")
    (a,) = rig.started()
    rig.do(complete(a))
    assert (rig.statuses()["b"], rig.task("b").unmet, rig.claim()) == ("PAUSED", 0, ())
    resume(rig, "b")
    assert [job.key for job in rig.claim()] == ["b"]


def test_a_task_that_waits_for_its_retry_keeps_its_due_time_over_a_pause(rig: Rig) -> None:
    job = one_running(rig)
    rig.do(fail(job))
    due_ms = rig.task("a").next_attempt_at_ms
    pause(rig)
    resume(rig)
    assert rig.task("a").next_attempt_at_ms == due_ms is not None
    rig.clock.advance(600)
    drive(scheduler(rig).run_once())
    assert rig.task("a").ready


# -- ask and answer


def test_a_question_frees_the_slot_and_its_answer_begins_the_next_attempt(rig: Rig) -> None:
    rig.register(slots=1)
    rig.enqueue({"a": [], "b": []})
    (job,) = rig.started(slots=1)
    assert rig.claim(slots=1) == ()
    rig.do(ask(job))
    rig.do(ask(job))  # its answer was lost
    assert rig.names("a").count("asked") == 1
    assert [other.key for other in rig.claim(slots=1)] == ["b"]
    view = rig.views()["a"]
    assert (view.status, view.paused_reason, view.why) == ("PAUSED", "question", "asks: which one?")
    assert rig.beat(W1, job).attempts[0].current is False
    assert rig.do(answer(rig)).status == "PENDING"
    rig.register(W2)
    rig.do(c.ProcessesExited(task_id=job.task_id, epoch=job.epoch))
    (again,) = rig.claim(W2)
    assert (again.key, again.epoch) == ("a", 2)
    assert again.note == "You asked: which one?\nThe answer: the blue one"
    assert rig.task("a").retries == rig.task("a").losses == 0


def test_what_was_told_before_a_question_stands_beside_its_answer(rig: Rig) -> None:
    rig.register(slots=1)
    rig.enqueue({"a": []})
    (job,) = rig.started(slots=1)
    rig.do(c.Tell(task_id=job.task_id, actor="ada", text="Use tabs."))
    rig.do(ask(job))
    rig.do(answer(rig))
    rig.do(c.ProcessesExited(task_id=job.task_id, epoch=job.epoch))
    (again,) = rig.claim()
    assert again.note == "Use tabs.\n\nYou asked: which one?\nThe answer: the blue one"


def test_only_a_question_is_answered_and_only_an_answer_resumes_it(rig: Rig) -> None:
    job = one_running(rig)
    with pytest.raises(IllegalMove, match="has asked nothing"):
        rig.do(answer(rig))
    rig.do(ask(job))
    with pytest.raises(IllegalMove, match="waits for an answer: which one") as refused:
        resume(rig)
    assert refused.value.hint.startswith("muster answer")
    rig.do(answer(rig))
    with pytest.raises(IllegalMove, match="has asked nothing"):
        rig.do(answer(rig, "again"))


def test_an_attempt_that_has_asked_has_no_more_to_say(rig: Rig) -> None:
    job = one_running(rig)
    rig.do(ask(job))
    assert rig.batch(complete(job), fail(job), ask(job, "another")) == ["stale_epoch", "Moved", "stale_epoch"]
    assert rig.statuses()["a"] == "PAUSED"


# -- transfer


def test_a_transferred_task_goes_to_that_agent_alone(rig: Rig) -> None:
    rig.register(W1, agents=("claude",), general=("claude",))
    rig.register(W2, agents=("codex",), general=())
    rig.enqueue({"a": []})
    assert transfer(rig, "codex") == "PENDING"
    assert rig.claim(W1) == ()
    assert [(job.key, job.agent) for job in rig.claim(W2)] == [("a", "codex")]


def test_a_running_task_is_stopped_and_taken_on_by_the_other_agent(rig: Rig) -> None:
    job = one_running(rig)
    assert transfer(rig, "codex") == "RUNNING"
    assert rig.beat(W1, job).attempts[0].stop is StopAction.TRANSFER
    rig.do(c.SaveCheckpoint(task_id=job.task_id, epoch=1, data=b"half"))
    rig.do(release(job))
    (again,) = rig.claim()
    assert (again.agent, again.epoch, again.checkpoint) == ("codex", 2, b"half")


def test_another_transfer_while_it_stops_changes_the_aim(rig: Rig) -> None:
    job = one_running(rig)
    transfer(rig, "codex")
    events = len(rig.events())
    transfer(rig, "codex")
    assert len(rig.events()) == events
    transfer(rig, "gemini")
    rig.do(release(job))
    assert (rig.task("a").pinned_agent, rig.claim()) == ("gemini", ())


def test_a_transfer_does_not_undo_a_pause(rig: Rig) -> None:
    job = one_running(rig)
    pause(rig)
    transfer(rig, "codex")
    rig.do(release(job))
    assert (rig.statuses()["a"], rig.task("a").pinned_agent) == ("PAUSED", "codex")
    resume(rig)
    assert [job.agent for job in rig.claim()] == ["codex"]


def test_the_aim_is_dropped_when_nobody_took_it_in_time(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    transfer(rig, "codex", timeout_s=60)
    assert "no worker offers agent codex" in rig.views()["a"].why
    service = scheduler(rig)
    rig.clock.advance(59.9)
    drive(service.run_once())
    assert rig.claim() == ()
    rig.clock.advance(0.1)
    drive(service.run_once())
    assert rig.names("a")[-1] == "aim_dropped"
    assert [job.agent for job in rig.claim()] == ["claude"]


def test_the_aim_of_a_running_task_ends_without_a_word(rig: Rig) -> None:
    rig.register(agents=("claude", "codex"))
    rig.enqueue({"a": []})
    transfer(rig, "codex", timeout_s=60)
    (job,) = rig.started()
    service = scheduler(rig)
    events = len(rig.events())
    rig.clock.advance(60)
    drive(service.run_once())
    assert (rig.task("a").pinned_agent, len(rig.events())) == (None, events)
    rig.do(release(job))
    assert [job.agent for job in rig.claim()] == ["claude"]


# -- skip, archive, retry


@pytest.mark.parametrize("state", ["waiting", "paused", "failed"])
def test_behind_a_skipped_task_its_children_go_on(rig: Rig, state: str) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": ["a"]})
    if state == "paused":
        pause(rig)
    if state == "failed":
        (job,) = rig.started()
        rig.do(fail(job, ErrorKind.INVALID))
    skip = c.Skip(task_id=rig.id("a"), actor="ada", reason="not wanted")
    assert rig.do(skip).status == rig.do(skip).status == "CANCELLED"
    assert rig.views()["a"].why == "skipped by ada: not wanted"
    assert [job.key for job in rig.claim()] == ["b"]
    rig.enqueue({"a": [], "b": ["a"], "c": ["a"]})  # also those that are added later
    assert rig.task("c").ready
    found = promises.check(rig.history())
    assert [violation for finding in found for violation in finding.violations] == [], (
        "ended once, by its words"
    )


def test_skipped_then_done_after_all_frees_nobody_twice(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "x": [], "b": ["a", "x"]})
    rig.do(c.Skip(task_id=rig.id("a"), actor="ada"))
    rig.do(c.Retry(task_id=rig.id("a"), actor="ada"))
    rig.do(c.CompleteByPerson(task_id=rig.id("a"), actor="ada"))
    assert rig.task("b").unmet == 1


def test_a_cancelled_task_is_not_a_skipped_one(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": ["a"]})
    rig.do(cancel(rig.id("a")))
    with pytest.raises(IllegalMove, match="cannot be skipped"):
        rig.do(c.Skip(task_id=rig.id("a"), actor="ada"))
    rig.enqueue({"a": [], "b": ["a"], "c": ["a"]})
    assert (rig.task("b").unmet, rig.task("c").unmet) == (1, 1)


@pytest.mark.parametrize("ended", ["done", "failed", "cancelled"])
def test_only_what_has_ended_is_archived_and_that_is_the_end(rig: Rig, ended: str) -> None:
    rig.register()
    rig.enqueue({"a": []})
    archive = c.Archive(task_id=rig.id("a"), actor="ada")
    with pytest.raises(IllegalMove, match="only what has ended"):
        rig.do(archive)
    (job,) = rig.started()
    with pytest.raises(IllegalMove, match="only what has ended"):
        rig.do(archive)
    rig.do(
        {"done": complete(job), "failed": fail(job, ErrorKind.INVALID), "cancelled": cancel(job.task_id)}[
            ended
        ]
    )
    assert rig.do(archive).status == rig.do(archive).status == "ARCHIVED"
    for command in (
        c.Retry(task_id=job.task_id, actor="ada"),
        c.Skip(task_id=job.task_id, actor="ada"),
        c.Pause(task_id=job.task_id, actor="ada"),
        cancel(job.task_id),
    ):
        with pytest.raises(IllegalMove):
            rig.do(command)
    rig.enqueue({"b": ["a"]})
    assert rig.task("b").ready == (ended == "done")


def test_a_fresh_retry_knows_nothing_of_old_checkpoints_and_sessions(rig: Rig) -> None:
    job = one_running(rig)
    rig.do(c.SaveCheckpoint(task_id=job.task_id, epoch=1, data=b"old"))
    rig.do(fail(job, ErrorKind.INVALID))
    rig.do(c.Retry(task_id=job.task_id, actor="ada", fresh=True))
    (second,) = rig.started()
    assert second.checkpoint is None
    assert drive(rig.reads.checkpoint(job.task_id)) is None
    rig.do(c.SaveCheckpoint(task_id=job.task_id, epoch=2, data=b"new"))
    rig.do(fail(second, ErrorKind.INVALID))
    rig.do(c.Retry(task_id=job.task_id, actor="ada"))
    assert [job.checkpoint for job in rig.claim()] == [b"new"]


@pytest.mark.parametrize("shape", [c.Pause, c.Resume, c.Skip, c.Archive])
def test_what_is_not_there_is_not_found(rig: Rig, shape: type[c.Command]) -> None:
    with pytest.raises(NotFound):
        rig.do(shape(task_id=99, actor="ada"))  # type: ignore[call-arg]
    refused: list[c.Command] = [
        c.AnswerQuestion(task_id=99, actor="ada", text="x"),
        c.Transfer(task_id=99, actor="ada", agent="codex"),
    ]
    for command in refused:
        with pytest.raises(MusterError, match="there is no task 99"):
            rig.do(command)
