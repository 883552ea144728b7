"""Pages on days that are not like others: two tabs, no network, 5,000 tasks, 100,000 lines, a printer."""

from __future__ import annotations

import re

from browsers import Let
from playwright.sync_api import Page, expect

from far_servers import FarOwner
from muster.model import commands as c
from muster.web.pages.tasks import ROWS
from patience import PATIENCE_S

expect.set_options(timeout=PATIENCE_S * 1000)
ELEMENTS_MAX = 4000
"""Of a page, however much there is to be shown."""


def live(page: Page, path: str) -> None:
    page.goto(path)
    expect(page.locator("#link")).to_have_text("live")


def elements(page: Page) -> int:
    number: int = page.evaluate("document.querySelectorAll('*').length")
    return number


def test_two_tabs_show_the_same_also_after_a_while_without_network(far: FarOwner, let_in: Let) -> None:
    number = far.tasks()["other"].id
    one = let_in()
    two = one.context.new_page()
    live(one, f"/tasks/{number}")
    live(two, "/tasks")
    one.get_by_role("button", name="Pause").click()
    expect(two.locator("tbody")).to_contain_text("paused")
    two.get_by_role("link", name="billing/other").click()
    two.get_by_role("button", name="Resume").click()
    expect(one.locator("h1")).to_contain_text("ready")
    live(two, "/inbox")
    one.context.set_offline(True)
    far.do(c.Ask(task_id=far.tasks()["api"].id, epoch=1, question="Which schema?"))
    for page in (one, two):
        expect(page.locator("#link")).to_have_text(re.compile("stale since"))
    one.context.set_offline(False)
    for page in (one, two):
        expect(page.locator("#link")).to_have_text("live")
    expect(two.get_by_label("Your answer to billing/api")).to_be_visible()


def test_a_page_that_is_left_is_not_called_stale(far: FarOwner, let_in: Let) -> None:
    """It loses its stream a moment before it is gone."""
    page = let_in()
    for path in ("/inbox", "/tasks", "/inbox"):
        live(page, "/tasks")
        page.evaluate("""() => {
          const before = () => sessionStorage.getItem("said") ?? "";
          const said = (text) => sessionStorage.setItem("said", `${before()}${text};`);
          new MutationObserver(() => said(document.getElementById("link").textContent))
            .observe(document.getElementById("link"), {subtree: true, childList: true, attributes: true});
          addEventListener("pagehide", () => said("gone"));
        }""")
        live(page, path)
    assert page.evaluate("sessionStorage.getItem('said')") == "gone;gone;gone;"


def test_five_thousand_tasks_are_shown_a_part_at_a_time_and_live(far: FarOwner, let_in: Let) -> None:
    for begin in range(0, 5000, 1000):
        specs = tuple(c.Spec(title=f"task {at}", key=f"t{at}") for at in range(begin, begin + 1000))
        far.do(c.Enqueue(plan="large", source=None, tasks=specs, actor="user:ann"))
    number = far.tasks()["t0"].id
    page = let_in()
    for path in ("/", "/inbox", "/plans/large", "/tasks?plan=large&view=board", "/tasks?plan=large"):
        live(page, path)
        assert elements(page) < ELEMENTS_MAX, path
    expect(page.get_by_role("link", name="More")).to_be_visible()
    page.evaluate("window.scrollTo(0, 900)")
    page.evaluate("window.same = true")
    far.do(c.Pause(task_id=number, actor="user:ann"))
    expect(page.locator("tbody tr").first).to_contain_text("paused")
    assert page.evaluate("[window.same, window.scrollY]") == [True, 900]
    page.emulate_media(media="print", reduced_motion="reduce")
    for hidden in (page.get_by_role("navigation"), page.locator("footer"), page.locator("form.filter")):
        expect(hidden).to_be_hidden()
    expect(page.locator("tbody tr").first).to_be_visible()
    assert page.pdf()[:5] == b"%PDF-"
    assert page.evaluate("document.getAnimations().length") == 0


def test_the_way_to_more_comes_with_the_first_task_too_many(far: FarOwner, let_in: Let) -> None:
    def add(first: int, last: int) -> None:
        specs = tuple(c.Spec(title=f"task {at}", key=f"t{at}") for at in range(first, last))
        far.do(c.Enqueue(plan="large", source=None, tasks=specs, actor="user:ann"))

    add(0, ROWS)
    page = let_in()
    live(page, "/tasks?plan=large")
    expect(page.locator("tbody tr")).to_have_count(ROWS)
    expect(page.get_by_role("link", name="More")).to_have_count(0)
    add(ROWS, ROWS + 1)
    page.get_by_role("link", name="500 at a time").click()
    expect(page.locator("tbody tr")).to_have_count(ROWS + 1)


def test_a_hundred_thousand_lines_are_shown_by_their_end_and_do_not_move(far: FarOwner, let_in: Let) -> None:
    number = far.tasks()["api"].id
    data = b"".join(b"line %d: what an agent says while it works\n" % at for at in range(100_000))
    for offset in range(0, len(data), 250_000):
        far.log(number, 1, data[offset : offset + 250_000], offset=offset)
    page = let_in()
    live(page, f"/tasks/{number}")
    transcript = page.get_by_label("Transcript", exact=True)
    expect(transcript).to_contain_text("line 99999:")
    assert elements(page) < ELEMENTS_MAX
    page.evaluate("document.querySelector('ol.transcript').scrollTop = 300")
    far.log(number, 1, b"the very last\n", offset=len(data))
    expect(transcript).to_contain_text("the very last")
    assert page.evaluate("document.querySelector('ol.transcript').scrollTop") == 300
    page.get_by_role("link", name="From its beginning").click()
    expect(transcript).to_contain_text("line 0:")
    assert elements(page) < ELEMENTS_MAX
    # By its key: a pointer that comes with the scrolling may miss it, while rows above get the height they need.
    page.get_by_role("link", name="More").press("Enter")
    expect(transcript).not_to_contain_text("line 0:")
