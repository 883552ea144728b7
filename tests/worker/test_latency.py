"""How soon a child begins: a real owner, real workers, real processes (L2)."""

from __future__ import annotations

from pathlib import Path

import pytest
from real_crew import crew

from muster.config.project import Project
from muster.stores.sqlite.history import read_history
from patience import until

CHAIN = 40
P99_MS = 50
NOISE = 5
"""Tests share their machine with others; the bench measures the figure itself."""


@pytest.mark.promise("L2")
def test_a_child_begins_right_after_its_last_dependency(tmp_path: Path) -> None:
    with crew(tmp_path, "owner", "worker", "worker") as (api, _):
        until(lambda: len(api.get("/api/v1/status")["status"]["workers"]) == 2, "both workers are there")
        tasks = [
            {"title": "t", "key": f"t{n}", "agent": "shell", "description": "true"}
            | ({"depends_on": [f"t{n - 1}"]} if n else {})
            for n in range(CHAIN)
        ]
        api.post("/api/v1/plans", {"plan": "p", "source": None, "actor": "test", "tasks": tasks})
        done = {"COMPLETED": CHAIN}
        until(lambda: api.get("/api/v1/status")["status"]["plans"][0]["counts"] == done, "all is done", 60)
    rows = read_history(Project(tmp_path).store)
    at = {(event.task_id, event.event): event.at_ms for event in rows.events}
    waits = sorted(at[child, "started"] - at[parent, "completed"] for parent, child in rows.dependencies)
    assert len(waits) == CHAIN - 1
    print(f"last dependency done to child started: p50 {waits[len(waits) // 2]} ms, most {waits[-1]} ms")
    assert waits[len(waits) // 2] <= P99_MS
    assert waits[-1] <= P99_MS * NOISE
