"""A budget that is used up, on the pages: they lead to what raises it, and offer nothing that is refused."""

from __future__ import annotations

from typing import Any

import pytest
from over_network import People
from test_pages_sign_in import let_in
from web_site import Site

from muster.model.access import Role
from page_reader import Reader


@pytest.fixture
def reader(people: People, port: int) -> Reader:
    return let_in(port, people.token(Role.ADMIN, member="ada"))


def paused(site: Site, **budgets: int) -> int:
    """A task that has used $1.80, and has stopped for one of these budgets: `task`, `plan`."""
    number = site.enqueue("a", "b")["a"]
    site.register()
    (job,) = [one for one in site.started() if one["taskId"] == number]
    for whose, microusd in budgets.items():
        about: dict[str, Any] = {"taskId": number} if whose == "task" else {"plan": "api"}
        site.post("/api/v1/budgets", {"actor": "ada", "microusd": microusd, **about})
    usage = {"inputTokens": 5, "outputTokens": 5, "costMicrousd": 1_800_000}
    site.post("/worker/v1/account", site.of(job) | {"usage": usage})
    site.post("/worker/v1/release", site.of(job) | {"reason": "stopped"})
    assert task_of(site, number)["status"] == "PAUSED"
    return number


def task_of(site: Site, number: int) -> dict[str, Any]:
    found: dict[str, Any] = site.get(f"/api/v1/agent-tasks/{number}")["task"]
    return found


def test_a_tasks_budget_is_raised_from_where_it_is_used_up(site: Site, reader: Reader) -> None:
    number = paused(site, task=1_000_000)
    task = task_of(site, number)
    assert "budget" in task["actions"] and "resume" not in task["actions"]
    link = f'href="/settings/task-budget?id={number}"'
    for path in ("/", "/inbox", f"/tasks/{number}"):
        shown = reader.get(path)
        assert link in shown.text and "Resume" not in shown.labels, path
    assert reader.get(f"/tasks/{number}/resume").status == 409
    asked = reader.get(f"/settings/task-budget?id={number}")
    assert "api/a" in asked.text and "$1.80" in asked.text
    low = reader.send(asked.form("Raise its budget"), usd="1.50")
    assert low.status == 409 and "$1.80 are spent already" in low.text
    after = reader.send(low.form("Raise its budget"), usd="5")
    assert after.path == f"/tasks/{number}?done=task-budget" and "Raise its budget: done." in after.text
    assert task_of(site, number)["status"] == "PENDING"
    assert link not in after.text


def test_a_plans_budget_is_raised_from_where_it_is_used_up(site: Site, reader: Reader) -> None:
    number = paused(site, plan=1_000_000)
    link = 'href="/settings/plan-budget?id=api"'
    for path in ("/", "/inbox", f"/tasks/{number}", "/plans", "/plans/api"):
        assert link in reader.get(path).text, path
    assert "Resume" not in reader.get("/plans/api").labels
    assert "muster budget api USD" in task_of(site, number)["why"]
    after = reader.send(reader.get("/settings/plan-budget?id=api").form("Raise its budget"), usd="5")
    assert after.path == "/plans/api?done=plan-budget" and "Raise its budget: done." in after.text
    assert link not in after.text and "Pause" in after.labels
    assert task_of(site, number)["status"] == "PENDING"


def test_a_task_of_its_own_stays_paused_once_the_plans_budget_is_raised(site: Site, reader: Reader) -> None:
    number = paused(site, task=1_000_000, plan=1_000_000)
    assert task_of(site, number)["budgetsUsedUp"] == ["task", "plan"]
    site.post("/api/v1/budgets", {"actor": "ada", "microusd": 9_000_000, "plan": "api"})
    task, shown = task_of(site, number), reader.get(f"/tasks/{number}")
    assert (task["status"], task["budgetsUsedUp"]) == ("PAUSED", ["task"])
    assert "Resume" not in shown.labels and f"/settings/task-budget?id={number}" in shown.text
    assert "/settings/plan-budget" not in shown.text


def test_who_may_only_look_is_shown_no_way_to_a_budget(site: Site, people: People, port: int) -> None:
    number = paused(site, task=1_000_000, plan=1_000_000)
    for role in (Role.VIEWER, Role.MEMBER):
        reader = let_in(port, people.token(role, member=role.value.lower()))
        for path in ("/", "/inbox", f"/tasks/{number}", "/plans/api"):
            assert "Raise " not in reader.get(path).text, path
        assert reader.get(f"/settings/task-budget?id={number}").status == 403


@pytest.mark.parametrize(("query", "status"), [("", 400), ("?id=x", 400), ("?id=999", 404)])
def test_a_form_about_no_task_says_so(reader: Reader, query: str, status: int) -> None:
    assert reader.get(f"/settings/task-budget{query}").status in {status, 422}
