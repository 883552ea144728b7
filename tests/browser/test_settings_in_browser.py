"""What is set is seen, by whom it may be, and what is typed for it stays."""

from __future__ import annotations

from browsers import Let
from playwright.sync_api import expect
from test_typing_in_browser import end_sessions, sign_in

from far_servers import FarOwner
from muster.model import commands as c
from muster.model.access import Role
from patience import PATIENCE_S

expect.set_options(timeout=PATIENCE_S * 1000)


def test_settings_follow_what_is_set_and_who_may_see_it(far: FarOwner, let_in: Let) -> None:
    page = let_in()
    page.goto("/settings")
    expect(page.locator("#link")).to_have_text("live")
    page.evaluate("window.same = true")
    far.do(c.SetMember(name="ann", role=Role.OWNER, actor="user:ann"))
    expect(page.get_by_role("link", name="Remove ann…")).to_be_visible()
    far.do(c.SetMember(name="ada", role=Role.VIEWER, actor="user:ann"))
    expect(page.locator(".who")).to_contain_text("user:ada, VIEWER")
    expect(page.get_by_role("heading", name="Tokens")).to_have_count(0)
    expect(page.locator("main a.button")).to_have_count(0)
    far.do(c.SetMember(name="ada", role=Role.OWNER, actor="user:ann"))
    expect(page.get_by_role("link", name="Make a token…")).to_be_visible()
    assert page.evaluate("window.same")


def test_what_is_typed_to_be_set_outlives_the_session(far: FarOwner, let_in: Let) -> None:
    page = let_in()
    page.goto("/settings/token-add")
    page.get_by_label("What it is for").fill("a phone")
    end_sessions(far)
    expect(page.locator("#link")).to_contain_text("signed out; what you typed stays here")
    assert page.get_by_label("What it is for").input_value() == "a phone"


def test_a_form_that_was_refused_is_found_again_by_the_door(far: FarOwner, let_in: Let) -> None:
    page = let_in()
    page.goto("/settings/plan-budget?id=billing")
    asks = page.locator("h1").inner_text()
    page.locator("form.confirm input:not([type=hidden])").fill("nothing")
    page.locator("form.confirm button").click()
    expect(page.get_by_role("alert")).to_be_visible()
    end_sessions(far)
    page.wait_for_url(f"{far.url}/enter?back=*")
    sign_in(page)
    expect(page.locator("h1")).to_have_text(asks)
