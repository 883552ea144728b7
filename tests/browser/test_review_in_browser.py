"""Work is looked at in a browser, and a plan's drawings: what only a browser shows of them."""

from __future__ import annotations

import pytest
from browsers import Let
from playwright.sync_api import Page, expect
from test_pages_in_browser import PHONE, violations
from test_typing_in_browser import end_sessions, sign_in

from far_servers import FarOwner
from patience import PATIENCE_S
from reviewed_work import Repo, with_repository

expect.set_options(timeout=PATIENCE_S * 1000)
LONG = 5000


@pytest.fixture
def repo(far: FarOwner) -> Repo:
    """`tests` has left work, and the plan's branch has some."""
    made = with_repository(far)
    files = {"kept.py": "".join(f"row = {at}  # {'long ' * 40}\n" for at in range(30)), "new.py": "\tx = 1\n"}
    made.leave("billing", "tests", 1, files)
    made.publish("billing", "model", {"model.py": "x = 1\n"})
    return made


def paths(far: FarOwner) -> list[str]:
    review = f"/tasks/{far.tasks()['tests'].id}"
    return [f"{review}/review", f"{review}/pull-request", "/plans/billing/review", "/plans/billing/merge"]


def choose(page: Page, file: str, place: str) -> None:
    section = page.locator("section.file").filter(has=page.get_by_role("heading", name=file))
    section.locator(f'input[value$="{place}"]').check()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_rule_is_broken_by_a_review(far: FarOwner, repo: Repo, let_in: Let, axe: str, scheme: str) -> None:
    # So high that nothing lies below what stays in sight: half a line is too small to be hit, until one scrolls.
    page = let_in(color_scheme=scheme, viewport={"width": 1280, "height": 4000})
    for path in [*paths(far), "/plans/billing"]:
        page.goto(path)
        assert violations(page, axe) == [], path
    page.goto(paths(far)[0])
    choose(page, "new.py", "+1")
    page.get_by_label("Comment on", exact=False).last.fill("Why?")
    page.get_by_role("button", name="Add comment").click()
    expect(page.get_by_label("Comment on new.py:1")).to_be_focused()
    assert violations(page, axe) == []


def test_a_review_fits_a_phone(far: FarOwner, repo: Repo, let_in: Let) -> None:
    page = let_in(viewport=PHONE)
    for path in [*paths(far), "/plans/billing"]:
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path


def test_work_goes_back_without_scripts(far: FarOwner, repo: Repo, let_in: Let) -> None:
    page = let_in(java_script_enabled=False)
    page.goto(f"/tasks/{far.tasks()['tests'].id}")
    page.get_by_role("link", name="Review its work").click()
    choose(page, "new.py", "+1")
    page.get_by_label("Comment on the line that you have chosen").fill("Spaces, please")
    page.get_by_role("button", name="Add comment").click()
    expect(page.get_by_label("Comment on new.py:1")).to_have_value("Spaces, please")
    page.get_by_label("Of all of it").fill("Nearly")
    page.get_by_role("button", name="Send back").click()
    expect(page.get_by_role("status").filter(has_text="Send back: done.")).to_be_visible()
    note = far.claim("again")["tests"].note
    assert "Nearly" in note and "new.py:1: x = 1\nSpaces, please" in note


@pytest.mark.parametrize("scripts", [True, False])
def test_back_leads_to_what_was_written(far: FarOwner, repo: Repo, let_in: Let, scripts: bool) -> None:
    page = let_in(java_script_enabled=scripts)
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(paths(far)[0])
    choose(page, "new.py", "+1")
    page.locator('textarea[name="new"]').fill("Spaces, please")
    page.get_by_role("button", name="Add comment").click()
    expect(page.get_by_label("Comment on new.py:1")).to_have_value("Spaces, please")
    page.get_by_role("link", name="Inbox").click()
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    page.go_back()
    expect(page.get_by_label("Comment on new.py:1")).to_have_value("Spaces, please")
    page.get_by_role("button", name="Send back").click()
    expect(page.get_by_role("status").filter(has_text="Send back: done.")).to_be_visible()
    assert "Spaces, please" in far.claim("again")["tests"].note


def test_a_review_outlives_the_session(far: FarOwner, repo: Repo, let_in: Let) -> None:
    page = let_in()
    page.goto(paths(far)[0])
    choose(page, "new.py", "+1")
    page.locator('textarea[name="new"]').fill("Spaces, please")
    page.get_by_role("button", name="Add comment").click()
    expect(page.get_by_label("Comment on new.py:1")).to_have_value("Spaces, please")
    end_sessions(far)
    expect(page.locator("#link")).to_contain_text("signed out; what you typed stays here")
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="sign in in a new tab").click()
    sign_in(opened.value)
    expect(opened.value.get_by_role("button", name="Send back")).to_be_visible()
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(page.locator("#link")).to_have_text("")
    page.get_by_role("button", name="Send back").click()
    expect(page.get_by_role("status").filter(has_text="Send back: done.")).to_be_visible()
    assert "Spaces, please" in far.claim("again")["tests"].note


def test_a_review_that_was_sent_too_late_is_given_back(far: FarOwner, repo: Repo, let_in: Let) -> None:
    page = let_in(java_script_enabled=False)
    page.goto(paths(far)[0])
    choose(page, "new.py", "+1")
    page.locator('textarea[name="new"]').fill("Spaces, please")
    page.get_by_label("Of all of it").fill("Nearly")
    end_sessions(far)
    page.get_by_role("button", name="Send back").click()
    written = page.locator("#written")
    expect(written).to_contain_text("Spaces, please")
    expect(written).to_contain_text("Nearly")
    sign_in(page)
    expect(page.get_by_role("button", name="Send back")).to_be_visible()


def test_lines_are_chosen_by_the_keyboard(far: FarOwner, repo: Repo, let_in: Let) -> None:
    page = let_in()
    page.goto(paths(far)[0])
    page.locator('input[name="at"]').first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.checked && document.activeElement.name") == "at"
    chosen = page.evaluate("document.activeElement.value")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "new", "all lines are one stop"
    page.keyboard.type("Said by keys")
    page.get_by_role("button", name="Add comment").press("Enter")
    expect(page.locator(f'textarea[name="text.{chosen}"]')).to_have_value("Said by keys")


def test_what_is_written_is_not_lost_by_a_slip(far: FarOwner, repo: Repo, let_in: Let) -> None:
    page = let_in()
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.dismiss()))
    page.goto(paths(far)[0])
    page.get_by_label("Of all of it").press_sequentially("Half a thought")
    page.get_by_role("link", name="Inbox").click()
    expect(page.get_by_label("Of all of it")).to_have_value("Half a thought")
    assert asked == ["beforeunload"]


def test_a_long_diff_is_one_page_that_is_laid_out_as_it_is_seen(
    far: FarOwner, repo: Repo, let_in: Let
) -> None:
    repo.leave("billing", "tests", 1, {"long.py": "".join(f"value_{at} = {at}\n" for at in range(LONG))})
    page = let_in()
    page.goto(paths(far)[0])
    expect(page.locator("label.line")).to_have_count(LONG)
    skipped = page.evaluate(
        "[...document.querySelectorAll('.block')].filter((one) => "
        "!one.firstElementChild.checkVisibility({contentVisibilityAuto: true})).length"
    )
    assert skipped > LONG / 100 / 2, "what is out of sight costs nothing"
    choose(page, "long.py", f"+{LONG - 1}")
    page.get_by_label("Comment on", exact=False).last.fill("At its end")
    page.get_by_role("button", name="Add comment").click()
    added = page.get_by_label(f"Comment on long.py:{LONG - 1}")
    expect(added).to_be_focused()
    expect(added).to_be_in_viewport()


def test_a_graph_is_walked_by_the_keyboard_and_follows_what_happens(
    far: FarOwner, repo: Repo, let_in: Let
) -> None:
    from muster.model import commands as c

    page = let_in()
    page.goto("/plans/billing")
    expect(page.locator("#link")).to_have_text("live")
    graph = page.get_by_role("region", name="Graph of tasks")
    expect(graph.get_by_role("link", name="other: Something else (paused)")).to_have_count(0)
    far.do(c.Pause(task_id=far.tasks()["other"].id, actor="user:ann"))
    expect(graph.get_by_role("link", name="other: Something else (paused)")).to_be_visible()
    graph.get_by_role("link", name="model: Invoice model (completed)").press("Enter")
    page.wait_for_url(f"**/tasks/{far.tasks()['model'].id}")
