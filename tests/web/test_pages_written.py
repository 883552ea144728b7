"""What was typed into a form is given back by whatever page refuses it, and nothing else is."""

from __future__ import annotations

import re

import pytest
from over_network import People
from test_pages_sign_in import let_in, sessions
from web_site import Site

from muster.model.access import Role
from muster.model.forms import PLAN_ACTIONS, TASK_ACTIONS
from muster.web.open_paths import ENTER
from muster.web.pages.assets import TEMPLATES
from muster.web.pages.edits import EDIT
from muster.web.pages.setting_forms import DONE
from muster.web.pages.written import NOT_TYPED
from page_reader import Reader, Shown


def given_back(shown: Shown) -> list[str]:
    return re.findall(r"<pre>\n(.*?)</pre>", shown.text.partition('id="written"')[2], re.DOTALL)


def test_what_is_unseen_or_chosen_is_not_taken_for_typed() -> None:
    unseen = re.compile(r'<(?:input type="(?:hidden|radio|checkbox)"|button[^>]*) name="(\w+)"')
    names = {name for text in TEMPLATES.values() for name in unseen.findall(text)} - {"code", "status"}
    assert names <= NOT_TYPED, "code is of the door alone, and status of a filter, which is a GET"
    actions = [*TASK_ACTIONS.values(), *PLAN_ACTIONS.values(), *DONE.values(), EDIT]
    fields = [field for action in actions for field in action.fields]
    assert {one.name for one in fields if one.flag or one.choices} <= NOT_TYPED
    assert not {one.name for one in fields if not one.flag and not one.choices} & NOT_TYPED


@pytest.mark.parametrize("old", ["session", "form"])
def test_what_was_typed_outlives_what_let_it_in(site: Site, people: People, port: int, old: str) -> None:
    number = site.enqueue("a")["a"]
    token = people.token(Role.MEMBER, member="ada")
    reader = let_in(port, token)
    cancel = next(one for one in reader.get(f"/tasks/{number}/cancel").forms if "cancel" in one.action)
    if old == "session":
        site.post(f"/api/v1/tokens/{sessions(site)[0]['id']}/revoke", {"actor": "user:root"})
    else:
        reader = let_in(port, token)
    refused = reader.send(cancel, reason="It is </pre><b>not</b> needed")
    assert refused.status == (401 if old == "session" else 403)
    assert given_back(refused) == ["It is &lt;/pre&gt;&lt;b&gt;not&lt;/b&gt; needed"]
    assert f'href="/tasks/{number}/cancel"' in refused.text, "the page of its form"
    assert site.get(f"/api/v1/agent-tasks/{number}")["task"]["status"] == "PENDING"
    if old == "session":
        entered = reader.send(refused.form("Sign in"), token=token)
        assert entered.path == f"/tasks/{number}/cancel" and "not needed" not in entered.text
        assert entered.status == 200


def test_a_token_is_not_given_back(people: People, port: int) -> None:
    token = people.token(Role.MEMBER, member="ada")
    wrong = Reader(port).post(ENTER, {"token": f"{token}x", "back": "/tasks"})
    assert wrong.status == 401 and token not in wrong.text and not given_back(wrong)


def test_another_site_writes_nothing_on_our_pages(site: Site, people: People, port: int) -> None:
    reader = let_in(port, people.token(Role.MEMBER, member="ada"))
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        refused = reader.post("/tasks/7/cancel", {"reason": "Call 555 0100"}, **headers)
        assert refused.status in {401, 403} and "555" not in refused.text
        gone = Reader(port).post("/tasks/7/cancel", {"reason": "Call 555 0100"}, **headers)
        assert gone.status == 401 and "555" not in gone.text


def test_nothing_leads_to_another_site(port: int) -> None:
    for target, back in (("//evil.example/x", ""), ("/tasks/7/cancel", "https://evil.example/")):
        refused = Reader(port).post(target, {"reason": "x", "back": back})
        assert refused.status == 401 and "evil.example" not in refused.text.partition("<main")[2]
