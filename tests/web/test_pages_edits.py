"""A task is edited on a page, as far as the engine lets it be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from test_network import OPENLY, listening
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
    assert after.path == f"/tasks/{number}?done=edit" and "Edit: done." in after.text
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
        assert refused.status in {400, 409, 422} and "kept text" in refused.text, wrong
    assert told(site, number)["description"] == "" and told(site, number)["priority"] == 5
    reader.send(reader.get(f"/tasks/{number}/complete").form("Mark as done"))
    assert reader.get(f"/tasks/{number}/edit").status == 409
    assert f"/tasks/{number}/edit" not in reader.get(f"/tasks/{number}").text
