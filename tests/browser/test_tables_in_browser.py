"""Tables on narrow screens: what is short stays on one line, and the table scrolls in its own region."""

from __future__ import annotations

import pytest
from browsers import Let
from playwright.sync_api import expect

from far_servers import FarOwner
from muster.model import commands as c
from muster.model.states import ErrorKind

LONG = "x" * 450
BROKEN = """
() => [...document.querySelectorAll("th, td")]
  .filter((cell) => !cell.matches(".long, [colspan], .bar"))
  .map((cell) => {
    const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
    const rects = [];
    while (texts.nextNode()) {
      const range = document.createRange();
      range.selectNodeContents(texts.currentNode);
      rects.push(...[...range.getClientRects()].filter((one) => one.width));
    }
    const [top, bottom] = [rects.map((one) => one.top), rects.map((one) => one.bottom)];
    return [cell.innerText, Math.max(...bottom) - Math.min(...top)];
  })
  .filter(([, height]) => height > 36)
"""
"""Cells that are no long ones, and yet take several lines."""
CUT = """
() => [...document.querySelectorAll(".long")]
  .map((cell) => Math.round(cell.getBoundingClientRect().width))
  .filter((width) => width < 150)
"""
"""Cells of long words that are too narrow to be read."""
OUTSIDE = """
() => [...document.querySelectorAll("table")].filter((one) => !one.parentElement.matches(".scroll")).length
"""


def fill(far: FarOwner) -> list[str]:
    """Pages with a table each, with what is as long as may be."""
    tasks = (c.Spec(title=LONG, key="long", max_retries=0), c.Spec(title="Short", key="short", agent="ghost"))
    far.do(c.Enqueue(plan="a-plan-of-a-long-name-" * 5, source=None, tasks=tasks, actor="user:ann"))
    job = far.claim("wide")["long"]
    far.begin(job)
    far.do(c.Fail(task_id=job.task_id, epoch=1, kind=ErrorKind.CRASH, message="/a/long/path" * 40))
    far.token("a phone " * 12)
    return ["/tasks", f"/tasks/{job.task_id}", "/plans", "/plans/billing", "/crew", "/audit", "/settings"]


@pytest.mark.parametrize("width", [360, 640, 1200])
def test_short_columns_stay_on_one_line(far: FarOwner, let_in: Let, width: int) -> None:
    every = fill(far)
    page = let_in(viewport={"width": width, "height": 800})
    for path in every:
        page.goto(path)
        assert page.evaluate(BROKEN) == [], path
        assert page.evaluate(CUT) == [], path
        assert page.evaluate(OUTSIDE) == 0, path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    expect(page.locator("table")).to_have_count(1)


def test_a_wide_table_scrolls_in_its_region(far: FarOwner, let_in: Let) -> None:
    fill(far)
    page = let_in(viewport={"width": 360, "height": 800})
    page.goto("/tasks")
    region = page.get_by_role("region", name="Table of tasks")
    assert region.evaluate("(one) => one.scrollWidth > one.clientWidth")
    region.evaluate("(one) => { one.scrollLeft = one.scrollWidth; }")
    box = page.get_by_role("columnheader", name="Age", exact=True).bounding_box()
    assert box is not None and box["x"] + box["width"] <= 360
