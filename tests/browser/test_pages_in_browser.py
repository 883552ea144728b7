"""What only a browser shows: live patches, focus, keyboard, contrast, width."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from browsers import Let
from playwright.sync_api import Page, expect

from far_servers import FarOwner
from muster.model import commands as c
from muster.model.states import ErrorKind
from muster.web.pages.plans import WHOLE_MAX
from patience import PATIENCE_S

MS = PATIENCE_S * 1000
PHONE = {"width": 360, "height": 740}
expect.set_options(timeout=MS)


def ask(far: FarOwner, question: str = "Which schema?") -> int:
    """The running task asks, and waits."""
    number: int = far.tasks()["api"].id
    far.do(c.Ask(task_id=number, epoch=1, question=question))
    return number


def paths(far: FarOwner) -> list[str]:
    tasks = far.tasks()
    told = [f"/tasks/{tasks[key].id}" for key in ("api", "tests", "docs")]
    told += [f"/tasks/{tasks['tests'].id}/transcript", f"/tasks/{tasks['docs'].id}/cancel"]
    told += ["/crew", "/audit", "/audit/verify", "/settings", "/settings/token-add"]
    told += ["/tasks?view=board", "/bulk/cancel?plan=billing", f"/tasks/{tasks['other'].id}/edit"]
    return ["/", "/tasks", "/inbox", "/plans", "/plans/billing", "/plans/billing/cancel", "/nowhere", *told]


def violations(page: Page, axe: str) -> list[Any]:
    page.evaluate(axe)
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    found = page.evaluate("(tags) => axe.run({runOnly: tags})", tags)
    return [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found["violations"]]


def led_to(page: Page) -> Iterator[str]:
    """What only a form or a key leads to."""
    page.goto("/settings/token-add")
    page.get_by_label("What it is for").fill("a phone " * 12)
    page.get_by_label("Whose it is").fill("ada")
    page.get_by_label("For how many hours").fill("9.6")
    page.get_by_role("button", name="Make a token").click()
    expect(page.locator("main")).to_contain_text("It is shown this once")
    yield "a new token"
    page.goto("/bulk/skip?plan=billing")
    page.get_by_role("button", name="Skip all").click()
    expect(page.locator("h1")).to_contain_text("Skipped: ")
    yield "what has become of many"
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Commands")).to_be_visible()
    yield "the palette"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_rule_of_accessibility_is_broken(far: FarOwner, let_in: Let, axe: str, scheme: str) -> None:
    ask(far)
    page = let_in(color_scheme=scheme)
    for path in [*paths(far), "/enter"]:
        page.goto(path)
        assert violations(page, axe) == [], path
    for what in led_to(page):
        assert violations(page, axe) == [], what


def add_large(far: FarOwner) -> list[str]:
    """Paths of a plan that is shown a part at a time: three tasks are done, and half wait for others."""
    tasks = tuple(
        c.Spec(
            title=f"Step {number}",
            key=f"s{number}",
            epic=f"Part {number // 50} of what there is to do",
            agent="ghost" if number >= 3 else None,
            depends_on=(f"s{number - 9}",) if number % 2 and number > 9 else (),
        )
        for number in range(WHOLE_MAX + 1)
    )
    far.do(c.Enqueue(plan="large", source=None, tasks=tasks, actor="user:ann"))
    for job in far.claim("large").values():
        far.begin(job)
        far.do(c.Complete(task_id=job.task_id, epoch=1, result=None, exit_code=0))
    return ["/plans/large", "/plans/large?graph=yes"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_rule_is_broken_by_a_large_plan(far: FarOwner, let_in: Let, axe: str, scheme: str) -> None:
    page = let_in(color_scheme=scheme)
    plain, drawn = add_large(far)
    page.goto(plain)
    expect(page.get_by_text("The chain that decides")).to_be_visible()
    assert violations(page, axe) == []
    page.get_by_role("link", name="Draw what waits for what").click()
    page.wait_for_url(f"**{drawn}")
    expect(page.get_by_role("region", name="Graph of tasks")).to_be_visible()
    assert violations(page, axe) == []
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_a_phone_shows_all_of_it_without_scrolling_sideways(far: FarOwner, let_in: Let) -> None:
    ask(far, "a-very-long-name/" * 30)
    page = let_in(viewport=PHONE)
    for path in paths(far):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path
    for what in led_to(page):
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], what


def test_what_happens_is_on_the_page_without_loading_it_again(far: FarOwner, let_in: Let) -> None:
    number = far.tasks()["other"].id
    page = let_in()
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url) if one.resource_type == "fetch" else None)
    page.goto(f"/tasks/{number}")
    expect(page.locator("#link")).to_have_text("live")
    assert asked == [], "nothing has happened since it was drawn"
    page.evaluate("window.same = true")
    far.do(c.Pause(task_id=number, actor="user:ann"))
    expect(page.locator("h1")).to_contain_text("paused")
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert page.evaluate("window.same")


def test_what_an_agent_prints_is_added_as_it_comes(far: FarOwner, let_in: Let) -> None:
    number = far.tasks()["api"].id
    page = let_in()
    page.goto(f"/tasks/{number}")
    expect(page.locator("#link")).to_have_text("live")
    far.log(number, 1, b"first line\nsecond ")
    transcript = page.get_by_label("Transcript", exact=True)
    expect(transcript).to_contain_text("second")
    far.log(number, 1, b"line\n<b>third</b>\n", offset=18)
    expect(transcript).to_contain_text("<b>third</b>")
    assert transcript.inner_text().split("\n") == ["first line", "second line", "<b>third</b>"]


def begin_again(far: FarOwner, number: int, epoch: int) -> None:
    far.do(c.Fail(task_id=number, epoch=epoch, kind=ErrorKind.CRASH, message="exit code 1"))
    far.do(c.Retry(task_id=number, actor="user:ann"))
    far.begin(far.claim(f"after {epoch}")["api"])


def test_the_next_attempt_speaks_on_the_page_that_is_open(far: FarOwner, let_in: Let) -> None:
    number = far.tasks()["api"].id
    far.log(number, 1, b"".join(b"of the first: %d\n" % line for line in range(200)))
    page = let_in()
    page.goto(f"/tasks/{number}")
    expect(page.locator("#link")).to_have_text("live")
    transcript = page.get_by_label("Transcript", exact=True)
    expect(transcript).to_contain_text("of the first: 199")
    begin_again(far, number, 1)
    expect(page.get_by_role("heading", name="What attempt 2 said and did")).to_be_visible()
    far.log(number, 2, b"of the second\n")
    expect(transcript).to_have_text("of the second")
    button = page.get_by_role("button", name="Follow")
    expect(button).to_have_attribute("aria-pressed", "true")
    button.click()
    begin_again(far, number, 2)
    expect(page.locator("#link")).to_have_text(re.compile("1 not shown"))
    expect(transcript).to_have_text("of the second")  # who reads is not taken elsewhere
    button.click()
    far.log(number, 3, b"of the third\n")
    expect(page.get_by_role("heading", name="What attempt 3 said and did")).to_be_visible()
    expect(transcript).to_have_text("of the third")


def test_nothing_is_taken_from_under_who_types(far: FarOwner, let_in: Let) -> None:
    ask(far)
    page = let_in()
    page.goto("/inbox")
    expect(page.locator("#link")).to_have_text("live")
    answer = page.get_by_label("Your answer to billing/api")
    answer.press_sequentially("half an ans")
    far.do(c.Enqueue(plan="late", source=None, tasks=(c.Spec(title="Late", key="late"),), actor="user:ann"))
    late = far.tasks()["late"].id
    far.do(c.Pause(task_id=late, actor="user:ann"))
    far.do(c.Skip(task_id=far.tasks()["tests"].id, actor="user:ann"))
    expect(page.get_by_role("link", name="billing/tests")).to_have_count(0)
    assert answer.input_value() == "half an ans"
    assert answer.evaluate("(it) => it === document.activeElement && it.selectionStart === 11")
    answer.press_sequentially("wer")
    page.get_by_role("button", name="Answer").click()
    expect(page.get_by_role("status").filter(has_text="Answer: done.")).to_be_visible()
    assert far.tasks()["api"].status == "PENDING"


def test_rows_stay_where_they_are_while_somebody_points_at_them(far: FarOwner, let_in: Let) -> None:
    page = let_in()
    page.goto("/tasks")
    expect(page.locator("#link")).to_have_text("live")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(5)
    rows.first.hover()
    far.do(c.Enqueue(plan="late", source=None, tasks=(c.Spec(title="Late", key="late"),), actor="user:ann"))
    expect(page.locator("#link")).to_have_text(re.compile("1 not shown"))
    expect(rows).to_have_count(5)
    page.mouse.move(0, 0)
    expect(rows).to_have_count(6)


def test_a_page_comes_back_after_its_server(far: FarOwner, let_in: Let) -> None:
    page = let_in(timezone_id="Asia/Kolkata", locale="en-IN")
    page.goto("/tasks")
    expect(page.locator("#link")).to_have_text("live")
    page.evaluate("window.same = true")
    before = datetime.now(UTC).replace(microsecond=0)
    far.stop()
    badge = page.locator("#link")
    expect(badge).to_have_text(re.compile(r"^stale since \d\d:\d\d:\d\d UTC$"))
    told = datetime.strptime(badge.inner_text().split()[2], "%H:%M:%S").replace(tzinfo=UTC)
    apart_s = (told - before).total_seconds() % 86_400
    assert min(apart_s, 86_400 - apart_s) < 600, "the zone of all times on a page, not that of the browser"
    far.start()
    far.do(c.Pause(task_id=far.tasks()["other"].id, actor="user:ann"))
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator("tbody")).to_contain_text("paused")
    assert page.evaluate("window.same"), "and it is the same page"


def test_without_scripts_everything_but_the_live_view_works(far: FarOwner, let_in: Let) -> None:
    ask(far)
    page = let_in(java_script_enabled=False)
    page.get_by_label("Your answer to billing/api").fill("the new one")
    page.get_by_role("button", name="Answer").click()
    expect(page.get_by_role("status").filter(has_text="Answer: done.")).to_be_visible()
    page.get_by_role("link", name="Tasks").click()
    page.get_by_label("waiting").check()
    page.get_by_role("button", name="Show").click()
    assert "status=pending" in page.url
    page.get_by_role("link", name="billing/other").click()
    page.get_by_role("link", name="Cancel…").click()
    page.get_by_label("Why?").fill("not needed")
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("h1")).to_contain_text("cancelled")
    assert (far.tasks()["api"].status, far.tasks()["other"].status) == ("PENDING", "CANCELLED")
    page.get_by_role("button", name="Sign out").click()
    page.goto("/tasks")
    expect(page.get_by_role("heading")).to_have_text("muster")


@pytest.mark.parametrize("scripts", [True, False])
def test_light_or_dark_is_chosen_and_kept(far: FarOwner, let_in: Let, axe: str, scripts: bool) -> None:
    page = let_in(color_scheme="light", java_script_enabled=scripts)
    page.goto("/tasks?status=failed")
    page.get_by_role("button", name="Dark", exact=True).click()
    assert page.url.endswith("/tasks?status=failed")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.goto("/plans")
    expect(page.locator("body")).to_have_css("background-color", "rgb(20, 24, 29)")
    if scripts:
        assert violations(page, axe) == []
    page.get_by_role("button", name="As the system").click()
    expect(page.locator("body")).to_have_css("background-color", "rgb(255, 255, 255)")


def test_keys_do_what_the_page_does(far: FarOwner, let_in: Let, axe: str) -> None:
    number = far.tasks()["other"].id
    page = let_in()
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/tasks")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == "billing/api"
    page.keyboard.press("/")
    page.keyboard.press("g")
    page.keyboard.press("p")
    assert page.url.endswith("/tasks"), "who types in a field presses no key of ours"
    page.goto(f"/tasks/{number}")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    assert violations(page, axe) == []
    dialog.get_by_role("button", name="Do it: pause it, or resume it").click()
    expect(page.locator("h1")).to_contain_text("paused")
    page.keyboard.press("c")
    page.wait_for_url(f"**/tasks/{number}/cancel")
    page.go_back()
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/tasks?status=failed")
    page.keyboard.press("a")
    page.wait_for_url("**/tasks")
    page.goto(f"/tasks/{number}")
    page.keyboard.press("?")
    dialog.get_by_label("single keys do these things").uncheck()
    dialog.get_by_role("button", name="Close").click()
    page.keyboard.press("c")
    assert page.url.endswith(f"/tasks/{number}")


def test_keys_scroll_what_an_agent_says(far: FarOwner, let_in: Let) -> None:
    number = far.tasks()["api"].id
    far.log(number, 1, b"".join(b"line %d\n" % line for line in range(500)))
    page = let_in()
    page.goto(f"/tasks/{number}")
    expect(page.get_by_label("Transcript", exact=True)).to_contain_text("line 499")
    said = "document.querySelector('ol.transcript')"
    at = f"[{said}.scrollTop, {said}.scrollHeight - {said}.clientHeight]"
    end, most = page.evaluate(at)
    assert end >= most - 1, "what was said last is what one comes for"
    page.keyboard.press("K")
    page.keyboard.press("K")
    up, _ = page.evaluate(at)
    assert 0 < up < most
    page.keyboard.press("J")
    assert page.evaluate(at)[0] > up
    page.keyboard.press("f")
    end, most = page.evaluate(at)
    assert end >= most - 1


def test_all_of_a_page_is_reached_by_the_keyboard(far: FarOwner, let_in: Let) -> None:
    page = let_in()
    page.goto(f"/tasks/{far.tasks()['other'].id}")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    focused = page.evaluate("document.activeElement.textContent")
    assert focused in {"Pause", "Cancel…"}, focused


def test_more_pages_than_a_browser_has_connections_are_all_live(far: FarOwner, let_in: Let) -> None:
    first = let_in()
    pages = [first, *(first.context.new_page() for _ in range(7))]
    for page in pages:
        page.goto("/tasks")
        expect(page.locator("#link")).to_have_text("live")
    far.do(c.Pause(task_id=far.tasks()["other"].id, actor="user:ann"))
    for page in pages:
        expect(page.locator("tbody")).to_contain_text("paused")
    for page in pages[:4]:
        page.close()
    far.do(c.Resume(task_id=far.tasks()["other"].id, actor="user:ann"))
    for page in pages[4:]:
        expect(page.locator("tbody")).not_to_contain_text("paused")
