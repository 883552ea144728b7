"""A plan is cancelled page by page, and as whoever decides has seen it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from engine_rig import Rig, cancel, complete
from msgspec.structs import replace

from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.edits import CancelPlan
from muster.model.errors import NotFound, PreconditionFailed
from muster.model.states import FailedDependency


def test_a_plan_is_cancelled_page_by_page_and_nothing_of_it_begins_between(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"x": []}, plan="other")
    rig.enqueue(
        {f"t{n}": [f"t{n - 1}"] if n else [] for n in range(7)},
        specs={f"t{n}": {"on_failed": FailedDependency.RUN} for n in range(7)},
    )
    x, first = rig.started()
    assert (x.key, first.key) == ("x", "t0")
    below, pages = None, []
    while True:
        answer = rig.do(CancelPlan(plan="api", actor="ada", reason="no", below=below, limit=3))
        pages.append((answer.cancelled, answer.stopped))
        assert rig.claim() == ()
        below = answer.below
        if below is None:
            break
    assert pages == [(3, 0), (3, 0), (1, 1)]
    assert set(rig.statuses().values()) == {"CANCELLED", "RUNNING"}
    assert rig.statuses()["x"] == "RUNNING"
    with pytest.raises(NotFound):
        rig.do(CancelPlan(plan="nobody", actor="ada"))


def newest(rig: Rig) -> int:
    return drive(rig.reads.last_event_id())


def added(rig: Rig) -> None:
    rig.enqueue({"c": []})


def swapped(rig: Rig) -> None:
    """As many are open as before."""
    rig.do(c.Skip(task_id=rig.id("a"), actor="bob"))
    added(rig)


def opened_again(rig: Rig) -> None:
    rig.do(c.Retry(task_id=rig.id("old"), actor="bob"))


def paused(rig: Rig) -> None:
    rig.do(c.PausePlan(plan="api", actor="bob"))


def paused_and_resumed(rig: Rig) -> None:
    paused(rig)
    rig.do(c.ResumePlan(plan="api", actor="bob"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (added, "1 task added (c)"),
        (swapped, "1 task added (c)"),
        (opened_again, "1 task opened again (old)"),
        (paused, "paused or resumed"),
        (paused_and_resumed, "paused or resumed"),
    ],
)
def test_a_plan_is_cancelled_as_it_was_seen(rig: Rig, change: Callable[[Rig], None], told: str) -> None:
    rig.enqueue({"a": [], "b": [], "old": []})
    rig.do(cancel(rig.id("old")))
    seen = newest(rig)
    change(rig)
    before = rig.statuses()
    with pytest.raises(PreconditionFailed) as refused:
        rig.do(CancelPlan(plan="api", actor="ada", seen_event=seen))
    assert refused.value.message == f"plan api has changed since you looked: {told}; nothing was changed"
    assert rig.statuses() == before
    rig.do(CancelPlan(plan="api", actor="ada", seen_event=newest(rig)))
    assert set(rig.statuses().values()) <= {"CANCELLED", "COMPLETED"}


def test_what_goes_on_by_itself_keeps_nobody_from_cancelling(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": ["a"], "d": ["b"]})
    seen = newest(rig)
    (job,) = rig.started()
    rig.do(complete(job))
    rig.enqueue({"x": []}, plan="other")
    rig.enqueue({"c": []})
    rig.do(cancel(rig.id("c")))
    assert rig.do(CancelPlan(plan="api", actor="ada", seen_event=seen)).cancelled == 2
    assert rig.statuses()["x"] == "PENDING"


def test_what_comes_back_between_two_pages_is_not_ended(rig: Rig) -> None:
    rig.enqueue({"old": [], "a": [], "b": []})
    rig.do(cancel(rig.id("old")))
    asked = CancelPlan(plan="api", actor="ada", seen_event=newest(rig), limit=1)
    asked = replace(asked, below=rig.do(asked).below)
    added(rig)
    paused(rig)
    asked = replace(asked, below=rig.do(asked).below)
    opened_again(rig)
    with pytest.raises(
        PreconditionFailed, match=r"opened again \(old\); what was ended by this before stays so"
    ):
        rig.do(asked)
    assert rig.statuses() == {"old": "PENDING", "a": "CANCELLED", "b": "CANCELLED", "c": "PENDING"}
