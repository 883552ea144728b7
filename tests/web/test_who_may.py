"""Every operation, by everybody: what a token's role and scopes allow, and what they do not."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from described import description
from over_network import People, ask, listening
from web_site import W1, Site

from muster.model.access import RIGHTS, Right, Role
from muster.web.gate import Exposure
from muster.web.open_paths import OPEN
from patience import until

TASK = "/api/v1/agent-tasks/{taskId}"
PLAN = "/api/v1/plans/{plan}"
AGENT = "/api/v1/agents/{agent}"
MAY: dict[Right, tuple[str, ...]] = {
    Right.READ: (
        *("GET /api/v1/agent-tasks", "GET /api/v1/agent-tasks/next", "GET /api/v1/agent-tasks/refused"),
        *(f"GET {TASK}", f"GET {TASK}/attempts/stream", f"GET {TASK}/logs", f"GET {TASK}/output"),
        *("GET /api/v1/agents", f"GET {AGENT}", f"GET {AGENT}/health", f"GET {AGENT}/tasks"),
        *(f"GET {AGENT}/heartbeats", "GET /api/v1/agents/tasks/queue"),
        *("GET /api/v1/agents/tasks/queue/dead-letter", f"GET {TASK}/artifacts", f"GET {TASK}/attempts"),
        f"GET {TASK}/checkpoint",
        "GET /api/v1/attempts/{taskId}/{epoch}/output/stream",
        *("GET /api/v1/audit", "GET /api/v1/audit/verify", "GET /api/v1/claims", "GET /api/v1/crew"),
        *(
            "GET /api/v1/coordinator/logs",
            "GET /api/v1/coordinator/runs",
            f"GET {TASK}/artifacts/{{epoch}}/{{name}}/content",
            "GET /api/v1/coordinator/status",
            "GET /api/v1/docs",
            "GET /api/v1/events",
            "GET /api/v1/inbox",
            "GET /api/v1/known-agents",
        ),
        *("GET /api/v1/events/stream", "GET /api/v1/members", "GET /api/v1/openapi.json"),
        *("GET /api/v1/owner", "GET /api/v1/permissions", "GET /api/v1/plans", f"GET {PLAN}"),
        *(f"GET {PLAN}/diff", f"GET {PLAN}/merge", f"GET {TASK}/diff"),
        *(f"GET {PLAN}/pull-request", f"GET {TASK}/pull-request"),
        *(f"GET {PLAN}/items", f"GET {PLAN}/sync", f"GET {PLAN}/tasks", "GET /api/v1/pools"),
        *("GET /api/v1/resolve", "GET /api/v1/status", "GET /api/v1/whoami", "GET /api/v1/workers"),
        "POST /api/v1/sign-in-links",
        *("GET /api/v1/workers/{workerId}", "GET /api/v1/workspaces", "GET /healthz"),
        *("GET /health/coordinator", "GET /health/live", "GET /health/ready", "GET /metrics"),
    ),
    Right.WORK: (
        *(
            "POST /api/v1/agents/tasks/{taskId}/retry",
            f"PUT {AGENT}",
            f"POST {AGENT}/claim",
            f"POST {AGENT}/heartbeat",
        ),
        *("POST /api/v1/agent-tasks", f"PATCH {TASK}", f"PATCH {TASK}/progress"),
        *(f"POST {TASK}/{verb}" for verb in ("accept", "answer", "archive", "cancel", "claim", "complete")),
        *(f"POST {TASK}/{verb}" for verb in ("depend", "edit", "pause", "resume", "retry", "skip", "tell")),
        *(f"POST {TASK}/{verb}" for verb in ("transfer", "claim/release", "claim/renew")),
        *("POST /api/v1/plans", "POST /api/v1/plans/diff", "POST /api/v1/plans/update"),
        *("POST /api/v1/person/{what}", "POST /api/v1/plans/namesakes"),
        *(f"POST {PLAN}/{verb}" for verb in ("boxes", "cancel", "forget", "move", "pause", "resume")),
        *(f"POST {PLAN}/{verb}" for verb in ("sync", "tick")),
    ),
    Right.CREW: (
        *(f"POST {PLAN}/merge", f"POST {PLAN}/pull-request", f"POST {TASK}/pull-request"),
        "POST /api/v1/coordinator/recover",
        *(f"PATCH {AGENT}", f"DELETE {AGENT}", f"POST {AGENT}/terminate"),
        *("POST /api/v1/budgets", "POST /api/v1/coordinator/reconcile", "POST /api/v1/crew"),
        "POST /api/v1/coordinator/runs",
        *("POST /api/v1/crew/stop", "POST /api/v1/crew/workers", "POST /api/v1/pools/{pool}/open"),
        *("POST /api/v1/permissions/{number}/revoke", "POST /api/v1/workers/{workerId}/stop"),
        *("GET /api/v1/webhooks", "POST /api/v1/webhooks", "GET /api/v1/webhooks/{webhookId}/messages"),
        *(f"POST /api/v1/webhooks/{{webhookId}}/{verb}" for verb in ("remove", "resend", "test")),
        *("GET /api/v1/channels", "GET /api/v1/channels/{channel}/messages"),
        *(f"POST /api/v1/channels/{{channel}}/{verb}" for verb in ("resend", "test")),
        *("GET /api/v1/secrets", "POST /api/v1/secrets", "POST /api/v1/secrets/{name}/remove"),
    ),
    Right.PEOPLE: (
        *("POST /api/v1/members", "POST /api/v1/members/{name}/remove", "GET /api/v1/tokens"),
        *("POST /api/v1/tokens", "POST /api/v1/tokens/{tokenId}/revoke"),
    ),
    Right.STORE: (
        "POST /api/v1/db/backup",
        "POST /api/v1/shutdown",
        "POST /api/v1/vault/rotate",
        "POST /api/v1/workspaces",
    ),
    Right.SERVE: ("POST /worker/v1/register", "POST /worker/v1/token"),
}
"""What needs which right."""
WORKERS_OWN = frozenset(
    {
        *(f"POST /worker/v1/{verb}" for verb in ("account", "artifact", "ask", "checkpoint", "claim")),
        *(f"POST /worker/v1/{verb}" for verb in ("complete", "declare", "deregister", "diff", "fail")),
        *(f"POST /worker/v1/{verb}" for verb in ("gone", "heartbeat", "log", "park", "progress", "start")),
        *(f"POST /worker/v1/{verb}" for verb in ("provider", "publish", "release", "suspect")),
        "POST /worker/v1/secrets",
        *(f"POST /worker/v1/git/{verb}" for verb in ("fetch", "publish", "send")),
        "GET /worker/v1/tasks/{taskId}/place",
    }
)
"""What takes the token of a worker, that one with the right to serve is given when it registers."""
WITH_AN_ATTEMPTS_TOKEN = "/attempt/v1/"
LAST = "POST /api/v1/shutdown"


def operations() -> Iterator[tuple[str, str]]:
    for path, methods in description()["paths"].items():
        if not path.startswith(WITH_AN_ATTEMPTS_TOKEN):
            yield from ((method.upper(), path) for method in methods)


def target(path: str, **values: object) -> str:
    known = {
        "taskId": 7,
        "epoch": 1,
        "number": 1,
        "tokenId": 7,
        "webhookId": 7,
        "plan": "none",
        "workerId": "worker-none",
        "agent": "none",
    }
    for name, value in {**known, "name": "nobody", "pool": "none", "what": "merge", **values}.items():
        path = path.replace(f"{{{name}}}", str(value))
    return path


def test_each_operation_has_a_row() -> None:
    named = {one for some in MAY.values() for one in some}
    assert named | WORKERS_OWN == {f"{method} {path}" for method, path in operations()}
    assert not named & WORKERS_OWN


@pytest.mark.promise("S13")
@pytest.mark.parametrize("role", Role)
def test_a_role_may_what_its_rights_say_and_nothing_else(site: Site, people: People, role: Role) -> None:
    token = people.token(role)
    with listening(site, Exposure(rate=0)) as port:
        _compare(site, port, token, RIGHTS[role])


@pytest.mark.parametrize("scope", [Right.READ, Right.WORK, Right.SERVE])
def test_a_scope_leaves_only_what_it_names(site: Site, people: People, scope: Right) -> None:
    token = people.token(Role.OWNER, scopes=[scope])
    with listening(site, Exposure(rate=0)) as port:
        _compare(site, port, token, frozenset({scope}))


def refused(port: int, path: str, token: str, body: dict[str, Any]) -> tuple[str, str]:
    """In which words, and what to do."""
    status, told = ask(port, "POST", path, token, body)
    assert (status, told["code"]) == (403, "forbidden"), told
    return told["detail"], told["hint"]


@pytest.mark.parametrize(
    ("more", "counts"),
    [
        ({"scopes": ["read"]}, "only for: read"),
        ({"scopes": ["read", "work"]}, "only for: read, work"),
        ({"role": "VIEWER"}, "only as VIEWER"),
        ({"role": "VIEWER", "scopes": ["read"]}, "only as VIEWER for: read"),
    ],
)
def test_a_token_that_counts_for_less_than_its_member_is_named(
    site: Site, people: People, more: dict[str, Any], counts: str
) -> None:
    people.token(Role.ADMIN, member="ada")
    made = people.post("/api/v1/tokens", **{"name": "ro", "member": "ada", "role": "ADMIN", **more})
    with listening(site, Exposure(rate=0)) as port:
        said, hint = refused(port, "/api/v1/members", made["token"], {"name": "bob", "role": "VIEWER"})
    assert said == f"this needs the right to people, and this token counts {counts}; nothing was changed"
    how = "muster token create NAME --member ada --role ADMIN"
    assert hint == f"use another token of ada, or have one made: {how}"


def test_a_token_of_a_lesser_role_is_named_where_its_member_stands_higher(site: Site, people: People) -> None:
    people.token(Role.OWNER, member="ada")
    made = people.post("/api/v1/tokens", name="less", member="ada", role="ADMIN")
    with listening(site, Exposure(rate=0)) as port:
        said, hint = refused(port, "/api/v1/members", made["token"], {"name": "bob", "role": "OWNER"})
    assert said == "this token counts only as ADMIN, which is less than OWNER; nothing was changed"
    assert hint.endswith("muster token create NAME --member ada --role OWNER")


@pytest.mark.parametrize("workspace", ["default", "acme"])
def test_who_can_help_is_told_by_what_the_operation_needs(site: Site, people: People, workspace: str) -> None:
    people.post("/api/v1/workspaces", name="acme")
    token = people.token(Role.ADMIN if workspace == "default" else Role.OWNER, workspace, member="ada")
    viewer = people.token(Role.VIEWER, workspace, member="bob")
    with listening(site, Exposure(rate=0)) as port:
        for path in ("workspaces", "vault/rotate", "db/backup", "shutdown"):
            said, hint = refused(port, f"/api/v1/{path}", token, {"actor": "ada"})
            assert said == "this needs the right to store, which user:ada has not here; nothing was changed"
            assert hint.startswith("ask an OWNER of workspace default"), path
        for path in ("members", "crew/stop", "agent-tasks"):
            assert refused(port, f"/api/v1/{path}", viewer, {})[1].startswith("ask an ADMIN of the workspace")


def test_the_owner_of_another_workspace_is_none_of_the_store(site: Site, people: People) -> None:
    people.post("/api/v1/workspaces", name="acme")
    token = people.token(Role.OWNER, "acme")
    with listening(site, Exposure(rate=0)) as port:
        _compare(site, port, token, RIGHTS[Role.OWNER] - {Right.STORE}, guest=True)
        (only,) = ask(port, "GET", "/api/v1/workspaces", token)[1]
        assert only["name"] == "acme"


def _compare(site: Site, port: int, token: str, rights: frozenset[Right], *, guest: bool = False) -> None:
    named = {one: right for right, some in MAY.items() for one in some}
    before = len(site.get("/api/v1/events?limit=1000"))
    for method, path in operations():
        one = f"{method} {path}"
        if path.endswith("/stream") or (one == LAST and named[one] in rights):
            continue
        body = {"actor": "eve"} if method == "POST" else None
        status, told = ask(port, method, target(path), token, body)
        if one in WORKERS_OWN:
            assert (status, told["code"]) == (403, "forbidden"), (one, told)
        elif named[one] in rights or path in OPEN:
            of_the_folder = guest and status == 403 and path.endswith(("reconcile", "recover"))
            assert status not in {401, 403} or of_the_folder, (one, told)
        else:
            assert (status, told["code"]) == (403, "forbidden"), (one, told)
    if Right.CREW not in rights and Right.WORK not in rights:
        assert len(site.get("/api/v1/events?limit=1000")) == before


def as_worker(port: int, token: str, worker_id: str) -> str:
    """The worker's own token.  Its agent is called as it is."""
    body = {"workerId": worker_id, "hostname": "far", "pid": 7, "pidStart": 1, "bootId": "b"}
    status, told = ask(port, "POST", "/worker/v1/register", token, body | {"agents": [worker_id]})
    assert status == 200, told
    own: str = told["own"]["token"]
    return own


@pytest.mark.promise("S13")
def test_a_workers_own_token_opens_what_workers_say_and_nothing_else(site: Site, people: People) -> None:
    """Also where an OWNER stands behind it."""
    token = people.token(Role.OWNER)
    with listening(site, Exposure(rate=0)) as port:
        own = as_worker(port, token, W1)
        before = len(site.get("/api/v1/events?limit=1000"))
        for method, path in operations():
            if path.endswith("/stream"):
                continue
            body = {"actor": "eve"} if method == "POST" else None
            status, told = ask(port, method, target(path), own, body)
            if f"{method} {path}" in WORKERS_OWN or path in OPEN:
                assert status not in {401, 403}, (path, told)
            else:
                assert (status, told["code"]) == (403, "forbidden"), (path, told)
        assert len(site.get("/api/v1/events?limit=1000")) == before


@pytest.mark.parametrize("why", ["revoked", "removed", "expired", "made up"])
def test_a_token_that_counts_for_nothing_opens_nothing(site: Site, people: People, why: str) -> None:
    token = people.token(Role.ADMIN, member="ada", expiresS=1 if why == "expired" else None)
    if why == "revoked":
        (listed,) = [one for one in site.get("/api/v1/tokens") if one["member"] == "ada"]
        people.post(f"/api/v1/tokens/{listed['id']}/revoke")
    elif why == "removed":
        people.post("/api/v1/members/ada/remove")
    elif why == "expired":
        made_s = time.time()
        until(lambda: time.time() > made_s + 1.1, "it has expired")
    else:
        token = token[:-1] + ("A" if token[-1] != "A" else "B")
    with listening(site, Exposure(rate=0)) as port:
        for method, path in operations():
            if path not in OPEN:
                status, told = ask(port, method, target(path), token, {"actor": "eve"})
                assert (status, told["code"]) == (401, "not_allowed"), path


@pytest.mark.promise("S13")
def test_what_another_workspace_has_is_answered_as_what_is_not_there(site: Site, people: People) -> None:
    """By every operation that names something."""
    site.enqueue("a", plan="billing")
    site.register()
    site.started()
    (task,) = site.get("/api/v1/agent-tasks")
    (mine, *_) = site.get("/api/v1/tokens")
    people.post("/api/v1/workspaces", name="acme")
    token = people.token(Role.OWNER, "acme", member="eve")
    theirs = {"taskId": task["id"], "tokenId": mine["id"], "plan": "billing", "workerId": task["worker"]}
    theirs |= {"name": "root", "epoch": 1, "agent": "claude"}
    with listening(site, Exposure(rate=0)) as port:
        own = as_worker(port, token, "worker-eveseves")
        before = _all_of(site)
        for method, path in operations():
            if "{" not in path or path.endswith("/stream") or method == "PUT":
                continue  # PUT makes what it names, of one's own
            by = own if f"{method} {path}" in WORKERS_OWN else token
            found = ask(port, method, target(path, **theirs), by, body(method, path, theirs))
            absent = ask(port, method, target(path, **ABSENT), by, body(method, path, ABSENT))
            assert _shape(found, theirs) == _shape(absent, ABSENT), path
            assert found[0] != 422, f"{path}: the body of the test is wrong: {found[1]}"
            assert found[0] != 200 or absent[0] == 200, path
        status, told = ask(port, "GET", f"/api/v1/agent-tasks/{task['id']}", token)
        assert (status, told["code"]) == (404, "not_found")
        assert _all_of(site) == before


ABSENT: dict[str, Any] = {
    "taskId": 244645045985281,
    "tokenId": 244645045985282,
    "epoch": 1,
    "plan": "payroll",
    "workerId": "worker-absent00",
    "name": "nemo",
    "agent": "nobody",
}


def body(method: str, path: str, values: dict[str, Any]) -> Any:
    """What the operation needs, and no more; where it names a task, one of `values`."""
    described = description()["paths"][path][method.lower()].get("requestBody")
    if described is None:
        return None
    schema = described["content"]["application/json"]["schema"]
    return {**_sample(schema), **({"dependsOn": [values["taskId"]]} if path.endswith("depend") else {})}


def _sample(schema: dict[str, Any]) -> Any:
    if reference := schema.get("$ref"):
        return _sample(description()["components"]["schemas"][reference.rpartition("/")[2]])
    if "enum" in schema:
        return schema["enum"][0]
    if "properties" in schema:
        return {name: _sample(schema["properties"][name]) for name in schema.get("required", ())}
    samples = {
        "string": "x",
        "integer": schema.get("minimum", 1),
        "number": 1,
        "boolean": False,
        "object": {},
    }
    if "64" in schema.get("pattern", ""):
        return "0" * 64
    return samples.get(schema.get("type", ""), [])


def _shape(reply: tuple[int, Any], values: dict[str, Any]) -> tuple[int, str]:
    """What was answered, without what was asked for by name."""
    text = json.dumps(reply[1])
    for name in ("taskId", "tokenId", "plan", "workerId", "name", "agent"):
        text = text.replace(str(values[name]), f"<{name}>")
    return reply[0], text


def _all_of(site: Site) -> Any:
    keep = (
        "/api/v1/agents",
        "/api/v1/agent-tasks",
        "/api/v1/plans",
        "/api/v1/members",
        "/api/v1/events?limit=1000",
    )
    return [site.get(one) for one in keep], [
        {name: value for name, value in one.items() if name != "lastUsedAtMs"}
        for one in site.get("/api/v1/tokens")
    ]


def test_who_did_it_is_whoever_asks_whatever_the_body_says(site: Site, people: People) -> None:
    token = people.token(Role.MEMBER, member="ada")
    with listening(site, Exposure(rate=0)) as port:
        assert ask(port, "POST", "/api/v1/agent-tasks", token, {"title": "t", "actor": "eve"})[0] == 201
        assert ask(port, "POST", "/api/v1/agent-tasks", token, {"title": "u"})[0] == 201
        status, told = ask(
            port,
            "POST",
            "/api/v1/plans",
            token,
            {"plan": "p", "source": "/etc/passwd", "tasks": [{"title": "x", "key": "x"}]},
        )
        assert (status, told["code"]) == (403, "forbidden"), "a file of the server's"
        assert {event["actor"] for event in site.get("/api/v1/events") if event["event"] == "enqueued"} == {
            "user:ada"
        }
        used = [one["lastUsedAtMs"] for one in site.get("/api/v1/tokens") if one["member"] == "ada"]
        assert used[0] is not None


def test_a_token_gives_no_wider_and_no_longer_one(site: Site, people: People) -> None:
    limited = people.token(Role.ADMIN, member="ada", scopes=["people"], expiresS=600)
    new = {"name": "t", "member": "ada", "role": "ADMIN"}
    with listening(site, Exposure(rate=0)) as port:
        for body in (
            {**new, "expiresS": 60},
            {**new, "role": "VIEWER", "expiresS": 60},
            {**new, "scopes": ["people", "work"], "expiresS": 60},
            {**new, "scopes": ["people"], "expiresS": 3600},
        ):
            status, told = ask(port, "POST", "/api/v1/tokens", limited, body)
            assert (status, told["code"]) == (403, "forbidden"), body
            longer = body.get("scopes") == ["people"]
            assert told["hint"].startswith("name no time" if longer else "name what"), told
            assert told["errors"][0]["pointer"] == ("/expiresS" if longer else "/scopes")
        narrow = {**new, "scopes": ["people"], "expiresS": 60}
        assert ask(port, "POST", "/api/v1/tokens", limited, narrow)[0] == 201
        status, told = ask(port, "POST", "/api/v1/tokens", limited, {**new, "scopes": ["people"]})
        first, _, last = [one for one in site.get("/api/v1/tokens") if one["member"] == "ada"]
        assert (status, told["expiresAtMs"]) == (201, last["expiresAtMs"])
        assert 0 <= first["expiresAtMs"] - last["expiresAtMs"] <= 2000, "as long as the one that asks"


@pytest.mark.parametrize("seconds", [0, -1, 400_000_000])
def test_no_token_counts_for_no_time_or_centuries(site: Site, people: People, seconds: int) -> None:
    token = people.token(Role.ADMIN, member="ada")
    with listening(site, Exposure(rate=0)) as port:
        body = {"name": "never", "member": "ada", "role": "MEMBER", "expiresS": seconds}
        status, told = ask(port, "POST", "/api/v1/tokens", token, body)
        assert (status, told["errors"][0]["pointer"]) == (422, "/expiresS")
        _, kept = ask(port, "GET", "/api/v1/tokens", token)
    assert "never" not in {one["name"] for one in kept}


def test_the_owner_of_another_workspace_gives_all_that_they_have(site: Site, people: People) -> None:
    people.post("/api/v1/workspaces", name="acme")
    token = people.token(Role.OWNER, "acme", member="eve")
    with listening(site, Exposure(rate=0)) as port:
        body = {"name": "t", "member": "eve", "role": "OWNER"}
        assert ask(port, "POST", "/api/v1/tokens", token, body)[0] == 201


def test_nobody_gives_more_than_they_have(site: Site, people: People) -> None:
    token = people.token(Role.ADMIN, member="ada")
    with listening(site, Exposure(rate=0)) as port:
        for path, body in [
            ("/api/v1/members", {"name": "bob", "role": "OWNER"}),
            ("/api/v1/members", {"name": "root", "role": "VIEWER"}),
            ("/api/v1/members/root/remove", {}),
            ("/api/v1/tokens", {"name": "t", "member": "root", "role": "VIEWER"}),
            ("/api/v1/tokens", {"name": "t", "member": "ada", "role": "OWNER"}),
        ]:
            status, told = ask(port, "POST", path, token, body)
            assert (status, told["code"]) == (403, "forbidden"), path
        assert ask(port, "POST", "/api/v1/members", token, {"name": "bob", "role": "ADMIN"})[0] == 200
        status, code = site.refused("POST", "/api/v1/members/root/remove", b'{"actor": "root"}')
        assert (status, code) == (409, "conflict"), "the last OWNER"
        assert {"member_added", "token_added"} <= {event["event"] for event in site.get("/api/v1/events")}
        assert site.get("/api/v1/audit/verify")["whole"]
        secrets = json.dumps([site.get("/api/v1/tokens"), site.get("/api/v1/events?limit=1000")])
        assert token not in secrets and "token_hash" not in secrets
