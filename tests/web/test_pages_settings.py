"""Agents, audit and settings in a browser: what who asks may see, and forms of the API's own operations."""

from __future__ import annotations

import re

import pytest
from over_network import People
from test_pages_sign_in import let_in
from web_site import W1, Site

from muster.model.access import Role
from muster.web.pages.setting_forms import SETTING_FORMS
from page_reader import Reader


@pytest.fixture
def reader(people: People, port: int) -> Reader:
    return let_in(port, people.token(Role.ADMIN, member="ada"))


def test_members_and_tokens_are_made_and_ended(site: Site, reader: Reader) -> None:
    asked = reader.get("/settings/member-set")
    after = reader.send(asked.form("Set a member"), name="ben", role="MEMBER")
    assert after.path == "/settings?done=member-set" and "Set a member: done." in after.text
    assert {one["name"]: one["role"] for one in site.get("/api/v1/members")}["ben"] == "MEMBER"
    form = reader.get("/settings/token-add").form("Make a token")
    longer = reader.send(form, name="ci", member="ben", role="MEMBER", hours="48")
    assert longer.status == 403 and "your token expires before the new one would" in longer.text
    assert "For how many hours: such as 0.1, at most 11.8; empty: as long as your own session" in longer.text
    assert "For longer: muster token create NAME --expires 30d" in longer.text
    most = reader.send(form, name="most", member="ben", role="MEMBER")  # that was refused, this is taken
    assert most.status == 200 and "It expires at <time" in most.text
    (own,) = [one for one in site.get("/api/v1/tokens") if one["name"] == "a browser"]
    (token,) = [one for one in site.get("/api/v1/tokens") if one["name"] == "most"]
    assert 0 <= own["expiresAtMs"] - token["expiresAtMs"] <= 2000, "as long as that which asks"
    form = reader.get("/settings/token-add").form("Make a token")
    made = reader.send(form, name="ci", member="ben", role="MEMBER", hours="6")
    secret = re.search(r"<pre>(mst_[\w-]+)</pre>", made.text)
    assert secret is not None and secret[1] not in reader.get("/settings").text
    (token,) = [one for one in site.get("/api/v1/tokens") if one["name"] == "ci"]
    assert token["expiresAtMs"] - token["createdAtMs"] == 6 * 3_600_000
    asked = reader.get(f"/settings/token-revoke?id={token['id']}")
    assert "refused from now on" in asked.text
    reader.send(asked.form("Revoke the token"))
    (token,) = [one for one in site.get("/api/v1/tokens") if one["name"] == "ci"]
    assert token["revokedAtMs"] is not None
    assert f"{token['id']} ci" in reader.get("/settings").text
    reader.send(reader.get("/settings/member-remove?id=ben").form("Remove the member"))
    assert all(one["name"] != "ben" for one in site.get("/api/v1/members"))


def test_what_is_refused_says_why(site: Site, reader: Reader) -> None:
    form = reader.get("/settings/member-set").form("Set a member")
    above = reader.send(form, name="ben", role="OWNER")
    assert above.status == 403 and "which is less than OWNER" in above.text
    wrong = reader.send(reader.get("/settings/budget-set").form("Set a budget"), plan="api", usd="-3")
    assert wrong.status in {400, 422} and "a number above 0" in wrong.text
    for path in ("/settings/nothing", "/settings/token-revoke"):
        assert reader.get(path).status in {400, 404, 422}, path
    for form, label, lists in (
        ("token-revoke", "Revoke the token", "muster token list"),
        ("webhook-remove", "Remove the webhook", "muster webhook list"),
    ):
        refused = reader.send(reader.get(f"/settings/{form}?id=abc").form(label))
        assert refused.status == 404 and f"Next: {lists}" in refused.text
    assert reader.post("/settings/member-set", {"name": "ben", "role": "MEMBER"}).status == 403
    assert all(one["name"] != "ben" for one in site.get("/api/v1/members"))


def test_a_budget_and_a_webhook_are_set(site: Site, reader: Reader) -> None:
    site.enqueue("a")
    assert "/settings/budget-set?plan=api" in reader.get("/settings").text
    asked = reader.get("/settings/budget-set?plan=api")
    assert 'value="api"' in asked.text
    after = reader.send(asked.form("Set a budget"), plan="api", usd="2.50")
    assert after.path == "/settings?done=budget-set", after.text
    made = reader.send(
        reader.get("/settings/webhook-add").form("Add a webhook"), url="http://127.0.0.1:9/hook"
    )
    assert re.search(r"<pre>whsec_", made.text)
    (hook,) = site.get("/api/v1/webhooks")
    assert "http://127.0.0.1:9/hook" in reader.get("/settings").text
    again = reader.send(
        reader.get(f"/settings/webhook-resend?id={hook['id']}").form("Send again what was not taken")
    )
    assert "Send again what was not taken: under way." in again.text, "nobody has taken it yet"
    reader.send(reader.get(f"/settings/webhook-remove?id={hook['id']}").form("Remove the webhook"))
    assert not site.get("/api/v1/webhooks")


def test_the_crew_is_shown_and_paused(site: Site, reader: Reader) -> None:
    site.register()
    site.register("worker-bbbbbbbb")
    shown = reader.get("/crew").text
    assert W1 in shown and f"/settings/worker-stop?id={W1}" in shown and "No provider has refused" in shown
    reader.send(reader.get("/settings/crew-pause").form("Pause the crew"))
    assert site.get("/api/v1/crew")["crew"] == "PAUSED"
    reader.send(reader.get("/settings/crew-resume").form("Let the crew go on"))
    assert site.get("/api/v1/crew")["crew"] == "RUNNING"
    after = reader.send(reader.get(f"/settings/worker-stop?id={W1}").form("Stop the worker"))
    assert after.path == "/crew?done=worker-stop", after.text
    (worker,) = [one for one in site.get("/api/v1/crew")["workers"] if one["id"] == W1]
    assert worker["reason"]


def test_the_audit_is_filtered_and_proved(site: Site, reader: Reader) -> None:
    site.enqueue("a")
    assert "enqueued" in reader.get("/audit").text
    about = reader.get("/audit?subject=token").text
    assert "enqueued" not in about and "token" in about
    assert "enqueued" not in reader.get("/audit?level=error").text
    assert "No level is called" not in reader.get("/audit?level=ERROR").text
    loud = reader.get("/audit?level=loud").text
    assert "enqueued" in loud and "No level is called <code>loud</code>: events of all levels" in loud
    assert "Nothing was changed" in reader.get("/audit/verify").text


def test_each_form_is_for_an_operation_that_there_is() -> None:
    from muster.web.app import declared

    paths = {"/".join(route.parts) for method, route in declared() if method == "POST"}
    known = [re.sub(r"\{\w+(:id)?\}", "{id}", path) for path in paths]
    for name, form in SETTING_FORMS.items():
        assert form.path in known, name


def test_no_button_is_for_who_stands_higher(people: People, port: int, reader: Reader) -> None:
    people.post("/api/v1/members", name="ben", role="MEMBER")
    shown = reader.get("/settings").text
    assert "Remove ben" in shown and "Remove root" not in shown
    revocable = set(re.findall(r"token-revoke\?id=(\d+)", shown))
    tokens = {str(one["id"]): one["role"] for one in people.site.get("/api/v1/tokens")}
    assert revocable == {number for number, role in tokens.items() if role != "OWNER"}
    for form in ("member-set", "token-add"):
        assert re.findall(r"<option ?>(\w+)", reader.get(f"/settings/{form}").text) == [
            "VIEWER",
            "MEMBER",
            "ADMIN",
        ]
    assert reader.get("/settings/member-remove?id=root").status == 403
    owner = let_in(port, people.token(Role.OWNER, member="root")).get("/settings")
    assert "Remove root" in owner.text


def test_a_refused_form_says_the_rule_and_keeps_what_was_typed(site: Site, reader: Reader) -> None:
    form = reader.get("/settings/member-set").form("Set a member")
    told = reader.send(form, name="ben <hur>", role="ADMIN")
    assert told.status == 422 and "regex" not in told.text
    assert "Name: letters, digits and . _ @ -" in told.text and "Nothing was changed." in told.text
    assert 'value="ben &lt;hur&gt;"' in told.text and "<option selected>ADMIN" in told.text
    reader.send(told.form("Set a member"), name="ben", role="ADMIN")
    assert "ben" in {one["name"] for one in site.get("/api/v1/members")}
    hook = reader.send(reader.get("/settings/webhook-add").form("Add a webhook"), url="ftp://x")
    assert "a web address (http or https)" in hook.text and 'value="ftp://x"' in hook.text
    form = reader.get("/settings/token-add").form("Make a token")
    for wrong in ("ever", "-1", "0"):
        hours = reader.send(form, name="ci", member="ben", hours=wrong)
        assert f"{wrong}&#39; are no hours" in hours.text and "a number above 0, such as 0.5" in hours.text
        assert 'value="ci"' in hours.text and "Make a token</button>" in hours.text


def test_the_most_hours_that_a_form_names_are_taken(site: Site, people: People, reader: Reader) -> None:
    asked = reader.get("/settings/token-add")
    named = re.search(r"such as 0.1, at most ([0-9.]+); empty", asked.text)
    assert named is not None and 11 < float(named[1]) < 12
    whole = reader.send(asked.form("Make a token"), name="ci", member="ada", role="MEMBER", hours="1")
    assert whole.status == 200
    form = reader.get("/settings/token-add").form("Make a token")
    most = reader.send(form, name="ci", member="ada", role="MEMBER", hours=named[1])
    assert most.status == 200
    short = let_in(reader.port, people.token(Role.ADMIN, member="ada", expiresS=660))
    asked = short.get("/settings/token-add")
    assert "leave it empty: as long as your own session or token, which ends in 10m" in asked.text
    assert short.send(asked.form("Make a token"), name="ci", member="ada", role="MEMBER").status == 200


def test_the_session_that_one_is_in_is_marked(site: Site, people: People, port: int) -> None:
    token = people.token(Role.ADMIN, member="ada")
    reader, other = let_in(port, token), let_in(port, token)
    rows = re.findall(r'<tr data-key="token-(\d+)">(.*?)</tr>', reader.get("/settings").text, re.DOTALL)
    (own,) = [number for number, row in rows if "(this browser)" in row]
    (parent,) = [number for number, row in rows if "(has let this browser in)" in row]
    assert all(row.count("<time") >= 1 for _, row in rows), "when each was made"
    theirs = other.get("/settings").text
    assert f">{own} a browser</th>" in theirs and theirs.count("(this browser)") == 1
    warning = "This browser is signed in by it, and is signed out at once."
    for number in (own, parent):
        assert warning in reader.get(f"/settings/token-revoke?id={number}").text
    asked = other.get(f"/settings/token-revoke?id={own}")
    assert warning not in asked.text and "Whoever uses it is refused from now on." in asked.text
    other.send(asked.form("Revoke the token"))
    assert reader.ask("GET", "/settings").status == 401 and other.ask("GET", "/settings").status == 200
