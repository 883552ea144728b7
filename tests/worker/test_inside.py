"""What comes from inside an attempt's process tree is that attempt's word, with a token or without."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from real_crew import crew

from muster.client.api import Api
from patience import until

CONFIG = '[health]\nheartbeat = "200ms"\n[workers]\nslots = 2\n[task]\nfailures = 0\n'
MUSTER = f"{sys.executable} -m muster.cli.main"
WAYS = {
    "with its token": "{}",
    "without it": "env -u MUSTER_TOKEN -u MUSTER_TASK_ID {}",
    "without anything": "env -i HOME=$HOME PATH=$PATH {}",
    "away from its shell": "(setsid env -i HOME=$HOME PATH=$PATH sh -c 'sleep 0.3; {} ; "
    "echo $? > ended; mv ended code' > said 2>&1 &) ; "
    "until test -e code; do sleep 0.05; done; cat said >&2; exit $(cat code)",
}
ATTEMPT = "inside attempt:p/t"
WHO = dict.fromkeys(WAYS, ATTEMPT) | {"away from its shell": "a process that worker-"}
FORBIDDEN = (
    "answer p/asks yes",
    "task complete p/other",
    "task cancel p/other",
    "plan cancel p",
    "orchestrator pause",
    "down --now",
)


class Crew:
    def __init__(self, api: Api) -> None:
        self.api = api

    def add(self, key: str, script: str, **fields: Any) -> None:
        task = {"key": key, "title": key, "agent": "shell", "description": script, "maxRetries": 0} | fields
        self.api.post("/api/v1/plans", {"plan": "p", "source": None, "actor": "test", "tasks": [task]})

    def detail(self, key: str) -> dict[str, Any]:
        task_id = self.api.get("/api/v1/resolve", {"ref": f"p/{key}"})["taskId"]
        found: dict[str, Any] = self.api.get(f"/api/v1/agent-tasks/{task_id}")
        return found

    def ends(self, key: str) -> dict[str, Any]:
        until(lambda: self.detail(key)["task"]["status"] in ("COMPLETED", "FAILED", "PAUSED"), f"{key} ends")
        return self.detail(key)


@pytest.mark.parametrize("way", WAYS)
def test_it_decides_nothing_that_is_for_people(tmp_path: Path, way: str) -> None:
    (tmp_path / "muster.toml").write_text(CONFIG)
    with crew(tmp_path, "owner", "worker") as (api, _):
        run = Crew(api)
        run.add("asks", f'{MUSTER} report ask "may I?"; sleep 60')
        run.add("done", "true")
        run.add("other", "true", delayS=3600)
        run.add("held", "true", delayS=3600)
        held = run.detail("held")["task"]["id"]
        api.post(f"/api/v1/agent-tasks/{held}/pause", {"actor": "ada"})
        assert run.ends("asks")["task"]["pausedReason"] == "question"
        run.ends("done")
        for number, words in enumerate(FORBIDDEN):
            command = WAYS[way].format(f"{MUSTER} -C {tmp_path} {words}")
            run.add(f"t{number}", f"rm -f code said; cd {tmp_path}; {command}", agent="shell")
            failed = run.ends(f"t{number}")
            assert failed["task"]["status"] == "FAILED", words
            assert f"is for a person, and this comes from {WHO[way]}" in failed["logTail"], words
        assert run.detail("asks")["task"]["status"] == "PAUSED"
        # What is no decision of people's is its own, under its name.
        add = WAYS[way].format(
            f"{MUSTER} -C {tmp_path} task add more --key more --plan p --agent shell --prompt true"
        )
        run.add("adds", f"rm -f code said; cd {tmp_path}; {add}")
        added = run.ends("adds")
        assert added["task"]["status"] == "COMPLETED", added["logTail"]
        enqueued = run.detail("more")["events"][0]
        assert enqueued["actor"].startswith("attempt:"), json.dumps(enqueued)
        api.post(
            f"/api/v1/agent-tasks/{run.detail('asks')['task']['id']}/answer", {"actor": "ada", "text": "y"}
        )
