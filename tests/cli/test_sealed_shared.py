"""Secrets in input contexts where several servers share a PostgreSQL store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from muster_command import MUSTER, run_muster
from patience import PATIENCE_S
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
        told = run_muster(folder, "secrets", "rotate")
        assert told.stdout == "a new key: 0 secrets, 0 webhooks and 1 tasks sealed anew\n", told.stderr
        dumped = run_muster(folder, "db", "backup").stdout
        assert ".dump" in dumped
        for path in folder.rglob("*"):
            if path.is_file():
                assert VALUE.encode() not in path.read_bytes(), path
    finally:
        if server.process is not None and server.process.poll() is None:
            server.end(signal.SIGKILL)


@pytest.mark.usefixtures("postgres_programs")
def test_servers_may_have_its_key_in_their_environment(tmp_path: Path, postgres_store: str) -> None:
    key, other = "c0ffee" * 10 + "0123", "facade" * 10 + "4567"
    names = {"a": key, "b": key, "c": f"{other} {key}", "d": f"{key} {other}", "e": other}
    servers = {
        name: SharedServer(tmp_path / name, postgres_store, "", env={**os.environ, "MUSTER_VAULT_KEY": given})
        for name, given in names.items()
    }
    try:
        servers["a"].start()
        signing = (servers["a"].folder / ".muster" / "key").read_bytes()
        for server in servers.values():
            (server.folder / ".muster" / "key").write_bytes(signing)
        said = [*MUSTER, "secrets", "set", "TOKEN"]
        subprocess.run(
            said, cwd=servers["a"].folder, input=VALUE, text=True, check=True, stdout=subprocess.DEVNULL
        )
        servers["b"].start()
        servers["d"].start()
        servers["e"].begin()
        assert servers["e"].process is not None and servers["e"].process.wait(PATIENCE_S) != 0
        assert "MUSTER_VAULT_KEY: other servers of this store seal with another key" in servers["e"].log()
        assert servers["b"].local("GET", "/api/v1/secrets")[0]["name"] == "TOKEN"
        servers["c"].start()
        rotating = run_muster(servers["c"].folder, "secrets", "rotate")
        assert rotating.returncode == 6 and servers["b"].named in rotating.stderr, rotating.stderr
        assert servers["d"].named not in rotating.stderr, "it has the new key already"
        for name in "ab":
            servers[name].end()
        told = run_muster(servers["c"].folder, "secrets", "rotate").stdout
        assert "1 secrets" in told and "take all keys but the first out of MUSTER_VAULT_KEY of all" in told
        for name in "cd":
            servers[name].end()
        newest = SharedServer(
            tmp_path / "f", postgres_store, "", env={**os.environ, "MUSTER_VAULT_KEY": other}
        )
        servers["f"] = newest
        (newest.folder / ".muster" / "key").write_bytes(signing)
        newest.start()
        assert run_muster(newest.folder, "secrets", "rotate").returncode == 6, "nobody has a newer one"
        for path in tmp_path.rglob("*"):
            assert not path.is_file() or key.encode() not in path.read_bytes(), path
    finally:
        for server in servers.values():
            if server.process is not None and server.process.poll() is None:
                server.end(signal.SIGKILL)
