"""A plan that is added again as a whole: what it would change comes back, as the API's description says."""

from __future__ import annotations

from web_site import Site


def test_a_whole_plan_that_is_there_is_answered_with_what_differs(site: Site) -> None:
    body = {"plan": "p", "source": None, "whole": True, "actor": "ada"}
    first = site.post("/api/v1/plans", {**body, "tasks": [{"title": "one", "key": "a"}]})
    assert first["added"] == 1
    again = site.post("/api/v1/plans", {**body, "tasks": [{"title": "two", "key": "a"}]})
    assert (again["added"], again["existing"], again["changed"]) == (0, 1, ["a"])
    assert [one["key"] for one in again["diff"]["changed"]] == ["a"]
