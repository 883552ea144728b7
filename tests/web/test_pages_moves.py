"""A card of the board is moved by a command, or is refused; and where the choice of light or dark leads."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from over_network import OPENLY, People, listening
from test_pages_bulk import failed, statuses
from test_pages_sign_in import let_in
from web_site import Site

from muster.model.access import Role
from muster.model.forms import TASK_ACTIONS
from muster.web.gate import Exposure
from muster.web.pages.board import CARDS_MAX, COLUMNS, moves
from page_reader import Reader, Shown


@pytest.fixture
def reader(site: Site) -> Iterator[Reader]:
    """Of a server without login."""
    with listening(site, OPENLY) as port:
        yield Reader(port)


def moved(reader: Reader, number: int, to: str) -> Shown:
    """As a card that is dropped there."""
    shown = reader.get("/tasks?view=board")
    seq = re.search(rf'data-key="{number}"[^>]* data-seq="(\d+)"', shown.text)
    csrf = re.search(r'id="moved"[^>]* data-csrf="(\w+)"', shown.text)
    assert csrf is not None
    fields = {"csrf": csrf[1], "back": "/tasks?view=board", "to": to, **({"seq": seq[1]} if seq else {})}
    answer = reader.post(f"/tasks/{number}/move", fields)
    return reader.get(answer.headers["location"]) if answer.status == 303 else answer


def offered(reader: Reader, number: int) -> set[str]:
    card = re.search(rf'data-key="{number}"[^>]* data-moves="([\w ]+)"', reader.get("/tasks?view=board").text)
    return set(card[1].split()) if card else set()


def test_each_column_means_a_command_or_says_why_not(site: Site, reader: Reader) -> None:
    failed(site, "a")
    number = site.enqueue("b")["b"]
    dead = site.get("/api/v1/agent-tasks?status=failed")[0]["id"]
    assert offered(reader, number) == {"paused", "completed", "cancelled"}
    assert moved(reader, number, "paused").path == "/tasks?view=board&done=pause"
    assert statuses(site)["b"] == "PAUSED"
    assert offered(reader, number) == {"waiting", "completed", "cancelled"}
    for to, why in (
        ("work", "an agent takes it"),
        ("failed", "only its attempts"),
        ("paused", "now it is paused"),
    ):
        refused = moved(reader, number, to)
        assert (
            refused.status == 409 and why in refused.text and "Waiting, Completed, Cancelled" in refused.text
        )
    assert moved(reader, number, "elsewhere").status == 404
    assert moved(reader, number, "waiting").path.endswith("done=resume")
    assert moved(reader, number, "completed").path == f"/tasks/{number}/complete"
    assert moved(reader, number, "cancelled").path == f"/tasks/{number}/cancel"
    assert statuses(site) == {"a": "FAILED", "b": "PENDING"}
    assert moved(reader, dead, "waiting").path.endswith("done=retry")
    assert reader.post(f"/tasks/{number}/move", {"to": "paused", "csrf": "no"}).status == 403
    assert statuses(site) == {"a": "PENDING", "b": "PENDING"}


def test_a_viewer_moves_nothing(site: Site) -> None:
    number = site.enqueue("a")["a"]
    people = People(site)
    people.token(Role.OWNER, member="root")
    with listening(site, Exposure(rate=0)) as port:
        viewer = let_in(port, people.token(Role.VIEWER, member="eve"))
        assert offered(viewer, number) == set()
        assert moved(viewer, number, "paused").status == 403
        assert statuses(site)["a"] == "PENDING"


def test_columns_name_actions_that_there_are() -> None:
    meant = {action for column in COLUMNS.values() for action in column.actions}
    assert meant <= set(TASK_ACTIONS)
    assert moves(("answer", "cancel", "retry")) == {"waiting": "retry", "cancelled": "cancel"}


def test_light_or_dark_is_chosen_where_a_form_has_led(site: Site, reader: Reader) -> None:
    number = site.enqueue("a")["a"]
    asked = reader.get("/settings/webhook-remove?id=7")
    refused = reader.send(asked.form("Remove the webhook"))
    assert refused.status == 404
    assert reader.send(refused.form("Light"), theme="dark").path == "/settings/webhook-remove?id=7"
    made = reader.send(reader.get("/settings/webhook-add").form("Add a webhook"), url="https://example.com/x")
    assert "It is shown this once" in made.text and "Light" not in made.labels, "it cannot be shown again"
    bulk = reader.send(reader.get("/bulk/pause?plan=api").form("Pause it"))
    assert reader.send(bulk.form("Light"), theme="light").path == "/tasks?plan=api"
    refused = reader.post(f"/tasks/{number}/pause", {"back": "/tasks"})
    assert refused.status == 403 and reader.send(refused.form("Light"), theme="dark").path == "/tasks"


def counts(shown: str) -> dict[str, str]:
    found = re.findall(r'<h2 id="column-\d"><span>([\w ]+)</span> <span[^>]*>\(([^)]+)\)</span></h2>', shown)
    return dict(found)


def test_each_column_says_how_many_there_are(site: Site, reader: Reader) -> None:
    failed(site, "a")
    site.enqueue(*(f"b{number}" for number in range(CARDS_MAX + 5)), plan="many")
    site.enqueue("c", plan="few")
    board = reader.get("/tasks?view=board").text
    told = counts(board)
    assert (told["Waiting"], told["Failed"], told["Paused"]) == (str(CARDS_MAX + 6), "1", "0")
    assert board.count("More, as a table") == 1
    assert counts(reader.get("/tasks?view=board&plan=many").text)["Waiting"] == str(CARDS_MAX + 5)
    assert counts(reader.get("/tasks?view=board&plan=few").text)["Waiting"] == "1"
    assert counts(reader.get("/tasks?view=board&plan=none").text)["Waiting"] == "0"
    some = counts(reader.get("/tasks?view=board&status=pending").text)
    assert some == {"Waiting": str(CARDS_MAX + 6)}
    by_more = counts(reader.get("/tasks?view=board&priority%3E=1&tag=none").text)
    assert by_more["Waiting"] == "0", "what no counter tells is counted as far as it is shown"
    assert counts(reader.get("/tasks?view=board&priority<=9").text)["Waiting"] == f"more than {CARDS_MAX}"
