"""A form whose answer cannot be had again, sent by hands that are quick."""

from __future__ import annotations

import time

from browsers import Let
from playwright.sync_api import Route, expect

from far_servers import FarOwner
from muster.engine.batch import drive

TWICE = "(it) => { it.click(); setTimeout(() => it.click(), 50); }"


def held_back(route: Route) -> None:
    """Long enough for another click, 50 ms later.  Where the machine is slower, there is none: nothing fails."""
    time.sleep(0.5)
    route.continue_()


def test_a_double_click_shows_the_one_secret_and_a_reload_says_that_it_was_sent(
    far: FarOwner, let_in: Let
) -> None:
    page = let_in()
    page.goto("/settings/token-add")
    page.get_by_label("What it is for").fill("ci")
    page.get_by_label("Whose it is").fill("ada")
    page.route("**/settings/token-add", held_back)
    sent: list[str] = []
    page.on("request", lambda one: sent.append(one.url) if one.method == "POST" else None)
    page.get_by_role("button", name="Make a token").evaluate(TWICE)
    expect(page.locator("pre")).to_contain_text("mst_")
    assert len(sent) == 1
    page.unroute_all()
    page.reload()
    expect(page.locator("h1")).to_have_text("Make a token: sent already")
    assert [token.name for token in drive(far.store.reads.tokens())].count("ci") == 1
    page.get_by_role("link", name="Make a token…").click()
    expect(page.get_by_label("What it is for")).to_be_visible()
