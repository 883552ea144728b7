"""What a page says that was done, and what it did not understand: as a browser shows it."""

from __future__ import annotations

from browsers import Let
from playwright.sync_api import Locator, Page, expect
from test_board_in_browser import board, drag
from test_pages_in_browser import violations

from far_servers import FarOwner
from muster.model import commands as c


def note(page: Page, text: str) -> Locator:
    return page.get_by_role("status").filter(has_text=text)


def press(page: Page, label: str) -> None:
    page.get_by_role("button", name=label, exact=True).click()
    expect(note(page, f"{label}: done.")).to_be_visible()


def test_what_was_done_is_said_once(far: FarOwner, let_in: Let) -> None:
    page = let_in()
    address = f"/tasks/{far.tasks()['other'].id}"
    page.goto(f"{address}?attempt=&tag=a%20b")
    press(page, "Pause")
    assert page.url.endswith(f"{address}?attempt=&tag=a+b"), "all else of it stays"
    page.goto("/plans/billing")
    page.go_back()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    expect(note(page, "done.")).to_have_count(0)
    press(page, "Resume")
    page.reload()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(note(page, "done.")).to_have_count(0)


def test_what_was_done_is_said_no_longer_than_it_is_so(far: FarOwner, let_in: Let) -> None:
    page = let_in()
    number = far.tasks()["other"].id
    page.goto(f"/tasks/{number}")
    expect(page.locator("#link")).to_have_text("live")
    press(page, "Pause")
    page.evaluate("window.same = true")
    far.do(c.Resume(task_id=number, actor="user:bob"))
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(note(page, "done.")).to_have_count(0)
    page.goto("/plans/billing")
    press(page, "Pause")
    far.do(c.ResumePlan(plan="billing", actor="user:bob"))
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(note(page, "done.")).to_have_count(0)


def test_what_was_not_understood_is_seen_and_left_out(far: FarOwner, let_in: Let, axe: str) -> None:
    page = let_in()
    page.goto("/tasks?status=fialed&plan=nope&tag=never")
    expect(note(page, "Not understood, and left out: status=fialed")).to_be_visible()
    expect(note(page, "There is no plan nope.")).to_be_visible()
    expect(note(page, "No task has the tag never.")).to_be_visible()
    assert violations(page, axe) == []
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**plan=nope**")
    expect(note(page, "Not understood")).to_have_count(0)
    assert page.get_by_label("Plan").input_value() == "nope"
    page.get_by_label("Plan").select_option("billing")
    page.get_by_label("Tag").fill("")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("link", name="billing/other")).to_be_visible()


def test_the_palette_says_that_no_task_is_called_so(far: FarOwner, let_in: Let, axe: str) -> None:
    page = let_in()
    page.keyboard.press("Control+k")
    page.keyboard.type("no such title")
    page.keyboard.press("Enter")
    expect(note(page, "Not found: there is no task 'no such title'")).to_be_visible()
    expect(page.get_by_role("link", name="billing/other")).to_be_visible()
    assert violations(page, axe) == []


def test_a_finished_card_is_not_dragged_into_work_again(far: FarOwner, let_in: Let, axe: str) -> None:
    number = far.tasks()["other"].id
    far.do(c.CompleteByPerson(task_id=number, actor="user:ann"))
    page = board(let_in)
    drag(page, "billing/other", "Waiting")
    page.wait_for_url(f"**/tasks/{number}/retry")
    expect(page.get_by_text("It is done. Do it again?")).to_be_visible()
    assert violations(page, axe) == []
    assert far.tasks()["other"].status == "COMPLETED"
