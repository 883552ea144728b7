"""The live watch does one thing with all that is listed, and tells in the terminal's title what waits."""

from __future__ import annotations

from live_console import joined
from live_rows import news, task

from muster.cli.live.dialog import NAMED_MAX
from muster.cli.live.state import State
from muster.model import commands as c
from muster.model.access import RIGHTS, Role
from muster.model.forms import BULK, BULK_MAX, DONE_AGAIN
from muster.model.keys import BY_KEY

KEEP, BACK = b"\x1b[22;2t", b"\x1b[23;2t"


def listed(*tasks):
    state = State()
    state.show(news(list(tasks)))
    return state


def pressed(state, keys):
    return [asked for key in keys if (asked := state.key(key)) is not None]


def test_only_what_can_take_it_is_asked_about():
    state = listed(task(1), task(2, "PAUSED"), task(3))
    assert pressed(state, "*p") == []
    assert state.dialog.title == "Pause: 2 tasks" and state.dialog.says == ("p/t1, p/t3",)
    assert pressed(state, "n") == [] and state.message == "nothing was changed"
    (asked,) = pressed(state, "*py")
    assert asked.action == "pause" and [row["id"] for row in asked.rows] == [1, 3]
    state.key("/")
    pressed(state, [*"t2", "enter", *"*p"])
    assert state.dialog is None and state.message == "pause: possible with none that is listed"
    (again,) = pressed(state, "*uy")
    assert [row["id"] for row in again.rows] == [2], "what the filter keeps out is not touched"


def test_too_many_are_left_for_another_time_and_a_viewer_does_nothing():
    state = listed(*(task(number) for number in range(1, BULK_MAX + 3)))
    pressed(state, "*c")
    names, left, warned = state.dialog.says
    assert names.endswith(f"p/t{NAMED_MAX} and {BULK_MAX - NAMED_MAX} more")
    assert left == "2 others are left for another time." and "ended now" in warned
    (asked,) = pressed(state, ["tab", *"why", "enter", "y"])
    assert len(asked.rows) == BULK_MAX and asked.body == {"reason": "why"}
    state.rights = RIGHTS[Role.VIEWER]
    assert pressed(state, "*c") == [] and state.dialog is None
    assert state.message == "cancel: this is not yours to do here; nothing was changed"


def test_each_action_of_many_has_a_key():
    assert {key.actions for key in BY_KEY.values() if key.many} == {(action,) for action in BULK}


def test_all_that_is_listed_is_paused_and_the_title_tells_what_waits(owner, console):
    number = owner.tasks()["api"].id
    owner.do(c.AddArtifact(task_id=number, epoch=1, name="report", location="out/\x1b[31mreport.txt"))
    live = console("watch")
    live.choose("billing/api")
    live.press("\r")
    live.until(lambda text: "Made    report  out/^[[31mreport.txt" in text)
    assert "muster artifact get billing/api NAME" in live.text()
    name = owner.root.name.encode()
    assert KEEP + b"\x1b]2;(3) muster " + name + b"\x1b\\" in live.raw and b"\a" not in live.raw
    owner.do(c.Ask(task_id=number, epoch=1, question="Which\x1b]2;evil\x07schema?"))
    live.until(lambda _: b"\x1b]2;(4) muster " + name + b"\x1b\\\a" in live.raw)
    live.press("gt*p")
    live.until(lambda text: "Pause: 2 tasks" in text and "billing/docs, billing/other" in text)
    live.press("y")
    live.until(lambda _: "Pause: done with 2 tasks" in live.foot())
    assert [owner.tasks()[key].status for key in ("docs", "other")] == ["PAUSED"] * 2
    live.press("q")
    assert live.ends() == 0
    assert BACK in live.raw.rpartition(b"\x1b]2;")[2] and b"\x1b]2;evil" not in live.raw


def test_each_is_meant_as_it_was_listed(owner, console):
    """What has changed while the question stood there is left alone."""
    number = owner.tasks()["tests"].id
    live = console("watch")
    live.choose("billing/tests")
    live.press("*r")
    live.until(lambda text: "Retry: " in text)
    owner.do(c.Retry(task_id=number, actor="user:ann", note="hers"))
    owner.do(c.Cancel(task_id=number, actor="user:ann"))
    live.press("y")
    live.until(lambda text: "has changed since" in joined(text))
    assert owner.tasks()["tests"].status == "CANCELLED"


def test_what_is_looked_at_is_what_is_accepted():
    """A resume by one key is for the row that was shown, and a pause for whatever there is."""
    state = listed(task(1, "PAUSED", seq=7), task(2, seq=9))
    state.chosen = 1
    (resumed,) = pressed(state, "p")
    state.chosen = 2
    (paused,) = pressed(state, "p")
    assert (resumed.action, resumed.tag, paused.action, paused.tag) == ("resume", "7", "pause", "")


def test_who_stops_an_attempt_means_that_one():
    state = listed(task(1, "RUNNING", seq=7, epoch=2))
    (cancelled,) = pressed(state, "cy")
    assert (cancelled.action, cancelled.tag) == ("cancel", "7@2")


def test_what_one_key_does_not_take_back_is_asked_first():
    state = listed(task(1, "PAUSED", actions=["accept", "resume"]))
    state.chosen = 1
    assert pressed(state, "p") == [] and state.dialog.title == "Send back: p/t1"
    assert [asked.action for asked in pressed(state, "y")] == ["resume"]
    state = listed(task(2))
    state.show(news([task(2, "COMPLETED", actions=["retry"])]))
    state.chosen = 2
    assert pressed(state, "r") == [] and DONE_AGAIN in state.dialog.says
    assert pressed(state, "n") == [] and state.message == "nothing was changed"


def test_many_are_warned_of_as_on_the_pages():
    done, reviewed = task(1), task(2, "PAUSED", actions=["accept", "resume"])
    state = listed(done)
    state.show(news([task(1, "COMPLETED", actions=["retry"]), reviewed]))
    pressed(state, "*r")
    assert "Already done, and done again by this: 1 task." in state.dialog.says
    pressed(state, ["n", *"*u"])
    assert "For you to review, and sent back by this: 1 task." in state.dialog.says
