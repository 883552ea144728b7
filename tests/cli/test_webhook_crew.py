"""Webhooks of a real crew: a receiver on this machine, and an owner that is killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from standardwebhooks import Webhook as Receiver
from test_run import started, until

from hook_receiver import Hook
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster_command import run_muster as muster
from patience import PATIENCE_S


def test_an_owner_that_is_killed_before_the_answer_sends_it_again(tmp_path: Path, hook: Hook) -> None:
    (tmp_path / "muster.toml").write_text('agent = "shell"\n[webhooks]\nprivate = true\n')
    made = muster(tmp_path, "--json", "webhook", "add", hook.url, "--kind", "task.status_changed")
    webhook = json.loads(made.stdout)
    assert muster(tmp_path, "task", "add", "a", "--prompt", "true").returncode == 0
    with started(tmp_path, "up", "--workers", "1") as crew:
        until(lambda: hook.got, "the first message is there")
        # It is written, sent, and nobody knows yet whether it was taken.
        api = Api(Connection(Project(tmp_path).socket))
        os.kill(api.get("/api/v1/owner")["pid"], signal.SIGKILL)
        hook.answers.set()
        until(lambda: len(_moves(hook)) >= 4, "all of them are there, the first one twice")
        assert muster(tmp_path, "down").returncode == 0
        assert crew.wait(PATIENCE_S) == 0
    ids = [headers["webhook-id"] for headers, _ in hook.got]
    assert ids[0] in ids[1:], "the same message has the same id"
    first_seen = list(dict.fromkeys(ids))
    told = {
        headers["webhook-id"]: Receiver(webhook["secret"]).verify(body, headers) for headers, body in hook.got
    }
    assert [told[one]["newStatus"] for one in first_seen] == ["ASSIGNED", "RUNNING", "COMPLETED"]
    kept = json.loads(muster(tmp_path, "--json", "webhook", "messages", str(webhook["id"])).stdout)
    assert [one["deliveredAtMs"] is not None for one in kept] == [True] * 3
    secret = webhook["secret"].encode()
    for path in tmp_path.joinpath(".muster").rglob("*"):
        if path.is_file():
            assert secret not in path.read_bytes(), f"{path} has the secret in clear"


def test_an_owner_that_is_killed_before_the_first_sending_sends_it_then(tmp_path: Path, hook: Hook) -> None:
    (tmp_path / "muster.toml").write_text('agent = "shell"\n[webhooks]\nprivate = true\n')
    assert muster(tmp_path, "webhook", "add", hook.url, "--kind", "task.status_changed").returncode == 0
    assert muster(tmp_path, "task", "add", "a", "--prompt", "true").returncode == 0
    hook.answers.set()
    point = tmp_path / "point"
    point.write_text("after_commit:1:Claim")  # with the row that tells of it
    points = Path(__file__).parents[1] / "crash_points"
    through = ("env", f"CRASH_POINT_FILE={point}", f"PYTHONPATH={points}")
    with started(tmp_path, "up", "--workers", "1", through=through) as crew:
        until(lambda: len(_moves(hook)) >= 3, "all of them are there")
        assert not point.exists(), "the owner has died there"
        assert muster(tmp_path, "down").returncode == 0
        assert crew.wait(PATIENCE_S) == 0
    assert _moves(hook) == ["ASSIGNED", "RUNNING", "COMPLETED"]


def _moves(hook: Hook) -> list[str]:
    return [json.loads(body)["newStatus"] for _, body in hook.got]
