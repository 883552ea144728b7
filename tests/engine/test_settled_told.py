"""A plan that is settled is told where that is news: not what a channel was told already, nor what is over."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from engine_rig import Rig, complete, fail
from told_crew import BERLIN, NIGHT, Phone, Told, at

from muster.model import commands as c
from muster.model.edits import CancelPlan
from muster.model.notify import Matter
from muster.model.states import ErrorKind

pytestmark = pytest.mark.usefixtures("names")


def test_a_digest_tells_the_last_rest_of_a_plan_alone(crew: Rig) -> None:
    told = Told(crew, Phone(), digest_s=600, tells=(Matter.SETTLED,))
    jobs = told.begun("a", "b", "c")
    told.rest(jobs["a"])
    told.rest(jobs["b"])
    crew.do(fail(jobs["c"], ErrorKind.INVALID))
    told.answer(jobs["a"])
    (again,) = crew.started()
    crew.do(complete(again))
    crew.clock.advance(600)
    told.look()
    assert told.phone.texts == ["1 completed, 1 failed, 1 paused"]


def test_an_answer_brings_no_other_word_of_the_plan_while_the_rest_waits(crew: Rig) -> None:
    told = Told(crew, Phone(), tells=(Matter.SETTLED,))
    jobs = told.begun("a", "b", "c", "d")
    crew.do(complete(jobs.pop("d")))
    for job in jobs.values():
        told.rest(job)
    told.look()
    assert told.phone.texts == ["1 completed, 3 paused"]
    told.answer(jobs["a"])
    (again,) = crew.started()
    told.rest(again)
    told.look()
    told.answer(again)
    crew.do(complete(*crew.started()))
    told.look()
    assert len(told.phone.tries) == 1, "each question was told"
    crew.do(complete(told.begun("e")["e"]))
    told.look()
    assert told.phone.texts[1:] == ["3 completed, 2 paused"], "something else has moved"
    for key in ("b", "c"):
        told.answer(jobs[key])
        crew.do(complete(*crew.started()))
        told.look()
    assert told.phone.texts[2:] == ["5 completed"]


def forget(rig: Rig) -> None:
    rig.do(CancelPlan(plan="api", actor="ada", forget=True))


def cancel_the_rest(rig: Rig) -> None:
    rig.do(CancelPlan(plan="api", actor="ada"))
    rig.do(c.CompleteByPerson(task_id=rig.id("b"), actor="ada"))


@pytest.mark.parametrize("see_to_it", [forget, cancel_the_rest])
def test_a_plan_that_was_put_away_in_quiet_hours_is_not_told_after_them(
    crew: Rig, see_to_it: Callable[[Rig], None]
) -> None:
    told = Told(crew, Phone(), NIGHT, tells=(Matter.SETTLED,))
    crew.enqueue({"a": (), "b": (), "c": ("b",)})
    jobs = {job.key: job for job in crew.started()}
    at(crew, datetime(2027, 1, 15, 23, 30, tzinfo=BERLIN))
    crew.do(complete(jobs["a"]))
    crew.do(fail(jobs["b"], ErrorKind.INVALID))
    told.look()
    (settled,) = told.messages()
    assert '"counts":{"COMPLETED":1,"FAILED":1,"PENDING":1}' in settled.body
    see_to_it(crew)
    at(crew, datetime(2027, 1, 16, 7, 0, tzinfo=BERLIN))
    told.look()
    assert told.phone.tries == []
    assert {one.said for one in told.messages()} == {"over before it was told"}


def test_what_a_plan_has_done_is_told_where_its_rest_was_cancelled(crew: Rig) -> None:
    told = Told(crew, Phone(), tells=(Matter.SETTLED,))
    jobs = told.begun("a", "b")
    crew.do(c.Cancel(task_id=jobs["b"].task_id, actor="ada"))
    crew.do(c.ProcessesExited(task_id=jobs["b"].task_id, epoch=jobs["b"].epoch))
    crew.do(complete(jobs["a"]))
    told.look()
    assert told.phone.texts == ["1 cancelled, 1 completed"]


def test_a_plan_that_rests_again_while_a_channel_is_away_is_told_as_it_is_then(crew: Rig) -> None:
    told = Told(crew, Phone(), tells=(Matter.SETTLED,))
    told.phone.status = 503
    jobs = told.begun("a", "b")
    told.rest(jobs["a"])
    told.rest(jobs["b"])
    told.look()
    told.answer(jobs["a"])
    crew.do(complete(*crew.started()))
    told.phone.status = 200
    told.look()
    assert told.phone.texts[-1:] == ["1 completed, 1 paused"]
    crew.clock.advance(3600)
    told.look()
    assert told.phone.texts == ["2 paused", "1 completed, 1 paused"]


def chain(rig: Rig) -> Any:
    """The first of three tasks that wait for each other has begun."""
    rig.enqueue({"a": (), "b": ("a",), "c": ("b",)})
    (job,) = rig.started()
    return job


def test_a_plan_that_stops_at_a_question_is_told_by_the_question_alone(crew: Rig) -> None:
    told = Told(crew, Phone())
    told.rest(chain(crew))
    told.look()
    told.look()
    assert told.phone.titles == ["api/a needs you"]
    crew.do(c.AnswerQuestion(task_id=crew.id("a"), text="this one", actor="ada"))
    for _ in range(3):
        crew.do(complete(*crew.started()))
    told.look()
    assert told.phone.titles[1:] == ["plan api is settled"] and told.phone.texts[1:] == ["3 completed"]


def test_in_a_digest_the_question_that_stops_a_plan_stands_alone(crew: Rig) -> None:
    told = Told(crew, Phone(), digest_s=600)
    told.rest(chain(crew))
    crew.clock.advance(600)
    told.look()
    assert told.phone.titles == ["api/a needs you"]


@pytest.mark.parametrize("tells", [(Matter.SETTLED,), (Matter.SETTLED, Matter.DEAD)])
def test_who_is_told_no_question_is_told_that_its_plan_rests(crew: Rig, tells: tuple[Matter, ...]) -> None:
    told = Told(crew, Phone(), tells=tells)
    job = chain(crew)
    crew.do(fail(job, ErrorKind.INVALID))
    told.look()
    crew.do(c.Retry(task_id=job.task_id, actor="ada"))
    told.rest(*crew.started())
    told.look()
    assert told.phone.titles[-1] == "plan api is settled" and told.phone.texts[-1] == "1 paused, 2 waiting"


def test_a_plan_that_a_failure_has_stopped_is_told_beside_it(crew: Rig) -> None:
    told = Told(crew, Phone())
    crew.do(fail(chain(crew), ErrorKind.INVALID))
    told.look()
    assert told.phone.titles == ["api/a has failed", "plan api is settled"]


def test_a_channel_that_is_newer_than_the_question_is_told_that_the_plan_rests(crew: Rig) -> None:
    told = Told(crew, Phone())
    jobs = told.begun("a", "b")
    told.rest(jobs["a"])
    later = Told(crew, Phone(), name="desk")
    crew.do(complete(jobs["b"]))
    later.look()
    assert later.phone.texts == ["1 completed, 1 paused"]
