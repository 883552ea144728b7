"""A task is edited on a page, as far as the engine lets it be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from over_network import OPENLY, listening
from web_site import Site

from page_reader import Reader


@pytest.fixture
def reader(site: Site) -> Iterator[Reader]:
    """Of a server without login."""
    with listening(site, OPENLY) as port:
        yield Reader(port)


def told(site: Site, number: int) -> Any:
    return site.get(f"/api/v1/agent-tasks/{number}")["task"]


def test_the_order_of_a_plan_is_changed(site: Site, reader: Reader) -> None:
    numbers = site.enqueue("a", "b", "c")
    number = numbers["b"]
    assert f'href="/tasks/{number}/edit"' in reader.get(f"/tasks/{number}").text
    assert reader.get(f"/tasks/{number}").text.count("Edit…") == 1
    form = reader.get(f"/tasks/{number}/edit").form("Change it")
    given = {"title": "Do <b>", "priority": "9", "sortKey": "3", "dependsOn": "c, a", "description": "So"}
    after = reader.send(form, **given)
    assert after.path == f"/tasks/{number}?done=edit" and "Change it: done." in after.text
    task = told(site, number)
    assert (task["title"], task["priority"], task["sortKey"], task["description"]) == ("Do <b>", 9, 3, "So")
    assert "waits for a" in task["why"] and "c" in task["why"]
    again = reader.get(f"/tasks/{number}/edit")
    assert 'value="Do &lt;b&gt;"' in again.text and 'value="a, c"' in again.text
    late = reader.send(form, **given)
    assert late.status == 412, "somebody has changed it since that page was drawn"
    kept = {name: value for name, value in form.fields.items() if name != "seq"}
    assert reader.send(form._replace(fields=kept), **given).status == 412, (
        "as that of a task at work has none"
    )


def test_what_cannot_be_is_refused_with_what_was_written(site: Site, reader: Reader) -> None:
    numbers = site.enqueue("a", "b")
    number = numbers["a"]
    asked = reader.get(f"/tasks/{number}/edit")
    for wrong in ({"priority": "high"}, {"priority": "11"}, {"dependsOn": "nowhere"}, {"dependsOn": "a"}):
        usual = {"title": "a", "priority": "5", "sortKey": "0", "dependsOn": "", "description": "kept text"}
        refused = reader.send(asked.form("Change it"), **(usual | wrong))
        assert refused.status in {400, 409, 422} and "kept text</textarea>" in refused.text, wrong
        (name,) = wrong
        assert f'name="{name}" value="{wrong[name]}"' in refused.text, (
            "what is wrong stands there to be mended"
        )
        assert refused.form("Change it").action == f"/tasks/{number}/edit"
    for wrong, said in (
        ({"title": "   "}, "The title is empty; nothing was changed"),
        ({"title": "x" * 10_001}, "The title has more than 10,000 characters; nothing was changed"),
        ({"priority": "11"}, "The priority is more than 10; nothing was changed"),
        ({"priority": "0"}, "The priority is less than 1; nothing was changed"),
        ({"dependsOn": "x" * 20_000}, ""),
    ):
        refused = reader.send(asked.form("Change it"), **(usual | wrong))
        assert said in refused.text and "Expected" not in refused.text, wrong
    refused = reader.send(asked.form("Change it"), **(usual | {"priority": "11"}))
    assert told(site, number)["description"] == "" and told(site, number)["priority"] == 5
    right = reader.send(refused.form("Change it"), **(usual | {"priority": "7"}))
    assert right.path == f"/tasks/{number}?done=edit" and told(site, number)["priority"] == 7
    reader.send(reader.get(f"/tasks/{number}/complete").form("Mark as done"))
    assert reader.get(f"/tasks/{number}/edit").status == 409
    assert f"/tasks/{number}/edit" not in reader.get(f"/tasks/{number}").text


def test_who_was_late_sees_what_others_have_written_and_takes_back_none_of_it(
    site: Site, reader: Reader
) -> None:
    number = site.enqueue("a")["a"]
    old = reader.get(f"/tasks/{number}/edit").form("Change it")
    usual = {"title": "Do a", "priority": "5", "sortKey": "0", "dependsOn": "", "description": ""}
    usual["title"] = told(site, number)["title"]
    theirs = b'{"actor": "user:bob", "title": "theirs", "description": "their text", "priority": 8}'
    assert site.send("PATCH", f"/api/v1/agent-tasks/{number}", theirs)[0] == 200
    mine = usual | {"description": "my text", "priority": str(told(site, number)["priority"])}
    refused = reader.send(old, **mine)
    assert refused.status == 412 and "my text</textarea>" in refused.text
    assert "Somebody else has written there meanwhile" in refused.text and "their text" in refused.text
    assert 'name="title" value="theirs"' in refused.text, "nobody has typed there"
    assert 'name="priority" value="8"' in refused.text
    again = usual | {"title": "theirs", "priority": "8", "description": "my text"}
    assert reader.send(refused.form("Change it"), **again).status == 200
    task = told(site, number)
    assert (task["title"], task["priority"], task["description"]) == ("theirs", 8, "my text")


def test_what_can_be_edited_no_longer_gives_back_what_was_written(site: Site, reader: Reader) -> None:
    number = site.enqueue("a")["a"]
    old = reader.get(f"/tasks/{number}/edit").form("Change it")
    site.post(f"/api/v1/agent-tasks/{number}/complete", {"actor": "user:ann", "outputResult": None})
    usual = {"title": "a", "priority": "5", "sortKey": "0", "dependsOn": ""}
    refused = reader.send(old, **usual, description="my text")
    assert refused.status in {409, 412} and "cannot be edited now" in refused.text
    assert "my text</pre>" in refused.text and f'href="/tasks/{number}">Back' in refused.text
    assert "Change it" not in refused.labels


@pytest.mark.parametrize("action", ["cancel", "transfer"])
def test_a_form_that_is_refused_is_shown_again_with_what_was_typed(
    site: Site, reader: Reader, action: str
) -> None:
    number = site.enqueue("a")["a"]
    form = next(
        form
        for form in reader.get(f"/tasks/{number}/{action}").forms
        if form.action == f"/tasks/{number}/{action}"
    )
    name, wrong = ("agent", "x" * 300) if action == "transfer" else ("reason", "word " * 3000)
    refused = reader.send(form, **{name: wrong})
    most = "The agent has more than 200" if action == "transfer" else "The reason has more than 10,000"
    assert refused.status == 422 and wrong.strip() in refused.text
    assert f"{most} characters; nothing was changed" in refused.text
    again = refused.form(form.label)
    assert again.action == form.action
    assert reader.send(again, **{name: "claude"}).status == 200


def test_a_form_that_nobody_may_send_leads_back_to_where_it_stood(site: Site, reader: Reader) -> None:
    number = site.enqueue("a")["a"]
    form = reader.get(f"/tasks/{number}/edit").form("Change it")
    for back, leads in (
        (f"/tasks/{number}", f"/tasks/{number}"),
        ("//evil.example/x", f"/tasks/{number}/edit"),
    ):
        refused = reader.post(form.action, {**form.fields, "csrf": "", "back": back})
        assert refused.status == 403 and f'href="{leads}">Back' in refused.text
