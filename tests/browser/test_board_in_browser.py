"""A board whose cards are dragged, the palette, and what an agent says, followed or not: as a browser does it."""

from __future__ import annotations

from browsers import Let
from playwright.sync_api import Page, Route, expect
from test_pages_in_browser import ask, violations

from far_servers import FarOwner
from muster.model import commands as c
from patience import PATIENCE_S, until

expect.set_options(timeout=PATIENCE_S * 1000)


def drag(page: Page, name: str, column: str) -> None:
    """As a hand does it: it takes the card, moves a little, then to the column."""
    card = page.locator("li.card").filter(has=page.get_by_role("link", name=name, exact=True))
    target = page.get_by_role("region", name=column).bounding_box()
    card.hover(position={"x": 5, "y": 5})
    held = card.bounding_box()
    assert held is not None and target is not None
    page.mouse.down()
    page.mouse.move(held["x"] + 12, held["y"] + 12)
    page.mouse.move(target["x"] + target["width"] / 2, target["y"] + target["height"] / 2, steps=4)
    page.mouse.up()


def board(let_in: Let) -> Page:
    """All of it in the window: nothing is scrolled in the middle of a drag."""
    page = let_in(viewport={"width": 1280, "height": 1600})
    page.goto("/tasks?view=board")
    expect(page.locator("#link")).to_have_text("live")
    return page


FIRST_MOVE_IS_LATE = """() => {
    const real = window.fetch;
    const late = new Promise((answer) => (window.answer_first = answer));
    let moves = 0;
    window.fetch = async (address, options) => {
        const answer = await real(address, options);
        if (options?.method === "POST" && moves++ === 0) await late;
        return answer;
    };
}"""


PAGE_IS_LATE = """() => {
    const real = window.fetch;
    const late = new Promise((answer) => (window.show_page = answer));
    const told = new Promise((answer) => (window.tell_move = answer));
    let pages = 0;
    window.moves = 0;
    window.fetch = async (address, options) => {
        const answer = await real(address, options);
        if (options?.method === "POST" && ++window.moves === 2) await told;
        else if (options?.method !== "POST" && ++pages === 1) {
            const text = await answer.text();
            window.page_waits = true;
            await late;
            answer.text = async () => {
                setTimeout(() => (window.page_came = true));
                return text;
            };
        }
        return answer;
    };
}"""


def cards(page: Page, column: str) -> list[str]:
    links = page.get_by_role("region", name=column).locator("li.card").get_by_role("link")
    return links.all_inner_texts()


def test_a_card_is_moved_by_a_command_or_says_why_not(far: FarOwner, let_in: Let, axe: str) -> None:
    page = board(let_in)
    page.evaluate("window.same = true")
    drag(page, "billing/other", "Paused")
    expect(page.get_by_role("region", name="Paused")).to_contain_text("billing/other")
    expect(page.get_by_role("region", name="Waiting")).not_to_contain_text("billing/other")
    until(lambda: far.tasks()["other"].status == "PAUSED", "the server has paused it")
    drag(page, "billing/other", "At work")
    told = page.locator("#moved")
    expect(told).to_contain_text(
        "billing/other does not go to 'At work': an agent takes it when it is its turn"
    )
    expect(page.get_by_role("region", name="Paused")).to_contain_text("billing/other")
    assert "billing/other" not in cards(page, "At work")
    assert violations(page, axe) == []
    drag(page, "billing/tests", "Waiting")
    expect(page.get_by_role("region", name="Waiting")).to_contain_text("billing/tests")
    assert page.evaluate("window.same")
    drag(page, "billing/tests", "Cancelled")
    page.wait_for_url("**/cancel")
    assert far.tasks()["tests"].status == "PENDING", "what ends something asks first"
    page.go_back()
    page.locator("li.card").get_by_role("link", name="billing/tests").focus()
    page.keyboard.press("m")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Paused")).to_contain_text("billing/tests")


def test_no_card_moves_for_what_is_told(far: FarOwner, let_in: Let) -> None:
    page = board(let_in)
    before = page.locator(".board").bounding_box()
    drag(page, "billing/other", "At work")
    expect(page.locator("#moved")).to_contain_text("billing/other does not go to 'At work'")
    expect(page.locator("#moved")).to_be_in_viewport()
    assert page.locator(".board").bounding_box() == before, (
        "whoever is about to take a card takes another one"
    )


def test_a_late_answer_does_not_hide_what_a_later_move_was_told(far: FarOwner, let_in: Let) -> None:
    page = board(let_in)
    page.evaluate(FIRST_MOVE_IS_LATE)
    drag(page, "billing/other", "Paused")
    expect(page.get_by_role("region", name="Paused")).to_contain_text("billing/other")
    drag(page, "billing/other", "At work")
    told = page.locator("#moved")
    expect(told).to_contain_text("billing/other does not go to 'At work'")
    page.evaluate("window.answer_first()")
    expect(told).to_contain_text("billing/other is asked to go to Paused.")
    expect(told).to_contain_text("billing/other does not go to 'At work'")


def test_a_page_from_before_a_move_does_not_take_its_card_away(far: FarOwner, let_in: Let) -> None:
    page = board(let_in)
    page.evaluate(PAGE_IS_LATE)
    far.do(c.Retry(task_id=far.tasks()["tests"].id, actor="ada"))
    page.wait_for_function("() => window.page_waits")
    drag(page, "billing/other", "Paused")
    until(lambda: far.tasks()["other"].status == "PAUSED", "the server has paused it")
    drag(page, "billing/other", "At work")
    page.wait_for_function("() => window.moves == 2")
    page.evaluate("window.show_page()")
    page.wait_for_function("() => window.page_came")
    assert "billing/other" in cards(page, "At work"), "no answer yet"
    page.evaluate("window.tell_move()")
    expect(page.locator("#moved")).to_contain_text("billing/other does not go to 'At work'")
    assert cards(page, "Paused") == ["billing/other"]
    expect(page.get_by_role("region", name="Waiting")).to_contain_text("billing/tests")


def test_a_card_goes_back_where_its_server_is_not_reached(far: FarOwner, let_in: Let) -> None:
    page = board(let_in)
    page.context.set_offline(True)
    drag(page, "billing/other", "Paused")
    expect(page.locator("#moved")).to_have_text(
        "The server did not answer. What it has done is shown as soon as it does."
    )
    expect(page.get_by_role("region", name="Waiting")).to_contain_text("billing/other")
    page.context.set_offline(False)
    expect(page.locator("#link")).to_have_text("live")
    drag(page, "billing/other", "Paused")
    expect(page.get_by_role("region", name="Paused")).to_contain_text("billing/other")


def test_the_palette_finds_pages_actions_and_tasks(far: FarOwner, let_in: Let, axe: str) -> None:
    number = far.tasks()["other"].id
    page = let_in()
    page.goto(f"/tasks/{number}")
    page.keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Commands")
    expect(palette.get_by_role("option", name="Inbox")).to_be_visible()
    assert violations(page, axe) == []
    page.keyboard.type("pau")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("paused")
    page.keyboard.press("Control+k")
    page.keyboard.type("billing/model")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/tasks/{far.tasks()['model'].id}")
    page.keyboard.press("Control+k")
    page.keyboard.type("a")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    expect(palette).to_be_hidden()
    page.goto("/find?q=billing")
    page.wait_for_url("**/plans/billing")
    page.goto("/find?q=billing/no")
    page.wait_for_url("**/tasks?missed=**")
    expect(page.locator("main")).to_contain_text("there is no task 'billing/no'")


def test_what_is_typed_after_the_key_of_the_palette_is_its(far: FarOwner, let_in: Let) -> None:
    page = let_in()
    late: list[Route] = []
    opened: list[str] = []
    page.route("**/*.js", lambda route: late.append(route) if opened else route.continue_())
    page.goto("/tasks")
    opened.append(page.url)  # a script that is asked for from now on comes after what is typed
    page.keyboard.press("Control+k")
    page.keyboard.type("billing/model")
    for route in late:
        route.continue_()
    expect(page.get_by_role("combobox", name="Command, task or plan")).to_have_value("billing/model")


def test_the_end_of_a_transcript_is_followed_until_it_is_not(far: FarOwner, let_in: Let) -> None:
    ask(far)
    number = far.tasks()["api"].id
    far.log(number, 1, b"".join(b"line %d\n" % line for line in range(500)))
    page = let_in()
    page.goto(f"/tasks/{number}")
    button = page.get_by_role("button", name="Follow")
    expect(button).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#link")).to_have_text("live")
    said = "document.querySelector('ol.transcript')"
    below = f"{said}.scrollHeight - {said}.clientHeight - {said}.scrollTop"
    assert page.evaluate(below) <= 1
    page.keyboard.press("f")
    expect(button).to_have_attribute("aria-pressed", "false")
    far.log(number, 1, b"the last\n", offset=sum(len(b"line %d\n" % line) for line in range(500)))
    expect(page.get_by_label("Transcript", exact=True)).to_contain_text("the last")
    assert page.evaluate(below) > 1, "off is off, also at the end"
    page.reload()
    expect(button).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("f")
    expect(button).to_have_attribute("aria-pressed", "true")
    assert page.evaluate(below) <= 1
