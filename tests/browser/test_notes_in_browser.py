"""What a page says that was done, and what it did not understand: as a browser shows it."""

from __future__ import annotations

from browsers import Let
from playwright.sync_api import Locator, Page, expect

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
