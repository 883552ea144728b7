"""The live watch cancels a plan as it was seen."""

from __future__ import annotations

from live_console import joined
from live_rows import news

from muster.cli.live.dialog import Prompt
from muster.cli.live.rows import plan_rows
from muster.cli.live.state import State
from muster.model import commands as c


def listed(state, event, counts, paused=None, **more):
    plan = {"name": "p", "counts": counts, "paused": paused, "failures": 0}
    status = {"status": {"plans": [plan], "crew": "RUNNING", "lastEventId": event}}
    needs = {
        "tasks": [],
        "pools": {},
        "plans": [],
        "webhooks": [],
        "channels": {},
        "files": [],
        "complete": True,
    }
    state.show(news([])._replace(status=status, needs=needs, **more))


def of_plans(event, counts, paused=None):
    state = State()
    listed(state, event, counts, paused)
    for key in ("g", "p"):
        state.key(key)
    return state


def test_more_than_was_seen_is_not_ended_by_a_yes(owner, console):
    live = console("watch")
    live.until(lambda text: "billing/api" in text and "● live" in text)
    live.press("gp")
    live.until(lambda _: "plan" in live.row("billing"))
    live.press("c")
    live.until(lambda text: "3 tasks will be ended." in text)
    owner.do(c.Skip(task_id=owner.tasks()["docs"].id, actor="user:ann"))
    added = c.Spec(title="T", key="late", agent="claude")
    owner.do(c.Enqueue(plan="billing", source=None, actor="user:ann", tasks=(added,)))
    live.press("\twhy\ry")
    live.until(
        lambda text: "changed since you looked: 1 task added (late); nothing was changed" in joined(text)
    )
    assert owner.tasks()["api"].status == "RUNNING" and owner.tasks()["late"].status == "PENDING"
    live.until(lambda text: "3 tasks will be ended." in text and "cancel billing?" in text)
    live.press("y")
    live.until(lambda _: "billing: Cancel: done" in live.foot())
    assert {owner.tasks()[key].status for key in ("api", "docs", "late", "other")} == {"CANCELLED"}


def test_it_is_for_the_plan_as_it_was_when_it_was_asked():
    state = of_plans(7, {"PENDING": 2, "RUNNING": 1, "COMPLETED": 4})
    assert state.key("c") is None
    assert "3 tasks will be ended." in state.dialog.says
    listed(state, 9, {"PENDING": 5})
    asked = state.key("y")
    assert (asked.action, asked.body) == ("cancel", {"seenEvent": 7})


def test_what_was_refused_is_asked_again_only_where_it_still_stands():
    state = of_plans(7, {"PENDING": 2})
    for key in ["c", "tab", *"why", "enter"]:
        state.key(key)
    asked = state.key("y")
    assert asked == Prompt("cancel", asked.row, {"reason": "why", "seenEvent": 7}, label="Cancel")
    refused = {"told": "p has changed", "undone": [asked], "again": asked}
    listed(state, 9, {"PENDING": 3}, **refused)
    assert state.dialog.says[0] == "p has changed" and "3 tasks will be ended." in state.dialog.says
    assert state.key("y").body == {"reason": "why", "seenEvent": 9}
    listed(state, 9, {"CANCELLED": 3}, **refused)
    assert state.dialog is None and state.message == "p has changed", "nothing is left to end"
    state.key("g")
    state.key("t")
    listed(state, 10, {"PENDING": 1}, **refused)
    assert state.dialog is None


def test_a_plan_whose_budget_is_used_up_offers_no_resume():
    plan = {"name": "p", "counts": {"PENDING": 1}, "paused": "budget", "failures": 0}
    rows = plan_rows([plan | {"budgetUsedUp": used_up} for used_up in (True, False)], 7)
    assert ["resume" in row["actions"] for row in rows] == [False, True]
    assert "muster budget p USD" in rows[0]["why"] and "muster plan resume p" in rows[1]["why"]


def test_a_plan_can_be_cancelled_as_long_as_a_task_of_it_is_open():
    assert "cancel" in of_plans(1, {"PENDING": 1}, "USER").chosen_row["actions"]
    assert "cancel" in of_plans(1, {"PAUSED": 1, "FAILED": 2}).chosen_row["actions"]
    assert "cancel" not in of_plans(1, {"COMPLETED": 1, "FAILED": 2}).chosen_row["actions"]
