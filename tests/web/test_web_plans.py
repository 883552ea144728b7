"""Plans as a whole over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from web_site import Site

PLANS = "/api/v1/plans"


def plan(*tasks: dict[str, Any]) -> dict[str, Any]:
    return {"plan": "big plan/ä", "source": "/p.md", "tasks": list(tasks), "actor": "ada"}


def task(key: str, **fields: Any) -> dict[str, Any]:
    return {"key": key, "title": key, **fields}


def test_a_plan_is_compared_updated_read_and_cancelled(site: Site) -> None:
    site.post(PLANS, plan(task("a"), task("b", dependsOn=["a"])))
    wanted = plan(task("a", title="A"), task("c", parent="a", dependsOn=["a"]))
    diff = site.post(f"{PLANS}/diff", wanted)
    assert (diff["plan"], diff["added"]) == ("big plan/ä", ["c"])
    assert diff["changed"] == [{"key": "a", "status": "PENDING", "fields": ["title"], "kept": ""}]
    assert [change["key"] for change in diff["removed"]] == ["b"]
    updated = site.post(f"{PLANS}/update", wanted)
    assert (updated["added"], updated["existing"], updated["diff"]) == (1, 1, diff)
    assert site.post(f"{PLANS}/diff", wanted)["changed"] == []
    tasks = {kept["key"]: kept for kept in site.get(f"{PLANS}/big%20plan%2F%C3%A4/tasks")}
    assert (tasks["c"]["parent"], tasks["b"]["status"]) == ("a", "CANCELLED")
    assert tasks["c"]["dependencies"] == [[tasks["a"]["id"], "a", False]]
    cancelled = site.post(f"{PLANS}/big%20plan%2F%C3%A4/cancel", {"actor": "ada", "reason": "no"})
    assert (cancelled["cancelled"], cancelled["stopped"]) == (2, 0)


def test_cancel_goes_through_all_pages(site: Site) -> None:
    site.post(PLANS, {**plan(*[task(f"t{n}") for n in range(1201)]), "plan": "many"})
    assert site.post(f"{PLANS}/many/cancel", {"actor": "ada"})["cancelled"] == 1201


def test_the_boxes_of_a_plan_are_ticked_at_once(site: Site) -> None:
    site.owner.waits = "the disk is away"
    site.post(PLANS, plan(task("a")))
    told = site.post(f"{PLANS}/big%20plan%2F%C3%A4/tick", {})
    assert (told, site.owner.ticked) == (
        {"plan": "big plan/ä", "waits": "the disk is away", "differ": []},
        ["big plan/ä"],
    )
    assert site.refused("POST", f"{PLANS}/none/tick", b"{}")[0] == 404 and len(site.owner.ticked) == 1


@pytest.mark.parametrize(
    ("target", "body", "status"),
    [
        ("/diff", {"plan": "x"}, 422),
        ("/update", {"tasks": []}, 422),
        ("/update", plan({"title": "no key"}), 422),
        ("/update", plan(task("a", dependsOn=["a"])), 422),
        ("/update", plan(task("a", priority=11)), 422),
        ("/update", plan(task("a", dependsOn=["nobody"])), 422),
        ("/none/cancel", {"actor": "ada"}, 404),
        ("/none/cancel", {"actor": ""}, 422),
    ],
)
def test_what_does_not_fit_is_refused(site: Site, target: str, body: dict[str, Any], status: int) -> None:
    assert site.refused("POST", PLANS + target, json.dumps(body).encode())[0] == status
    assert site.get(PLANS) == []


def test_an_edit_takes_only_what_a_task_has(site: Site) -> None:
    (task_id,) = site.post(PLANS, plan(task("a")))["taskIds"]
    edit = f"/api/v1/agent-tasks/{task_id}/edit"
    for body in (
        {"actor": ""},
        {"actor": "ada", "status": "COMPLETED"},
        {"actor": "ada", "priority": 0},
        [1],
    ):
        assert site.refused("POST", edit, json.dumps(body).encode())[0] == 422
    site.post(edit, {"actor": "ada", "agent": None, "dependsOn": [], "title": "B"})
    kept = site.get(f"/api/v1/agent-tasks/{task_id}")
    assert (kept["task"]["title"], kept["events"][-1]["event"]) == ("B", "edited")
