"""A worker that stands still for longer than its lease: its task goes elsewhere, its agent dies."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from rig import Rig, crew, spec
from verdict import assert_promises

from muster.client.api import Api
from muster.client.http import Connection
from muster.hosts.local_host import LocalHost
from muster.model.errors import MusterError, StaleEpoch
from patience import until

PIECES = 30
PIECE_S = 0.15


def _environment(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(entry.decode().split("=", 1) for entry in entries if b"=" in entry)


def _busy(rig: Rig) -> tuple[dict[str, Any], dict[str, Any], list[int]] | None:
    """(task, its worker, its agent's pids) of an attempt that has saved a checkpoint."""
    for task in rig.running():
        pids = rig.agent_pids(task["id"], task["epoch"])
        saved = rig.task(task["id"])["attempts"][-1]["checkpoints"]
        worker = next((w for w in rig.workers() if w["id"] == task["worker"]), None)
        if pids and saved and worker:
            return task, worker, pids
    return None


def _refused(call: Any) -> MusterError:
    with pytest.raises(StaleEpoch) as caught:
        call()
    return caught.value


@pytest.mark.promise("S3")
def test_a_stopped_worker_loses_its_task_its_agent_and_its_word(tmp_path: Path) -> None:
    with crew(tmp_path, pieces=PIECES, piece_s=PIECE_S) as rig:
        rig.add("p", [*(spec(f"t{n}") for n in range(4)), spec("last", ("t0", "t1"))])
        task, worker, pids = until(lambda: _busy(rig), "an attempt has saved a checkpoint")
        token = _environment(pids[0])["MUSTER_TOKEN"]
        os.kill(worker["pid"], signal.SIGSTOP)
        try:
            until(
                lambda: rig.task(task["id"])["task"]["epoch"] > task["epoch"],
                "the task was given to another worker",
            )
            # Its tree went before the task did.
            host = LocalHost()
            assert not [pid for pid in pids if host.identify(pid)]
            assert worker["id"] not in [w["id"] for w in rig.workers()]

            attempt = f"/attempt/v1/{task['id']}/{task['epoch']}"
            api = Api(Connection(rig.project.socket), {"Authorization": f"Bearer {token}"})
            _refused(lambda: api.post(f"{attempt}/progress", {"percent": 99}))
            stale = {"taskId": task["id"], "epoch": task["epoch"]}
            _refused(lambda: rig.api.post("/worker/v1/complete", stale))
            _refused(lambda: rig.api.post("/worker/v1/fail", {**stale, "kind": "crash", "message": "late"}))
            api.close()
        finally:
            os.kill(worker["pid"], signal.SIGCONT)
        # Awake again it finds itself declared dead, and ends by itself.
        until(lambda: worker["pid"] not in rig.crew_pids(), "the late worker has ended")
        until(lambda: len(rig.workers()) == 3, "another one took its place")
        until(rig.all_done, "everything is done")
        history = assert_promises(rig, pieces=PIECES)
    resumed = [deed for deed in history.deeds if deed.task_id == task["id"]]
    first = {deed.what for deed in resumed if deed.epoch == task["epoch"]}
    again = {deed.what for deed in resumed if deed.epoch > task["epoch"]}
    assert len(first & again) <= 1, "what was checkpointed is not done again"


def test_an_agent_that_sheds_its_mark_dies_with_its_worker(tmp_path: Path) -> None:
    with crew(tmp_path) as rig:
        script = f"env -i setsid sh -c 'echo $$ > {tmp_path}/shed; exec sleep 300' & sleep 300"
        rig.add("p", [spec("shed", description=script, agent="shell")])
        shed = tmp_path / "shed"
        until(lambda: shed.exists() and shed.read_text().strip(), "the process has started")
        pid = int(shed.read_text())
        host = LocalHost()
        assert host.identify(pid)
        worker = until(lambda: next((w for w in rig.workers() if w["holds"]), None), "its worker is known")
        # A tree's pids are written down every second; without its mark, only what was seen is found.
        record = until(lambda: next(tmp_path.glob(".muster/attempts/*/1/pids"), None), "it is recorded")
        until(lambda: str(pid) in record.read_text(), "the process was noted")
        os.kill(worker["pid"], signal.SIGKILL)
        until(lambda: host.identify(pid) is None, "the process without a mark is gone")
