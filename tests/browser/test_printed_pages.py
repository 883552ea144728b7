"""Pages on paper: what one reads of them is there, in dark ink, and nothing that one can only click."""

from __future__ import annotations

from typing import Any

import pytest
from browsers import Let
from playwright.sync_api import Page, expect
from test_pages_in_browser import ask, led_to, paths

from far_servers import FarOwner
from muster.model import commands as c
from reviewed_work import Repo, with_repository

CONTROLS = "button, .button, input, select, textarea, .composer, form.filter, nav, footer"
LINES = 300
FAINT = """
() => {
  const ink = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const contrast = (colour) => {
    ink.clearRect(0, 0, 1, 1);
    ink.fillStyle = colour;
    ink.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...ink.getImageData(0, 0, 1, 1).data].map((one) => {
      const part = one / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 1.05 / (0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05);
  };
  const found = [];
  for (const one of document.querySelectorAll("body *")) {
    const looks = getComputedStyle(one);
    const said = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!one.checkVisibility() || one.closest("title")) continue;
    const drawn = one.closest("svg") !== null;
    if (said && contrast(drawn ? looks.fill : looks.color) < 4.5) found.push(one.outerHTML.slice(0, 80));
    if (!one.matches("rect.box")) continue;
    if (contrast(looks.fill) > 1.3 || contrast(looks.stroke) < 1.3) found.push(one.outerHTML);
  }
  return found;
}
"""
"""Elements whose text is hard to read on white, and boxes that are no light ones with a line around them."""


@pytest.fixture
def repo(far: FarOwner) -> Repo:
    """`tests` has left work, and the plan's branch has some."""
    made = with_repository(far)
    made.leave("billing", "tests", 1, {"long.py": "".join(f"row = {at}\n" for at in range(LINES))})
    made.publish("billing", "model", {"model.py": "x = 1\n"})
    return made


def printed(page: Page, path: str = "") -> None:
    if path:
        page.emulate_media(media="screen")
        page.goto(path)
    page.emulate_media(media="print")
    assert [one for one in page.locator(CONTROLS).all() if one.is_visible()] == [], path


def comment(page: Page, line: int, text: str) -> None:
    page.emulate_media(media="screen")
    page.locator(f'input[name="at"][value$="+{line}"]').check()
    page.locator('textarea[name="new"]').fill(text)
    page.get_by_role("button", name="Add comment").click()


def said_on_paper(page: Page) -> list[Any]:
    """The texts of comments that are printed."""
    found: list[Any] = page.evaluate(
        "[...document.querySelectorAll('label')].filter((one) => one.checkVisibility())"
        ".map((one) => getComputedStyle(one, '::after').content).filter((one) => one !== 'none')"
    )
    return found


@pytest.mark.parametrize("scripts", [True, False])
def test_a_printed_review_has_its_lines_and_what_was_said_of_them(
    far: FarOwner, repo: Repo, let_in: Let, scripts: bool
) -> None:
    page = let_in(java_script_enabled=scripts)
    page.goto(f"/tasks/{far.tasks()['tests'].id}/review")
    long = "\n".join(f"Why {at}?" for at in range(20))
    comment(page, 2, long)
    expect(page.get_by_label("Comment on long.py:2")).to_have_value(long)
    printed(page)
    note = page.locator("label.note")
    expect(note).to_be_visible()
    box = note.bounding_box()
    assert box is not None and box["height"] > 20 * 20, "all of it, not what a field shows"
    assert len(said_on_paper(page)) == 1 and "Why 19?" in said_on_paper(page)[0]
    lines = page.locator(".diff label.line")
    expect(lines).to_have_count(LINES)
    for line in (lines.first, lines.last):
        assert line.evaluate("(one) => one.checkVisibility({contentVisibilityAuto: true})")
    if scripts:
        page.emulate_media(media="screen")
        page.get_by_label("Comment on long.py:2").fill("Because")
        page.get_by_label("Of all of it").fill('Nearly "done"')
        page.emulate_media(media="print")
        assert said_on_paper(page) == ['"Because"', '"Nearly \\"done\\""'], "as it is now"
    printed(page, "/plans/billing/review")
    expect(page.locator(".diff .line").last).to_be_visible()


def test_what_is_asked_is_printed(far: FarOwner, let_in: Let) -> None:
    number = ask(far, "Which schema?")
    page = let_in()
    for path in ("/", "/inbox", f"/tasks/{number}", f"/tasks/{number}/answer"):
        printed(page, path)
        expect(page.locator(".question")).to_have_text("Which schema?")
        expect(page.locator(".question")).to_be_visible()


def test_what_an_agent_wants_to_do_is_printed(far: FarOwner, let_in: Let) -> None:
    number = far.tasks()["api"].id
    wish = "\n".join(f"rm file{at}" for at in range(60))
    far.do(c.Park(task_id=number, epoch=1, question="May I?", wish=wish))
    page = let_in()
    for path in ("/inbox", f"/tasks/{number}"):
        printed(page, path)
        shown = page.locator("form.answer pre")
        expect(shown).to_be_visible()
        assert shown.evaluate("(one) => one.scrollHeight <= one.clientHeight + 1"), "to its end"


@pytest.mark.parametrize(("theme", "scheme"), [("Dark", "light"), ("Light", "dark"), ("", "dark")])
def test_paper_is_white(far: FarOwner, repo: Repo, let_in: Let, theme: str, scheme: str) -> None:
    ask(far)
    page = let_in(color_scheme=scheme)
    if theme:
        page.get_by_role("button", name=theme).click()
        expect(page.locator("html")).to_have_attribute("data-theme", theme.lower())
    review = f"/tasks/{far.tasks()['tests'].id}/review"
    for path in [*paths(far), review, "/plans/billing/review"]:
        printed(page, path)
        assert page.evaluate(FAINT) == [], path
    printed(page, "/plans/billing")
    expect(page.locator("svg.graph rect.box").first).to_be_visible()


def test_no_page_that_a_form_leads_to_prints_controls(far: FarOwner, let_in: Let) -> None:
    page = let_in()
    for _ in led_to(page):
        printed(page)
        page.emulate_media(media="screen")
