"""People are told of each matter once: at once, collected, or after quiet hours, and only what is not over."""

from __future__ import annotations

from datetime import datetime

import pytest
from engine_rig import Rig, complete, fail
from told_crew import BASE, BERLIN, NIGHT, Phone, Told, at

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.errors import Conflict, NotFound, TermOver
from muster.model.notify import Matter, Notification, Quiet, line_of, note_of
from muster.model.states import ErrorKind, PauseReason
from muster.model.usage import Usage
from muster.model.webhooks import TRIES_MAX

pytestmark = pytest.mark.usefixtures("names")


def test_each_matter_is_told_once_in_words_with_a_link(crew: Rig) -> None:
    told = Told(crew, Phone())
    jobs = told.begun("a", "b")
    told.ask(jobs["a"], "which\x1b[31m one?\u202e")
    told.look()
    told.look()
    (note,) = told.phone.tries
    assert note.title == "api/a needs you" and note.link == f"{BASE}/tasks/{jobs['a'].task_id}"
    assert "which^[[31m one?<202E>" in note.text and note.text.isprintable()
    told.answer(jobs["a"])
    (again,) = crew.started()
    told.ask(again, "and now?")
    told.look()
    assert told.phone.titles == ["api/a needs you"] * 2, "asked again is another matter"
    assert len({note.id for note in told.phone.tries}) == 2
    crew.do(fail(jobs["b"], ErrorKind.INVALID))
    told.look()
    assert told.phone.titles[2:] == ["api/b has failed"]
    assert [message.delivered_at_ms is not None for message in told.messages()] == [True] * 3


def test_what_a_person_has_paused_is_no_matter(crew: Rig) -> None:
    told = Told(crew, Phone())
    told.begun("a")
    crew.enqueue({"b": ()})
    crew.do(c.Pause(task_id=crew.id("b"), actor="ada", reason=PauseReason.USER))
    crew.do(c.PausePlan(plan="api", actor="ada"))
    told.look()
    assert told.phone.tries == []


def test_a_provider_without_quota_is_told_with_its_time_and_not_when_it_is_back(crew: Rig) -> None:
    told = Told(crew, Phone())
    jobs = told.begun("a", "b")
    crew.do(fail(jobs["a"], ErrorKind.RATE_LIMIT, retry_after_s=60))
    told.look()
    assert told.phone.tries == [], "Muster waits for that by itself"
    crew.do(fail(jobs["b"], ErrorKind.QUOTA, retry_after_s=7200))
    told.look()
    (note,) = told.phone.tries
    assert note.title == "claude takes nothing until 15 Jan 11:00" and note.link == f"{BASE}/inbox"
    assert note.matters == (Matter.QUOTA,) and not note.urgent


def test_a_channel_is_told_what_it_is_for(crew: Rig) -> None:
    told = Told(crew, Phone(), tells=(Matter.SETTLED,))
    job = told.begun("a")["a"]
    crew.do(complete(job))
    told.look()
    (note,) = told.phone.tries
    assert (note.title, note.text) == ("plan api is settled", "1 completed"), "neither says the other again"


def test_what_still_waits_is_called_as_pages_call_it() -> None:
    told = {"matter": "settled", "planId": 1, "counts": {"PAUSED": 1, "PENDING": 2, "ABORTED": 1}}
    line = line_of(told, "n", "", None)
    assert (line.head, line.text) == ("plan n is settled", "1 delayed, 1 paused, 2 waiting")
    several = note_of("digest_a1", [line, line], "", 0)
    assert several.text.splitlines()[0] == "plan n is settled: 1 delayed, 1 paused, 2 waiting"


def test_a_budget_that_is_used_up_is_a_matter_of_its_own(several_servers: str) -> None:
    rig = Rig(Policy(budget_plan_microusd=1_000_000))
    rig.register()
    told = Told(rig, Phone(), tells=(Matter.BUDGET,))
    job = told.begun("a")["a"]
    usage = Usage(input_tokens=1, output_tokens=1, cost_microusd=2_000_000)
    rig.do(c.Account(task_id=job.task_id, epoch=job.epoch, usage=usage))
    told.look()
    (note,) = told.phone.tries
    assert note.title == "plan api has used up its budget" and "it gives out no more work" in note.text
    assert note.link == f"{BASE}/plans/api"


def test_what_happens_in_the_time_of_a_digest_is_one_message(crew: Rig) -> None:
    told = Told(crew, Phone(), digest_s=600, tells=(Matter.DEAD, Matter.NEEDS_YOU))
    jobs = told.begun("a", "b", "c")
    told.ask(jobs["a"], "what?")
    crew.clock.advance(300)
    crew.do(fail(jobs["b"], ErrorKind.INVALID))
    told.ask(jobs["c"], "which?")
    told.answer(jobs["c"])
    crew.clock.advance(299)
    told.look()
    assert told.phone.tries == []
    crew.clock.advance(1)
    told.phone.status = 0
    told.look()
    first, told.phone.status = told.phone.tries[-1], 200
    assert first.title == "2 matters of your crew" and first.link == f"{BASE}/inbox"
    assert [line.partition(":")[0] for line in first.text.splitlines()] == [
        "api/a needs you",
        "api/b has failed",
    ]
    (later,) = crew.started()
    crew.do(fail(later, ErrorKind.INVALID))
    crew.clock.advance(10)
    told.look()
    assert told.phone.tries[1:] == [first], "what is sent again says the same, under the same id"
    crew.clock.advance(600)
    told.look()
    assert told.phone.titles[2:] == ["api/c has failed"]


def test_in_quiet_hours_nothing_is_told_and_after_them_what_still_matters_as_one(crew: Rig) -> None:
    told = Told(crew, Phone(), NIGHT, tells=(Matter.DEAD, Matter.NEEDS_YOU))
    jobs = told.begun("a", "b", "c")
    at(crew, datetime(2027, 1, 15, 23, 30, tzinfo=BERLIN))
    told.ask(jobs["a"], "what?")
    crew.do(fail(jobs["b"], ErrorKind.INVALID))
    told.ask(jobs["c"], "which?")
    told.answer(jobs["c"])
    told.look()
    crew.do(c.TestChannel(channel="phone", actor="ada"))
    told.look()
    assert told.phone.titles == ["Muster can tell you here"], "a test was asked for at this moment"
    at(crew, datetime(2027, 1, 16, 6, 59, 59, tzinfo=BERLIN))
    told.look()
    assert len(told.phone.tries) == 1
    at(crew, datetime(2027, 1, 16, 7, 0, tzinfo=BERLIN))
    told.look()
    assert told.phone.titles[1:] == ["2 matters of your crew"]
    (over,) = [one for one in told.messages() if one.delivered_at_ms is None]
    assert (over.next_at_ms, over.said) == (None, "over before it was told")


@pytest.mark.parametrize(
    ("hours", "utc", "holds"),
    [
        (NIGHT, "2027-03-28 00:30", True),  # 01:30, before the hour that is left out
        (NIGHT, "2027-03-28 04:59", True),  # 06:59 by summer time
        (NIGHT, "2027-03-28 05:00", False),
        (NIGHT, "2027-10-31 05:59", True),  # 06:59 by winter time
        (NIGHT, "2027-10-31 06:00", False),
        (Quiet(150, 165), "2027-10-31 00:35", True),  # 02:35, which comes twice
        (Quiet(150, 165), "2027-10-31 01:35", True),
        (Quiet(150, 165), "2027-03-28 01:35", False),  # 03:35: there is no 02:35 that day
        (Quiet(12 * 60, 13 * 60), "2027-01-15 11:00", True),
        (Quiet(12 * 60, 13 * 60), "2027-01-15 12:00", False),
    ],
)
def test_quiet_hours_are_those_of_the_clock_on_the_wall(hours: Quiet, utc: str, holds: bool) -> None:
    at_ms = int(datetime.fromisoformat(f"{utc}Z").timestamp() * 1000)
    assert hours.holds(at_ms, BERLIN) is holds


def test_a_channel_that_takes_nothing_is_disabled_and_the_inbox_says_so(crew: Rig) -> None:
    told = Told(crew, Phone(), tells=(Matter.DEAD,))
    told.phone.status = 503
    crew.do(fail(told.begun("a")["a"], ErrorKind.INVALID))
    for _ in range(TRIES_MAX):
        told.look()
        crew.clock.advance(3600)
    assert len(told.phone.tries) == TRIES_MAX and len({note.id for note in told.phone.tries}) == 1
    inbox = drive(crew.queries.inbox())
    assert inbox.webhooks == () and "answered 503" in inbox.channels["phone"]
    with pytest.raises(Conflict, match="muster notify resend phone"):
        raise_with_hint(crew)
    told.phone.status = 200
    crew.do(c.ResendNotices(channel="phone", actor="ada"))
    told.look()
    assert told.phone.titles[TRIES_MAX:] == ["api/a has failed"]
    assert drive(crew.queries.inbox()).channels == {}
    with pytest.raises(NotFound):
        crew.do(c.TestChannel(channel="nobody", actor="ada"))


def test_a_channel_that_muster_fails_at_is_one_that_takes_nothing(
    crew: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    told = Told(crew, Phone(), tells=(Matter.DEAD,))
    told.phone.breaks = True
    crew.do(fail(told.begun("a")["a"], ErrorKind.INVALID))
    for _ in range(TRIES_MAX):
        told.look()
        crew.clock.advance(3600)
    assert len(told.phone.tries) == TRIES_MAX, "the owner goes on, and so do its other channels"
    assert "its log says how" in drive(crew.queries.inbox()).channels["phone"]
    assert "no such letter" in caplog.text


def raise_with_hint(rig: Rig) -> None:
    try:
        rig.do(c.TestChannel(channel="phone", actor="ada"))
    except Conflict as error:
        raise Conflict(error.hint) from error


def test_channels_are_those_of_the_settings_and_no_webhooks(crew: Rig) -> None:
    told = Told(crew, Phone())
    (row,) = drive(crew.reads.webhooks())
    for command in (c.TestWebhook, c.RemoveWebhook, c.ResendMessages):
        with pytest.raises(NotFound):
            crew.do(command(webhook_id=row.id, actor="ada"))
    crew.do(fail(told.begun("a")["a"], ErrorKind.INVALID))
    Told(crew, Phone(), name="desk")
    (other,) = drive(crew.reads.webhooks())
    assert other.channel == "desk" and drive(crew.reads.messages(row.id, 10)) == []
    crew.do(c.SetChannels(term=crew.new_boot().term, channels={}))
    assert drive(crew.reads.webhooks()) == []


def test_the_next_leader_tells_what_the_last_one_could_not_write_down_under_the_same_id(crew: Rig) -> None:
    told = Told(crew, Phone(), tells=(Matter.DEAD,))
    crew.do(fail(told.begun("a")["a"], ErrorKind.INVALID))

    async def deposed(note: Notification) -> tuple[int, str]:
        crew.new_boot()
        return await told.phone(note)

    channel = told.notifier._channels["phone"]
    told.notifier._channels["phone"] = channel._replace(tell=deposed)
    with pytest.raises(TermOver):
        told.look()
    Told(crew, told.phone, tells=(Matter.DEAD,)).look()
    assert told.phone.titles == ["api/a has failed"] * 2
    assert len({note.id for note in told.phone.tries}) == 1


def test_what_is_over_while_a_channel_is_away_is_not_told_once_it_is_back(crew: Rig) -> None:
    told = Told(crew, Phone(), tells=(Matter.DEAD, Matter.NEEDS_YOU))
    told.phone.status = 503
    jobs = told.begun("a", "b", "c")
    told.ask(jobs["a"], "what?")
    told.ask(jobs["c"], "which?")
    for _ in range(3):
        crew.do(fail(jobs["b"], ErrorKind.INVALID))
        told.look()
        crew.do(c.Retry(task_id=jobs["b"].task_id, actor="ada"))
        jobs["b"] = next(job for job in crew.started() if job.key == "b")
    crew.do(fail(jobs["b"], ErrorKind.INVALID))
    told.answer(jobs["a"])
    told.phone.status, tried = 200, len(told.phone.tries)
    crew.clock.advance(3600)
    told.look()
    later = told.phone.tries[tried:]
    assert [note.title for note in later] == ["api/c needs you", "api/b has failed"]
    assert later[0].id in {note.id for note in told.phone.tries[:tried]}, (
        "what still waits is the same message"
    )
    fates = {(one.delivered_at_ms is not None, one.next_at_ms, one.said) for one in told.messages()}
    assert fates == {(True, None, "answered 200"), (False, None, "over before it was told")}
    told.look()
    assert len(told.phone.tries) == tried + 2


def test_a_digest_that_was_refused_is_tried_again_with_what_is_not_over(crew: Rig) -> None:
    told = Told(crew, Phone(), digest_s=600, tells=(Matter.NEEDS_YOU,))
    jobs = told.begun("a", "b")
    for job in jobs.values():
        told.ask(job, "what?")
    crew.clock.advance(600)
    told.phone.status = 503
    told.look()
    told.answer(jobs["a"])
    (again,) = crew.started()
    told.ask(again, "and now?")
    told.phone.status = 200
    crew.clock.advance(10)
    told.look()
    assert told.phone.titles == ["2 matters of your crew", "api/b needs you"]
    assert len({note.id for note in told.phone.tries}) == 1
    crew.clock.advance(600)
    told.look()
    assert told.phone.titles[2:] == ["api/a needs you"], "what was asked since is collected as ever"


def test_a_message_that_a_person_asks_for_is_told_once_more_and_no_other(crew: Rig) -> None:
    told = Told(crew, Phone(), tells=(Matter.NEEDS_YOU,))
    job = told.begun("a")["a"]
    told.phone.status = 503
    told.ask(job, "what?")
    told.look()
    told.answer(job)
    told.phone.status = 200
    crew.clock.advance(3600)
    told.look()
    (again,) = crew.started()
    told.ask(again, "and now?")
    told.look()
    assert len(told.phone.tries) == 2
    crew.do(c.ResendNotices(channel="phone", actor="ada"))
    told.look()
    assert len(told.phone.tries) == 2, "all that was not told: of it nothing is left to tell"
    crew.do(c.ResendNotices(channel="phone", actor="ada", message_id=told.phone.tries[0].id))
    told.look()
    assert told.phone.tries[2:] == told.phone.tries[:1]
