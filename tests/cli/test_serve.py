"""`muster serve`: real processes, asked over TCP."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from test_run import folder, started, until

from muster.client.api import Api
from muster.client.http import Connection, answers
from muster.config.project import Project
from muster_command import run_muster as muster

__all__ = ["folder"]


@pytest.fixture
def at() -> str:
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"127.0.0.1:{free.getsockname()[1]}"


def ask(at: str, path: str, token: str = "") -> tuple[int, Any]:
    """A status of 0: nobody answers."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"http://{at}{path}", headers=headers), timeout=10
        ) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)
    except OSError:
        return 0, None


def test_a_server_is_up_again_after_its_owner_or_its_supervisor_was_killed(folder: Path, at: str) -> None:
    with started(folder, "serve", "--listen", at, "--workers", "1") as server:
        until(lambda: ask(at, "/health/ready") == (200, {"status": "ok"}), "it is ready")
        assert ask(at, "/api/v1/status")[0] == 401
        assert ask(at, "/api/v1/openapi.json")[1]["openapi"] == "3.1.0"
        api = Api(Connection(Project(folder).socket))
        until(
            lambda: api.get("/health/coordinator")["coordinator"]["cycleCount"] > 1,
            "it looks again and again",
        )
        assert muster(folder, "orchestrator", "status").returncode == 0
        owner = api.get("/api/v1/owner")["pid"]
        os.kill(owner, signal.SIGKILL)
        until(lambda: ask(at, "/health/live")[0] == 200, "another one listens there")
        server.kill()
        server.wait()
    with started(folder, "serve", "--listen", at, "--workers", "1") as server:
        assert server.stdout is not None
        said = []
        for line in server.stdout:
            said.append(line)
            if line.startswith("Serving"):
                break
        assert any("took over from a dead supervisor: owner" in line for line in said), said
        assert ask(at, "/health/live")[0] == 200
        assert muster(folder, "down").returncode == 0
        assert server.wait(60) == 0
    assert ask(at, "/health/live")[0] == 0


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_first_token_is_left_in_a_file_for_its_owner(
    folder: Path, at: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_LOG_FORMAT", form)
    with started(folder, "serve", "--listen", at, "--workers", "1") as server:
        until(lambda: ask(at, "/health/ready")[0] == 200, "it is ready")
        kept = folder / ".muster" / "first-token"
        assert kept.stat().st_mode & 0o777 == 0o600
        token = kept.read_text().strip()
        status, told = ask(at, "/api/v1/whoami", token)
        assert (status, told["role"], told["workspace"]) == (200, "OWNER", "default")
        assert muster(folder, "down").returncode == 0
        assert server.wait(60) == 0
        assert server.stdout is not None
        told = server.stdout.read()
        assert f"Token    in {kept}" in told and token not in told
        assert form == "text" or [json.loads(line) for line in told.splitlines()], "whole lines of it"
        assert token not in (folder / ".muster" / "muster.log").read_text()
    kept.unlink()
    with started(folder, "serve", "--listen", at, "--workers", "1"):
        until(lambda: ask(at, "/health/ready")[0] == 200, "it is ready")
        assert not kept.exists(), "there is one already"
        assert ask(at, "/api/v1/whoami", token)[0] == 200
        assert muster(folder, "down").returncode == 0


def test_doctor_warns_of_a_first_token_that_members_could_read(folder: Path, at: str) -> None:
    def warned() -> list[dict[str, Any]]:
        done = muster(folder, "doctor", "--offline", "--json")
        assert done.returncode == 0, done.stdout
        return [one for one in json.loads(done.stdout)["checks"] if one["name"] == "first token"]

    kept = folder / ".muster" / "first-token"
    with started(folder, "serve", "--listen", at, "--workers", "1"):
        until(kept.exists, "it has left its token")
        until(lambda: ask(at, "/health/ready")[0] == 200, "it is ready")
        assert warned() == []
        assert muster(folder, "member", "set", "ada", "--role", "MEMBER").returncode == 0
        (told,) = warned()
        assert told["ok"] is None and told["fix"] == f"once you have it: rm {kept}"
        kept.unlink()
        assert warned() == []
        assert muster(folder, "down").returncode == 0


@pytest.mark.parametrize("time", ["0s", "0", "0.0", "-1s"])
def test_a_token_that_would_never_count_is_not_made(folder: Path, time: str) -> None:
    assert muster(folder, "member", "set", "ada", "--role", "MEMBER").returncode == 0
    done = muster(folder, "token", "create", "laptop", "--member", "ada", f"--expires={time}")
    assert done.returncode == 2 and "--expires" in done.stderr, done
    assert json.loads(muster(folder, "token", "list", "--json").stdout) == []
    assert muster(folder, "token", "create", "short", "--member", "ada", "--expires", "500ms").returncode == 0
    (made,) = json.loads(muster(folder, "token", "list", "--json").stdout)
    assert made["expiresAtMs"] - made["createdAtMs"] == 1000


def test_a_member_of_a_workspace_reaches_that_one_alone(folder: Path, at: str) -> None:
    def said(*words: str) -> str:
        done = muster(folder, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    said("workspace", "create", "acme")
    said("member", "set", "ada", "--role", "ADMIN", "--workspace", "acme")
    token = said("token", "create", "laptop", "--member", "ada", "--workspace", "acme")
    said("task", "add", "ours", "--plan", "p", "--prompt", "true")
    with started(folder, "serve", "--listen", at, "--workers", "1"):
        until(lambda: ask(at, "/health/ready")[0] == 200, "it is ready")
        assert ask(at, "/api/v1/agent-tasks", token) == (200, [])
        number = json.loads(said("token", "list", "--workspace", "acme", "--json"))[0]["id"]
        said("token", "revoke", str(number), "--workspace", "acme")
        assert ask(at, "/api/v1/agent-tasks", token)[0] == 401, "from the next request on"
        assert muster(folder, "down").returncode == 0
    assert "revoked" in said("token", "list", "--workspace", "acme")
    said("member", "remove", "ada", "--workspace", "acme")
    assert said("member", "list", "--workspace", "acme").startswith("0 members")
    assert "laptop" not in said("audit", "list", "--subject", "token"), "that is another workspace's"
    done = muster(folder, "member", "list", "--workspace", "nowhere")
    assert done.returncode == 3 and "muster workspace list" in done.stderr


FEW = ("sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh")


def test_more_may_connect_than_a_program_has_files_by_itself(folder: Path, at: str) -> None:
    host, _, port = at.rpartition(":")
    with started(folder, "serve", "--listen", at, "--workers", "1", through=FEW):
        until(lambda: ask(at, "/health/live")[0] == 200, "it answers")
        with ExitStack() as stack:
            for _ in range(400):
                stack.enter_context(socket.create_connection((host, int(port)), 10))
            assert ask(at, "/health/live")[0] == 200
        assert muster(folder, "down").returncode == 0


def test_without_login_it_is_asked_as_its_user(folder: Path, at: str) -> None:
    with started(folder, "serve", "--listen", at, "--without-login", "--workers", "1"):
        until(lambda: ask(at, "/api/v1/status")[0] == 200, "it answers")
        assert muster(folder, "down").returncode == 0


def test_up_listens_where_the_settings_say_so(folder: Path, at: str) -> None:
    with (folder / "muster.toml").open("a") as settings:
        settings.write(f'[serve]\nlisten = "{at}"\n')
    with started(folder, "up", "--workers", "1"):
        until(lambda: ask(at, "/health/live")[0] == 200, "it answers")
        assert muster(folder, "down").returncode == 0


def test_what_cannot_be_is_told_before_anything_starts(folder: Path, at: str) -> None:
    everywhere = muster(folder, "serve", "--listen", "0.0.0.0:7420", "--without-login", env=dict(os.environ))
    assert everywhere.returncode == 2
    assert "anybody who reaches 0.0.0.0:7420 could run commands here" in everywhere.stderr
    with socket.create_server(("127.0.0.1", int(at.rpartition(":")[2]))):
        taken = muster(folder, "serve", "--listen", at, env=dict(os.environ))
    assert (taken.returncode, f"cannot listen on {at}" in taken.stderr) == (6, True)
    assert muster(folder, "serve", "--listen", "here", env=dict(os.environ)).returncode == 2
    assert not (folder / ".muster" / "muster.sock").exists()


def test_serve_where_an_owner_listens_to_nobody_else_listens_or_says_what_to_do(
    folder: Path, at: str
) -> None:
    with started(folder, "up", "--workers", "1") as crew:
        api = Api(Connection(Project(folder).socket))
        until(lambda: answers(Project(folder).socket) and api.get("/api/v1/workers"), "the crew is up")
        refused = muster(folder, "serve", "--listen", at, env=dict(os.environ))
        assert refused.returncode == 6, refused.stderr
        assert "nobody but you reaches it; nothing was started" in refused.stderr
        assert f"muster down, then muster serve --listen {at}" in refused.stderr
        owner = api.get("/api/v1/owner")
        assert owner["listening"] == ""
        crew.kill()
        crew.wait()
    taken_by = ("127.0.0.1", int(at.rpartition(":")[2]))
    with socket.create_server(taken_by):
        taken = muster(folder, "serve", "--listen", at, env=dict(os.environ))
        assert (taken.returncode, f"cannot listen on {at}" in taken.stderr) == (6, True), taken.stdout
    with started(folder, "serve", "--listen", at, "--workers", "1") as server:
        assert server.stdout is not None
        said = []
        for line in server.stdout:
            said.append(line)
            if line.startswith("Serving"):
                break
        assert said[-1] == f"Serving  http://{at}\n", said
        assert ask(at, "/health/live")[0] == 200, "it is true"
        assert f"owner {owner['pid']} does not listen at http://{at}: another one takes its place" in "".join(
            said
        )
        token = (folder / ".muster" / "first-token").read_text().strip()
        assert ask(at, "/api/v1/whoami", token)[0] == 200
        assert muster(folder, "down").returncode == 0
        assert server.wait(60) == 0
