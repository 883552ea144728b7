"""Secrets in input contexts where several servers share a PostgreSQL store."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from muster_command import MUSTER, run_muster
from several_servers import SharedServer

VALUE = "sk-canary-0123456789"


@pytest.mark.usefixtures("postgres_programs")
def test_they_are_sealed_in_postgresql_and_given_to_the_agent_alone(
    tmp_path: Path, postgres_store: str
) -> None:
    server = SharedServer(tmp_path / "a", postgres_store, "")
    try:
        server.start()
        folder = server.folder
        said = [*MUSTER, "task", "add", "ours", "--key", "ours", "--cap", "x", "--input-context", "-"]
        context = json.dumps({"apiKey": VALUE, "n": 1})
        subprocess.run(said, cwd=folder, input=context, text=True, check=True, stdout=subprocess.DEVNULL)
        shown = json.loads(run_muster(folder, "task", "show", "ours", "--json").stdout)["inputContext"]
        assert shown["apiKey"].startswith("********#") and shown["n"] == 1
        more = [*MUSTER, "task", "edit", "ours", "--input-context", "-"]
        changed = json.dumps(shown | {"n": 2})
        subprocess.run(more, cwd=folder, input=changed, text=True, check=True, stdout=subprocess.DEVNULL)
        put = ["api", "PUT", "/api/v1/agents/dev", "--data", '{"capabilities": ["x"], "actor": "ann"}']
        done = run_muster(folder, *put)
        assert done.returncode == 0, done.stderr
        token = json.loads(done.stdout)["token"]
        claim = f"http://127.0.0.1:{server.port}/api/v1/agents/dev/claim"
        asked = Request(claim, b'{"slots": 1}', {"Authorization": f"Bearer {token}"})
        with urlopen(asked) as answer:
            (job,) = json.load(answer)["jobs"]
        assert job["inputContext"] == {"apiKey": VALUE, "n": 2}
        assert run_muster(folder, "secrets", "rotate").returncode == 6
        dumped = run_muster(folder, "db", "backup").stdout
        assert ".dump" in dumped
        for path in folder.rglob("*"):
            if path.is_file():
                assert VALUE.encode() not in path.read_bytes(), path
    finally:
        if server.process is not None and server.process.poll() is None:
            server.end(signal.SIGKILL)
