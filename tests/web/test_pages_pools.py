"""Why nothing is at work although there is something to do: the overview tells of providers that refuse."""

from __future__ import annotations

import re

import pytest
from over_network import People
from test_pages_sign_in import let_in
from web_site import Site

from muster.model.access import Role
from page_reader import Reader


@pytest.fixture
def reader(people: People, port: int) -> Reader:
    return let_in(port, people.token(Role.ADMIN, member="ada"))


def told(reader: Reader) -> str:
    """What the overview says of providers, which it looks at again by itself."""
    shown = reader.get("/").text
    found = re.search(r'<div data-live="pools">(.*?)</div>', shown, re.DOTALL)
    assert found is not None
    return found[1]


def test_the_overview_tells_of_a_quota_that_has_run_out(
    site: Site, people: People, port: int, reader: Reader
) -> None:
    site.enqueue("a", "b")
    site.register()
    assert not told(reader).strip()
    jobs = {job["key"]: job for job in site.started()}
    refused = {"kind": "quota", "message": "<b>used up</b>", "retryAfterS": 3600}
    site.post("/worker/v1/fail", site.of(jobs["a"]) | refused)
    said = told(reader)
    assert "claude" in said and "quota: &lt;b&gt;used up&lt;/b&gt;" in said
    assert re.search(r"until <time datetime=\"\S+Z\">.*?\(in \S+\)", said), said
    assert 'href="/settings/pool-open?id=claude"' in said
    viewer = let_in(port, people.token(Role.VIEWER, member="eve"))
    assert "quota" in told(viewer) and "Try it again" not in told(viewer)
    reader.send(reader.get("/settings/pool-open?id=claude").form("Try the provider again"))
    assert not told(reader).strip()
