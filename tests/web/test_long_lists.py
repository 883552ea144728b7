"""Tasks with long texts: a page of them ends early, and whoever reads on finds all of them."""

from __future__ import annotations

from contextlib import closing

from web_site import Site

from muster.client.api import Api
from muster.client.http import ClientRequest, Connection
from muster.model.numbers import PAGE_BYTES
from patience import PATIENCE_S

TEXT = "x" * 900_000
COUNT = 12


def test_a_page_ends_early_and_its_link_goes_on(site: Site) -> None:
    for number in range(COUNT):
        body = {"title": f"t{number}", "key": f"t{number}", "description": TEXT, "actor": "ann"}
        site.post("/api/v1/agent-tasks", body)
    short = site.get("/api/v1/agent-tasks?limit=3")
    assert len(short) == 3
    first = site.get("/api/v1/agent-tasks")
    assert PAGE_BYTES // len(TEXT) < len(first) < COUNT
    rest = site.get(f"/api/v1/agent-tasks?cursor=after-{first[-1]['id']}")
    assert [one["title"] for one in (*first, *rest)] == [f"t{number}" for number in range(COUNT)]
    with closing(Connection(site.socket)) as connection, closing(Api(connection)) as api:
        whole = ClientRequest("GET", "/api/v1/agent-tasks", reply_s=PATIENCE_S)
        assert PAGE_BYTES <= len(connection.request(whole)[1]) < PAGE_BYTES + 2 * len(TEXT)
        assert len(list(api.rows("/api/v1/agent-tasks", {}))) == COUNT, "ours read on"


def test_tasks_with_short_texts_are_one_page(site: Site) -> None:
    site.enqueue(*(f"t{number:03}" for number in range(130)))
    assert len(site.get("/api/v1/agent-tasks")) == 130
    assert len(site.get("/api/v1/agent-tasks?limit=70")) == 70
