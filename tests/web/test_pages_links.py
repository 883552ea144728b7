"""The link of a message to a person: it leads to where it is answered, and does nothing else."""

from __future__ import annotations

from urllib.parse import urlsplit

from over_network import People
from test_pages import asking, task_of
from test_pages_sign_in import let_in
from web_site import Site

from muster.model.access import Role
from muster.model.notify import ChannelPlan, Matter, line_of
from page_reader import Reader


def newest(site: Site) -> object:
    return site.get("/api/v1/status")["status"]["lastEventId"]


def test_a_link_asks_for_a_login_and_opening_it_changes_nothing(
    site: Site, people: People, port: int
) -> None:
    number = asking(site)
    told = {"matter": "needs-you", "taskId": number, "reason": "asks: Which schema?"}
    link = line_of(told, "api/a", f"http://127.0.0.1:{port}", None).link
    assert link == f"http://127.0.0.1:{port}/tasks/{number}", "no word of a session or a token is in it"
    path = urlsplit(link).path
    stranger = Reader(port)
    before = newest(site)
    shown = stranger.get(path)
    assert "Which schema?" not in shown.text and "Sign in" in shown.labels and not stranger.cookie
    assert shown.status == 401 and 'role="alert"' not in shown.text, "nothing was tried"
    tried = Reader(port).post(f"{path}/retry", {})
    assert tried.status == 401 and 'role="alert"' in tried.text and "this needs a token" in tried.text
    wrong = Reader(port).post("/enter", {"token": "mst_nobody"})
    assert wrong.status == 401 and 'role="alert"' in wrong.text
    assert newest(site) == before
    reader = let_in(port, people.token(Role.MEMBER, member="ada"))
    before = newest(site)
    for method in ("GET", "HEAD"):
        assert reader.ask(method, path).status == 200
    assert reader.get(f"{path}/answer").status in {200, 404, 405}
    assert newest(site) == before and task_of(site, number)["status"] == "PAUSED"
    reader.send(reader.get(path).form("Answer"), text="the new one")
    assert task_of(site, number)["status"] == "PENDING"


def test_the_settings_page_shows_channels_to_who_may_see_them(site: Site, people: People, port: int) -> None:
    phone = ChannelPlan(
        name="phone", kind="ntfy", to="https://ntfy.example/<b>", tells=(Matter.DEAD,), quiet="22:00-07:00"
    )
    site.owner.channels = (phone,)
    shown = let_in(port, people.token(Role.ADMIN, member="ada")).get("/settings").text
    assert "ntfy https://ntfy.example/&lt;b&gt;" in shown and "not 22:00-07:00" in shown
    assert "/settings/channel-test?id=phone" in shown
    refused = let_in(port, people.token(Role.ADMIN, member="eve"))
    answer = refused.send(refused.get("/settings/channel-test?id=phone").form("Send a test there"))
    assert answer.status == 404 and "in use once a crew is up" in answer.text
    assert "ntfy.example" not in let_in(port, people.token(Role.VIEWER, member="ben")).get("/settings").text
