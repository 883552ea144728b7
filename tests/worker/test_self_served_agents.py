"""A program that serves itself as an agent, with plain HTTP to a real owner: it works, dies, and others go on."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from real_crew import crew

from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.model.errors import Conflict
from patience import until

ADA = {"actor": "ada"}
AGENTS = "/api/v1/agents"
TASKS = "/api/v1/agent-tasks"


class Program:
    """All that it knows is its agent's name and token."""

    def __init__(self, root: Path, owner: Api, name: str, **fields: Any) -> None:
        self.name = name
        body = {"heartbeatIntervalSeconds": 1, **fields, **ADA}
        token = owner.call("PUT", f"{AGENTS}/{name}", body)["token"]
        self._api = Api(Connection(Project(root).socket), {"Authorization": f"Bearer {token}"})

    def claim(self) -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = self._api.post(f"{AGENTS}/{self.name}/claim", {"waitS": 1})["jobs"]
        return jobs

    def beat(self, **fields: Any) -> dict[str, Any]:
        heard: dict[str, Any] = self._api.post(f"{AGENTS}/{self.name}/heartbeat", fields)
        return heard

    def progress(self, task_id: int, **fields: Any) -> None:
        self._api.call("PATCH", f"{TASKS}/{task_id}/progress", fields)

    def complete(self, task_id: int, **fields: Any) -> Any:
        return self._api.post(f"{TASKS}/{task_id}/complete", fields)


@pytest.mark.promise("S3", "S16")
def test_others_do_what_it_leaves_when_it_dies_or_drains(tmp_path: Path) -> None:
    (tmp_path / "muster.toml").write_text('[health]\nheartbeat = "200ms"\nlease = "1s"\n')
    with crew(tmp_path, "owner") as (api, _):

        def status(name: str) -> str:
            return str(api.get(f"{AGENTS}/{name}")["status"])

        number = api.post(TASKS, {"title": "long", **ADA})["id"]
        first = Program(tmp_path, api, "first", staleThresholdSeconds=5)
        (job,) = first.claim()
        first.progress(number, progressPercent=40, checkpointData={"done": 4})
        assert (job["epoch"], status("first")) == (1, "busy")
        second = Program(tmp_path, api, "second", staleThresholdSeconds=600)
        # Nothing is heard of the first one any more; the second one is there all the time.
        taken: list[dict[str, Any]] = []

        def looks() -> bool:
            taken.extend(second.claim())
            return bool(taken)

        until(looks, "the second one has its task")
        assert (taken[0]["taskId"], taken[0]["epoch"]) == (number, 2)
        assert json.loads(base64.b64decode(taken[0]["checkpoint"])) == {"done": 4}
        until(
            lambda: second.beat(currentTaskId=number)["tasks"][0]["current"] and status("first") == "offline",
            "the first one is taken for gone",
        )
        detail = api.get(f"{TASKS}/{number}")
        assert "nothing was heard of agent-" in str(detail["attempts"])
        # It is back: its old word counts for nothing, and it may work again.
        assert first.beat(currentTaskId=number)["tasks"][0]["current"] is False
        with pytest.raises(Conflict):
            first.complete(number, outputResult={"done": 4})
        assert status("first") == "idle"
        api.call("PATCH", f"{AGENTS}/second", {"status": "draining", **ADA})
        api.post(TASKS, {"title": "another", **ADA})
        assert (second.claim(), second.beat(currentTaskId=number)["drain"]) == ([], True)
        assert second.complete(number, outputResult={"done": 10})["status"] == "COMPLETED"
        assert second.beat()["status"] == "offline"
        (other,) = first.claim()
        first.complete(other["taskId"])
        assert [one["status"] for one in api.get(TASKS)] == ["COMPLETED", "COMPLETED"]
        assert api.get("/api/v1/audit/verify")["whole"]
