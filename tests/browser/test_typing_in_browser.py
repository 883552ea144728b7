"""What somebody types stays under their hands, whatever happens meanwhile."""

from __future__ import annotations

import re

import browsers
import pytest
from browsers import Let
from playwright.sync_api import Page, expect

from far_servers import SECRET, FarOwner
from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.access import BROWSER, Role
from patience import PATIENCE_S

expect.set_options(timeout=PATIENCE_S * 1000)


def asking(far: FarOwner, *keys: str) -> dict[str, int]:
    """Tasks of `shop`, each of which has asked something."""
    specs = tuple(c.Spec(title=key, key=key) for key in keys)
    far.do(c.Enqueue(plan="shop", source=None, tasks=specs, actor="user:ann"))
    jobs = far.claim("shop")
    for key in keys:
        far.begin(jobs[key])
        far.do(c.Ask(task_id=jobs[key].task_id, epoch=1, question=f"Which {key}?"))
    return {key: jobs[key].task_id for key in keys}


def answered(far: FarOwner, number: int) -> None:
    far.do(c.AnswerQuestion(task_id=number, text="the old one", actor="user:bob"))


def inbox(let_in: Let) -> Page:
    page = let_in()
    page.goto("/inbox")
    expect(page.locator("#link")).to_have_text("live")
    return page


def rows(page: Page) -> list[str]:
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('.needs > *')].map((row) => row.dataset.key)"
    )
    return found


def test_who_types_in_one_box_keeps_the_focus_while_another_ones_question_is_gone(
    far: FarOwner, let_in: Let
) -> None:
    asked = asking(far, "a", "b", "c")
    page = inbox(let_in)
    page.get_by_label("Your answer to shop/a").fill("half of it")
    box = page.get_by_label("Your answer to shop/b")
    box.press_sequentially("gre")
    before = rows(page)
    answered(far, asked["a"])
    first = page.locator(f"[data-key=need-{asked['a']}]")
    expect(first.get_by_role("status")).to_contain_text("Answered meanwhile")
    page.keyboard.type("en")
    assert box.input_value() == "green"
    assert box.evaluate("(it) => it === document.activeElement")
    assert rows(page) == before


def test_a_box_stays_where_it_is_when_its_own_question_is_answered(far: FarOwner, let_in: Let) -> None:
    asked = asking(far, "a", "b", "c", "d", "e")
    page = inbox(let_in)
    box = page.get_by_label("Your answer to shop/b")
    box.press_sequentially("gre")
    before, there = rows(page), box.bounding_box()
    answered(far, asked["b"])
    mine = page.locator(f"[data-key=need-{asked['b']}]")
    expect(mine.get_by_role("status")).to_contain_text("Answered meanwhile")
    page.keyboard.type("en")
    assert box.input_value() == "green"
    assert (rows(page), box.bounding_box()) == (before, there)
    mine.get_by_role("button", name="Answer").click()
    expect(page.locator("main")).to_contain_text("shop/b was answered meanwhile; nothing was changed")
    expect(page.locator("main")).to_contain_text("green")


def test_a_box_whose_task_asks_something_else_says_so(far: FarOwner, let_in: Let) -> None:
    number = asking(far, "a")["a"]
    page = let_in()
    page.goto(f"/tasks/{number}")
    expect(page.locator("#link")).to_have_text("live")
    box = page.get_by_label("Your answer to shop/a")
    box.press_sequentially("green")
    answered(far, number)
    note = page.locator("form.answer").get_by_role("status")
    expect(note).to_contain_text("Answered meanwhile")
    far.do(c.ProcessesExited(task_id=number, epoch=1))
    far.begin(far.claim("again")["a"])
    far.do(c.Ask(task_id=number, epoch=2, question="Which size?"))
    expect(note).to_contain_text("It asks something else by now")
    page.get_by_role("button", name="Answer").click()
    expect(page.locator("main")).to_contain_text(re.compile("asks something else by now.*green", re.DOTALL))


@pytest.mark.parametrize("path", ["/inbox", "/", "/tasks/{}"])
def test_who_has_lost_the_role_is_told_so_and_keeps_what_was_typed(
    far: FarOwner, let_in: Let, path: str
) -> None:
    number = asking(far, "a")["a"]
    page = let_in()
    page.goto(path.format(number))
    expect(page.locator("#link")).to_have_text("live")
    expect(page.locator(".who")).to_contain_text("user:ada, OWNER")
    page.get_by_label("Your answer to shop/a").press_sequentially("gre")
    buttons = page.locator(f"[data-key=need-{number}] div.buttons, [data-actions] div.buttons")
    expect(buttons.get_by_text("Cancel")).to_be_visible()
    far.do(c.SetMember(name="ann", role=Role.OWNER, actor="user:ann"))
    far.do(c.SetMember(name="ada", role=Role.VIEWER, actor="user:ann"))
    note = page.locator("form.answer").get_by_role("status")
    expect(note).to_have_text("You may not answer it any more: your role is VIEWER now.")
    expect(page.locator(".who")).to_contain_text("user:ada, VIEWER")
    expect(buttons.get_by_text("Cancel")).to_have_count(0)
    page.keyboard.type("en")
    assert page.get_by_label("Your answer to shop/a").input_value() == "green"
    far.do(c.SetMember(name="ada", role=Role.MEMBER, actor="user:ann"))
    expect(page.locator(".who")).to_contain_text("user:ada, MEMBER")
    expect(note).to_have_count(0)
    page.get_by_role("button", name="Answer").click()
    expect(page.get_by_role("status").filter(has_text="Answer: done.")).to_be_visible()


SHUFFLES = """
async () => {
  const { patchPage } = await import(document.querySelector("link[href$='/patch.js']").href);
  let seed = 7;
  const chance = (most) => (seed = (seed * 48271) % 2147483647) % most;
  const list = document.querySelector("main").appendChild(document.createElement("ul"));
  list.dataset.live = "shuffled";
  const row = (key) => `<li data-key="${key}"><input></li>`;
  const keys = [..."abcdefgh"];
  list.innerHTML = keys.map(row).join("");
  const problems = [];
  for (let round = 0; round < 300; round += 1) {
    const mine = list.children[chance(list.childElementCount)];
    mine.firstElementChild.focus();
    const chosen = keys.filter(() => chance(4)).sort(() => chance(3) - 1);
    const fresh = document.cloneNode(true);
    fresh.querySelector("[data-live=shuffled]").innerHTML = chosen.map(row).join("");
    patchPage(document, fresh);
    const now = [...list.children].map((one) => one.dataset.key);
    const wanted = chosen.includes(mine.dataset.key) ? chosen : [...chosen, mine.dataset.key];
    if (document.activeElement !== mine.firstElementChild) problems.push(`${round}: the focus is lost`);
    const order = now.filter((key) => chosen.includes(key));
    if (order.join() !== chosen.join()) problems.push(`${round}: ${now}, not ${chosen}`);
    if (now.length !== wanted.length) problems.push(`${round}: ${now} has not the rows of ${wanted}`);
  }
  return problems;
}
"""


def test_rows_come_into_their_order_around_the_one_that_has_the_focus(let_in: Let) -> None:
    assert inbox(let_in).evaluate(SHUFFLES) == []


def end_sessions(far: FarOwner) -> None:
    for token in drive(far.store.reads.tokens()):
        if token.name == BROWSER:
            far.do(c.RevokeToken(token_id=token.id, actor="user:ann"))


def sign_in(page: Page) -> None:
    page.get_by_label("Or paste your token").fill(SECRET)
    page.get_by_role("button", name="Sign in").click()


@pytest.mark.parametrize("restarted", [False, True])
def test_what_is_typed_outlives_the_session(far: FarOwner, let_in: Let, restarted: bool) -> None:
    number = asking(far, "a")["a"]
    page = inbox(let_in)
    page.clock.install()
    asked: list[str] = []
    page.on("request", lambda one: asked.append(one.url))
    box = page.get_by_label("Your answer to shop/a")
    box.press_sequentially("green")
    if restarted:  # as `muster ui`, which forgets its sessions
        page.context.clear_cookies()
        far.stop()
        far.start()
    else:
        end_sessions(far)
    expect(page.locator("#link")).to_contain_text("signed out; what you typed stays here")
    asked.clear()
    page.clock.fast_forward(60_000)
    page.evaluate("fetch('/enter').then((it) => it.status)")
    assert asked == [f"{far.url}/enter"], "it waits until somebody signs in"
    with page.context.expect_page() as opened:
        page.get_by_role("link", name="sign in in a new tab").click()
    sign_in(opened.value)
    opened.value.wait_for_url(f"{far.url}/inbox")
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(page.locator("#link")).to_have_text("live")
    assert box.input_value() == "green"
    page.get_by_role("button", name="Answer").click()
    expect(page.get_by_role("status").filter(has_text="Answer: done.")).to_be_visible()
    assert far.tasks()["a"].id == number and far.tasks()["a"].status == "PENDING"


def test_without_anything_typed_the_door_is_shown_and_leads_back(far: FarOwner, let_in: Let) -> None:
    page = let_in()
    page.goto("/tasks?plan=billing")
    expect(page.locator("#link")).to_have_text("live")
    end_sessions(far)
    page.wait_for_url(f"{far.url}/enter?back=*")
    sign_in(page)
    page.wait_for_url(f"{far.url}/tasks?plan=billing")


def test_a_door_opens_once_another_tab_was_let_in(far: FarOwner, let_in: Let) -> None:
    page = let_in()
    end_sessions(far)
    page.wait_for_url(f"{far.url}/enter?back=*")
    page.goto("/tasks?plan=billing")
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    page.context.new_page().goto(browsers.sign_in_path(far))
    page.context.pages[-1].wait_for_url(f"{far.url}/")
    page.evaluate("dispatchEvent(new Event('focus'))")
    expect(page.locator("h1")).to_have_text("Tasks")
    assert page.url == f"{far.url}/tasks?plan=billing"
