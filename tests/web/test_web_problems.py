"""What a refusal tells a program: RFC 9457, with a pointer to the field that is wrong."""

from __future__ import annotations

import gzip
import json
import os
import pwd
import re
from collections.abc import Callable
from typing import Any

import pytest
from described import description
from web_site import Site

from muster.client.api import error_of
from muster.model import patterns
from muster.model.errors import BadInput
from muster.web.http import SMALL_BYTES_MAX

TASK = {"title": "t"}


def problem(site: Site, method: str, target: str, content: Any = None) -> Any:
    data = b"" if content is None else json.dumps(content).encode()
    status, answer = site.send(method, target, data)
    assert answer["status"] == status == 422
    return answer


@pytest.mark.parametrize(
    ("target", "body", "pointer"),
    [
        (
            "plans",
            {"plan": "p", "source": None, "actor": "a", "tasks": [TASK, {"title": ""}]},
            "/tasks/1/title",
        ),
        ("plans", {"plan": "p", "source": None, "actor": "a", "tasks": [TASK | {"a/b": 1}]}, "/tasks/0/a~1b"),
        ("plans", {"plan": "p", "tasks": [], "actor": "a"}, "/source"),
        ("agent-tasks", TASK | {"actor": "a", "priority": 11}, "/priority"),
        ("agent-tasks", TASK | {"actor": "a", "metadata": 1}, "/metadata"),
        ("agent-tasks/1/edit", {"actor": "a", "priority": 11}, "/priority"),
    ],
)
def test_the_field_that_is_wrong_is_pointed_to(site: Site, target: str, body: Any, pointer: str) -> None:
    told = problem(site, "POST", f"/api/v1/{target}", body)
    assert [error["pointer"] for error in told["errors"]] == [pointer]
    assert told["errors"][0]["detail"] == told["detail"]


def test_the_parameter_that_is_wrong_is_named(site: Site) -> None:
    for query, name in (("limit=0", "limit"), ("colour=red", "colour"), ("after=1&after=2", "after")):
        told = problem(site, "GET", f"/api/v1/events?{query}")
        assert [error["parameter"] for error in told["errors"]] == [name]


def test_what_has_no_field_says_so(site: Site) -> None:
    assert "errors" not in problem(site, "POST", "/api/v1/plans", [])
    status, answer = site.send("POST", "/api/v1/plans", b"{not json")
    assert (status, "errors" in answer) == (422, False)


def test_a_client_raises_what_the_server_raised(site: Site) -> None:
    status, answer = site.send("GET", "/api/v1/events?limit=0")
    error = error_of(status, json.dumps(answer).encode())
    assert isinstance(error, BadInput)
    assert error.message == answer["detail"]


@pytest.mark.parametrize("name", ["a\r\nX: y", "a\n", "a\x1b[2J", "a\x85b", "a\u2028b", " a", "a\t"])
@pytest.mark.parametrize(
    ("target", "body", "pointer", "what"),
    [
        ("agent-tasks", lambda name: TASK | {"key": name}, "/key", "a task's key"),
        ("agent-tasks", lambda name: TASK | {"plan": name}, "/plan", "a plan's name"),
        ("agent-tasks", lambda name: TASK | {"tags": ["b", name]}, "/tags", "a tag"),
        (
            "plans",
            lambda name: {"plan": "p", "source": None, "tasks": [TASK | {"key": "k"}, TASK | {"key": name}]},
            "/tasks/1/key",
            "a task's key",
        ),
    ],
)
def test_a_new_name_that_nobody_can_type_is_refused(
    site: Site, target: str, body: Callable[[str], Any], pointer: str, what: str, name: str
) -> None:
    told = problem(site, "POST", f"/api/v1/{target}", body(name) | {"actor": "a"})
    assert told["detail"].startswith(f"{what} has no line breaks or other control characters")
    assert [error["pointer"] for error in told["errors"]] == [pointer]
    assert site.get("/api/v1/agent-tasks") == site.get("/api/v1/plans") == []


def test_a_tag_that_is_edited_in_is_refused_like_a_new_one(site: Site) -> None:
    task_id = site.enqueue("a")["a"]
    told = problem(site, "POST", f"/api/v1/agent-tasks/{task_id}/edit", {"actor": "a", "tags": ["a\nb"]})
    assert told["detail"].startswith("a tag has no line breaks")
    site.post(f"/api/v1/agent-tasks/{task_id}/edit", {"actor": "a", "tags": ["a b", "ä"]})


@pytest.mark.parametrize("name", [".", ".."])
def test_a_plan_whose_page_no_browser_could_open_is_refused(site: Site, name: str) -> None:
    told = problem(site, "POST", "/api/v1/agent-tasks", TASK | {"actor": "a", "plan": name})
    assert told["detail"].startswith(f"no plan can be called '{name}'")


@pytest.mark.parametrize(
    ("target", "body", "rule"),
    [
        ("members", {"name": "a b", "role": "VIEWER"}, patterns.MEMBER.rule),
        ("members", {"name": "ada\n", "role": "VIEWER"}, patterns.MEMBER.rule),
        ("tokens", {"name": "t", "member": "@", "role": "VIEWER"}, patterns.MEMBER.rule),
        ("workspaces", {"name": "Acme"}, patterns.WORKSPACE.rule),
        ("workspaces", {"name": "acme\n"}, patterns.WORKSPACE.rule),
        ("webhooks", {"url": "ftp://x"}, patterns.WEBHOOK.rule),
        ("agent-tasks", {"title": "t", "changes": "some"}, patterns.CHANGES.rule),
    ],
)
def test_a_name_of_the_wrong_form_is_refused_in_words(
    site: Site, target: str, body: dict[str, Any], rule: str
) -> None:
    told = problem(site, "POST", f"/api/v1/{target}", body | {"actor": "a"})
    assert told["detail"].startswith(f"invalid request: Expected {rule} - at `$.")
    assert "regex" not in json.dumps(told) and told["errors"][0]["pointer"] in {f"/{name}" for name in body}


def test_each_form_that_the_api_asks_for_has_words() -> None:
    asked = set(
        re.findall(r'"pattern":"((?:[^"\\]|\\.)*)"', json.dumps(description(), separators=(",", ":")))
    )
    assert asked and {json.loads(f'"{one}"') for one in asked} <= patterns.RULES.keys()


def test_who_names_nobody_over_the_socket_is_the_user_who_runs_it(site: Site) -> None:
    plan = {"plan": "p", "source": None, "tasks": [{"title": "a"}]}
    assert site.send("POST", "/api/v1/plans", json.dumps(plan).encode())[0] == 201
    status, added = site.send("POST", "/api/v1/agent-tasks", json.dumps(TASK).encode())
    assert status == 201
    path = f"/api/v1/agent-tasks/{added['id']}"
    assert site.send("POST", f"{path}/edit", b'{"title": "b"}')[0] == 200
    assert site.send("POST", f"{path}/cancel")[0] == 200
    user = f"user:{pwd.getpwuid(os.getuid()).pw_name}"
    assert {event["actor"] for event in site.get("/api/v1/events")} == {user}
    for wrong in (7, ""):
        told = problem(site, "POST", f"{path}/cancel", {"actor": wrong})
        assert told["errors"][0]["pointer"] == "/actor"


def test_half_a_character_is_called_that(site: Site) -> None:
    for half in (r"\ud800", r"\udc00x", r"\ud800\u0041", r"a\ud83d\ud83d\ude00"):
        status, told = site.send("POST", "/api/v1/agent-tasks", f'{{"title": "{half}"}}'.encode())
        assert status == 422 and "half of a surrogate pair" in told["detail"], (half, told)
    for other in (rb'{"title": "\ud83d\ude00", "actor"', b'{"ti', b"{not json"):
        assert "surrogate" not in site.send("POST", "/api/v1/agent-tasks", other)[1]["detail"]
    whole = rb'{"title": "\ud83d\ude00"}'
    assert site.send("POST", "/api/v1/agent-tasks", whole)[0] == 201


def test_what_is_too_large_or_packed_is_told_what_is_taken(site: Site) -> None:
    status, told = site.send("POST", "/api/v1/agent-tasks", b" " * (SMALL_BYTES_MAX + 1))
    assert (status, told["code"]) == (413, "too_large")
    assert "more than 1048576 bytes (1 MiB)" in told["detail"] and told["hint"]
    packed = gzip.compress(json.dumps(TASK).encode())
    status, told = site.send("POST", "/api/v1/agent-tasks", packed, {"Content-Encoding": "gzip"})
    assert (status, told["code"]) == (415, "unread_encoding") and "'gzip'" in told["detail"]
    status, told = site.send("POST", "/api/v1/agent-tasks", b"{", {"Content-Encoding": "identity"})
    assert status == 422


def test_who_asks_the_wrong_way_is_led_to_the_list_of_all_paths(site: Site) -> None:
    for method, path, status in (("DELETE", "/api/v1/agent-tasks", 405), ("GET", "/api/v1/nothing", 404)):
        answer, told = site.send(method, path)
        assert answer == status and "/api/v1/openapi.json" in told["hint"]
    assert site.get("/api/v1/openapi.json")["paths"]
