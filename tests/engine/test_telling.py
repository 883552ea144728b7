"""What a person tells the agent of a task: the one that runs, and those that come after it."""

from __future__ import annotations

import pytest
from engine_rig import W1, Rig, complete, fail
from test_overdue import Watch

from muster.model import commands as c
from muster.model.answers import ClaimedJob
from muster.model.errors import IllegalMove


def tell(rig: Rig, text: str) -> None:
    rig.do(c.Tell(task_id=rig.id("a"), actor="ada", text=text))


def started(rig: Rig) -> ClaimedJob:
    rig.register(W1)
    rig.enqueue({"a": []})
    (job,) = rig.started()
    return job


def notice(rig: Rig, job: ClaimedJob) -> str:
    (order,) = rig.beat(W1, job).attempts
    return str(order.notice)


def test_a_running_agent_is_told_with_its_heartbeat_and_the_next_one_in_its_prompt(rig: Rig) -> None:
    job = started(rig)
    tell(rig, "Use tabs.\n\nNot blanks.")
    tell(rig, "And hurry.")
    said = "Message from a person: Use tabs.\nNot blanks.\n\nMessage from a person: And hurry."
    assert notice(rig, job) == said
    assert rig.names("a")[-2:] == ["told", "told"]
    rig.do(fail(job))
    rig.clock.advance(400)
    rig.do(c.Promote(task_id=job.task_id, actor="ada"))
    (again,) = rig.started()
    assert again.note == "Use tabs.\nNot blanks.\n\nAnd hurry."
    assert notice(rig, again) == "", "it stands in its prompt"


def test_a_task_that_waits_keeps_it_for_its_agent(rig: Rig) -> None:
    rig.register(W1)
    rig.enqueue({"a": []})
    tell(rig, "Use tabs.")
    (job,) = rig.started()
    assert job.note == "Use tabs."


def test_nobody_reads_it_where_the_task_has_ended_or_asks(rig: Rig) -> None:
    job = started(rig)
    rig.do(c.Ask(task_id=job.task_id, epoch=job.epoch, question="which one?"))
    with pytest.raises(IllegalMove, match="has asked: which one"):
        tell(rig, "the blue one")
    rig.do(c.AnswerQuestion(task_id=job.task_id, actor="ada", text="blue"))
    rig.do(c.ProcessesExited(task_id=job.task_id, epoch=job.epoch))
    (again,) = rig.started()
    rig.do(complete(again))
    with pytest.raises(IllegalMove, match="no agent is at it"):
        tell(rig, "too late")


def test_a_new_estimate_takes_back_only_our_own_notice(rig: Rig) -> None:
    watch = Watch(rig)
    watch.progress(0)
    tell(rig, "Use tabs.")
    watch.pass_minutes(30)
    assert "Use tabs." in watch.beat().notice and "by its estimate" in watch.beat().notice
    watch.progress(20)
    assert watch.beat().notice == "Message from a person: Use tabs."


def test_what_a_person_has_paused_a_person_may_take_and_nobody_else(rig: Rig) -> None:
    rig.register(W1)
    rig.enqueue({"a": []})
    rig.do(c.Pause(task_id=rig.id("a"), actor="ada"))
    assert rig.claim() == ()
    taken = rig.do(c.Take(task_id=rig.id("a"), actor="ada", token_hash="0" * 64))
    assert rig.views()["a"].status == "RUNNING"
    rig.do(c.GiveBack(task_id=rig.id("a"), epoch=taken.job.epoch, actor="ada"))
    assert [job.key for job in rig.claim()] == ["a"]


def test_notes_of_retries_and_resumes_are_added_to_what_was_told_before(rig: Rig) -> None:
    job = started(rig)
    tell(rig, "Use tabs.")
    rig.do(c.Pause(task_id=job.task_id, actor="ada"))
    rig.do(c.Resume(task_id=job.task_id, actor="ada", note="In blue."))  # before it has stopped
    rig.do(c.Release(task_id=job.task_id, epoch=job.epoch, reason="stopped"))
    rig.do(c.Pause(task_id=job.task_id, actor="ada"))
    rig.do(c.Resume(task_id=job.task_id, actor="ada", note="And small."))
    (job,) = rig.started()
    assert job.note == (said := "Use tabs.\n\nIn blue.\n\nAnd small.")
    rig.do(fail(job))
    rig.do(c.Retry(task_id=job.task_id, actor="ada", note="Now."))  # which only waited
    (job,) = rig.started()
    assert (rig.task("a").generation, job.note) == (1, said := f"{said}\n\nNow.")
    rig.do(complete(job))
    rig.do(c.Retry(task_id=job.task_id, actor="ada"))
    rig.do(c.Cancel(task_id=job.task_id, actor="ada"))
    rig.do(c.Retry(task_id=job.task_id, actor="ada", note="Anew."))
    (job,) = rig.started()
    assert job.note == f"{said}\n\nAnew."
