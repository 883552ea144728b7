"""A slot that is kept: the end of one attempt brings the next task in the same commit."""

from __future__ import annotations

from pathlib import Path

from real_crew import crew

from muster.config.project import Project
from muster.stores.sqlite.history import read_history
from patience import until

CHAIN = 5


def chain(*scripts: str) -> dict[str, object]:
    tasks = [
        {"title": "t", "key": f"t{n}", "agent": "shell", "description": script}
        | ({"dependsOn": [f"t{n - 1}"]} if n else {})
        for n, script in enumerate(scripts)
    ]
    return {"plan": "p", "source": None, "actor": "test", "tasks": tasks}


def test_an_end_brings_the_next_task_in_its_own_commit(tmp_path: Path) -> None:
    with crew(tmp_path, "owner", "worker") as (api, _):
        api.post("/api/v1/plans", chain(*["true"] * CHAIN))
        done = {"COMPLETED": CHAIN}
        until(lambda: api.get("/api/v1/status")["status"]["plans"][0]["counts"] == done, "all is done", 60)
    rows = read_history(Project(tmp_path).store)
    names = [event.event for event in rows.events if event.event in {"claimed", "started", "completed"}]
    assert names == ["claimed", "started", "completed"] * CHAIN
    at_ms = {(event.task_id, event.event): event.at_ms for event in rows.events}
    assert len(rows.dependencies) == CHAIN - 1
    for parent, child in rows.dependencies:
        assert at_ms[child, "claimed"] == at_ms[parent, "completed"], "another transaction has claimed it"


def test_a_paused_crew_claims_nothing_with_a_last_word(tmp_path: Path) -> None:
    with crew(tmp_path, "owner", "worker") as (api, _):
        go_on = tmp_path / "go on"
        api.post("/api/v1/plans", chain(f"until [ -e '{go_on}' ]; do sleep 0.05; done", "true"))

        def counts() -> dict[str, int]:
            found: dict[str, int] = api.get("/api/v1/status")["status"]["plans"][0]["counts"]
            return found

        until(lambda: "RUNNING" in counts(), "the first runs")
        api.post("/api/v1/crew", {"status": "PAUSED", "actor": "test"})
        go_on.touch()
        until(lambda: "COMPLETED" in counts(), "the first is done")
        assert counts() == {"COMPLETED": 1, "PENDING": 1}
    rows = read_history(Project(tmp_path).store)
    assert sum(event.event == "claimed" for event in rows.events) == 1
