"""The API's description: valid and whole.  Every answer that `Site` gets in any test is held against it."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from described import description, operation
from web_site import Site

from muster.model.answers import Answer
from muster.web.app import declared
from muster.web.examples import ASKED, EXAMPLES
from muster.web.http import Reply
from muster_command import run_muster

HTTP_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "http.md"


def test_the_description_is_valid() -> None:
    from openapi_spec_validator import validate  # takes a second, which every process that reads tests would

    validate(description())


def test_the_server_gives_its_description(site: Site) -> None:
    assert site.get("/api/v1/openapi.json") == description()


def test_every_route_is_described_once() -> None:
    operations = [one for methods in description()["paths"].values() for one in methods.values()]
    assert len(operations) == len(declared()) > 80
    assert len({one["operationId"] for one in operations}) == len(operations)
    assert [one["operationId"] for one in operations if len(one["summary"]) < 3] == []


def test_every_route_says_what_it_answers() -> None:
    vague = {Answer, Reply, object, Any}
    found = {f"{method} {'/'.join(route.parts)}": route.answers for method, route in declared()}
    assert {
        path: told for path, told in found.items() if vague.intersection(map(_hashable, told.values()))
    } == {}


def _hashable(shape: Any) -> Any:
    return shape if isinstance(shape, type) else str(shape)


def test_a_shape_has_one_name() -> None:
    assert [
        name for name in description()["components"]["schemas"] if not re.fullmatch(r"[A-Za-z]+", name)
    ] == []


def test_the_examples_are_accepted(site: Site) -> None:
    """Each after the one before, as a person would send them who tries them out."""
    for (method, path), examples in EXAMPLES.items():
        assert operation(method, path.replace("{", "").replace("}", "")), f"{method} {path} is not there"
        for example in examples:
            tasks = site.get("/api/v1/agent-tasks?plan=release")
            values = {"taskId": str(tasks[-1]["id"]) if tasks else "", **example.values}
            target = path.format(**values)
            status, answer = site.send(method, target, json.dumps(example.body).encode())
            assert status < 300, (target, answer)
    for path, asked in ASKED.items():
        assert site.get(f"{path}?{urlencode(asked)}"), path
        given = operation("GET", path)["parameters"]
        assert asked == {one["name"]: one["example"] for one in given if "example" in one}


def test_the_page_needs_nothing_from_elsewhere(site: Site) -> None:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(site.socket))
        caller.sendall(b"GET /api/v1/docs HTTP/1.1\r\nConnection: close\r\n\r\n")
        head, _, data = caller.makefile("rb").read().partition(b"\r\n\r\n")
    assert b"content-type: text/html; charset=utf-8" in head
    page = data.decode()
    assert "/api/v1/agent-tasks/{taskId}/cancel" in page
    assert re.findall(r"(?:src|href)=(?!'#)[^>]*|url\(|@import", page) == []
    shown = re.compile("<pre>.*?</pre>", re.DOTALL)
    assert re.findall(r"https?:", shown.sub("", page)) == []
    assert re.findall(r"https?://(?!example\.org\b).*", page) == [], "nor is anybody led elsewhere"
    assert "<script" not in page
    ids = set(re.findall(r" id='?([\w.-]+)", page))
    assert set(re.findall(r"href='#([^']*)'", page)) <= ids


def test_the_reference_page_of_the_docs_is_current(tmp_path: Path) -> None:
    assert HTTP_PAGE.read_text("utf-8") == run_muster(tmp_path, "man", "--http").stdout, (
        "make it anew: ./run muster man --http > docs/reference/http.md"
    )
