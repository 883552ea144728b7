"""People are told by a real crew: once each, also through the death of its owner."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

from test_run import started, until

from hook_receiver import Hook
from muster.client.api import Api
from muster.client.http import Connection, answers
from muster.config.project import Project
from muster_command import MUSTER
from muster_command import run_muster as muster
from patience import PATIENCE_S

SETTINGS = """\
agent = "shell"
[task]
retries = 0
[notify]
link = "https://muster.example"
[channels.phone]
kind = "ntfy"
url = "{url}"
private = true
secret = "NTFY_TOKEN"
tell = ["needs-you", "dead"]
[channels.chat]
kind = "slack"
secret = "SLACK"
tell = ["budget"]
"""
CHAT = "https://hooks.slack.com/services/T0/B0/zyxwvutsrqponmlk"
TOKEN = "tk_0123456789abcdef"


def ntfy(hook: Hook) -> list[dict[str, object]]:
    return [json.loads(body) for _, body in hook.got]


def test_each_matter_is_told_once_though_the_owner_dies_before_the_answer(tmp_path: Path, hook: Hook) -> None:
    (tmp_path / "muster.toml").write_text(SETTINGS.format(url=hook.url))
    for name, value in (("NTFY_TOKEN", TOKEN), ("SLACK", CHAT)):
        sealing = [*MUSTER, "secrets", "set", name]
        subprocess.run(sealing, cwd=tmp_path, input=value, text=True, check=True, capture_output=True)
    with started(tmp_path, "up", "--workers", "1") as crew:
        api = Api(Connection(Project(tmp_path).socket))
        until(lambda: answers(Project(tmp_path).socket), "the crew is up")
        assert muster(tmp_path, "task", "add", "Dies", "--prompt", "exit 3").returncode == 0
        until(lambda: hook.got, "the message is there")
        os.kill(api.get("/api/v1/owner")["pid"], signal.SIGKILL)
        hook.answers.set()
        until(lambda: len(hook.got) >= 2, "it comes again, for nobody knew that it was taken")
        told = json.loads(muster(tmp_path, "notify", "messages", "phone", "--json").stdout)
        until(lambda: _told(tmp_path), "it is known to be taken")
        listed = [muster(tmp_path, "notify", "list", *how).stdout for how in ((), ("--json",))]
        tested = muster(tmp_path, "notify", "test", "phone")
        assert (tested.returncode, tested.stdout) == (0, "phone  has taken a test: answered 204\n"), (
            tested.stderr
        )
        assert muster(tmp_path, "down").returncode == 0
        assert crew.wait(PATIENCE_S) == 0
    ids = [headers["webhook-id"] for headers, _ in hook.got]
    assert len(set(ids)) == 2 and ids[0] == ids[1], "one matter and a test"
    assert {headers["authorization"] for headers, _ in hook.got} == {f"Bearer {TOKEN}"}
    assert len(told) == 1
    for text in listed:
        assert (
            "phone" in text and "chat" in text and TOKEN not in text and CHAT.rpartition("/")[2] not in text
        )
    first = ntfy(hook)[0]
    assert (first["topic"], first["title"], first["tags"]) == ("hook", "tasks/dies has failed", ["dead"])


def _told(folder: Path) -> bool:
    kept = json.loads(muster(folder, "notify", "messages", "phone", "--json").stdout)
    return all(one["deliveredAtMs"] is not None for one in kept)
