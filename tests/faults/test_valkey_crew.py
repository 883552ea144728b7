"""`muster serve --runtime`: a real crew and a real Valkey, which is harmed while it works."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from test_run import folder, started, until
from test_serve import ask, at
from valkey import Valkey

from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster_command import run_muster as muster
from real_servers import own_folder
from valkey_faults import HarmedValkey

__all__ = ["at", "folder"]

CONFIG = """\
agent = "work"
[agents.work]
command = ["sh", "-c", '''
echo $MUSTER_TASK_ID >>$MUSTER_ROOT/begun
until [ -e $MUSTER_ROOT/go ]; do sleep 0.1; done
''']
prompt = "none"
[git]
worktrees = false
"""
PLAN = "# Plan\n\n" + "".join(f"- [ ] Step {n} {{#s{n}}}\n" for n in range(6))


@pytest.fixture
def harmed() -> Iterator[HarmedValkey]:
    with own_folder() as own:
        own.mkdir()
        made = HarmedValkey(own)
        try:
            yield made
        finally:
            made.end()


@pytest.mark.promise("S14")
def test_a_crew_works_on_while_its_valkey_comes_goes_and_forgets(
    folder: Path, at: str, harmed: HarmedValkey
) -> None:
    (folder / "muster.toml").write_text(CONFIG)
    (folder / "plan.md").write_text(PLAN)
    api = Api(Connection(Project(folder).socket))

    def valkey_is(state: str) -> None:
        until(lambda: api.get("/health/coordinator")["valkey"] == state, f"Valkey is {state}")

    with started(folder, "serve", "--listen", at, "--workers", "2", "--runtime", harmed.url):
        until(lambda: ask(at, "/health/ready")[0] == 200, "it is ready though there is no Valkey")
        valkey_is("away")
        assert api.get("/health/coordinator")["status"] == "healthy"
        assert muster(folder, "plan", "add", "plan.md").returncode == 0
        harmed.start()
        valkey_is("connected")
        with closing(Valkey.from_url(harmed.url, decode_responses=True)) as client:
            for _ in range(2):
                until(lambda: client.scard("tasks:active:1") == 1, "what is held is shown, and shown again")
                until(lambda: len(list(client.scan_iter("agent:heartbeat:worker-*"))) == 2, "both are heard")
                client.flushall()
        harmed.kill()
        valkey_is("away")
        (folder / "go").touch()
        until(lambda: "COMPLETED" in str(api.get("/api/v1/agent-tasks")), "work goes on without")
        harmed.start()
        harmed.flush()
        until(
            lambda: {task["status"] for task in api.get("/api/v1/agent-tasks")} == {"COMPLETED"},
            "all is done",
        )
        valkey_is("connected")
        assert muster(folder, "audit", "verify").returncode == 0
        assert muster(folder, "down").returncode == 0
    begun = (folder / "begun").read_text().split()
    assert len(begun) == len(set(begun)) == 6, "each was done once"
    log = (folder / ".muster" / "muster.log").read_text()
    assert "is away" in log and "is there again" in log


def test_doctor_names_one_that_is_away_and_no_password(
    folder: Path, harmed: HarmedValkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUSTER_RUNTIME_URL", harmed.url.replace("//", "//:tiger@"))

    def told() -> dict[str, object]:
        said = muster(folder, "doctor", "--offline", "--json").stdout
        (found,) = [one for one in json.loads(said)["checks"] if one["name"] == "Valkey"]
        assert "tiger" not in said
        return found

    away = told()
    assert away["ok"] is None and "everything goes on" in str(away["fix"])
    monkeypatch.setenv("MUSTER_RUNTIME_URL", harmed.url)
    harmed.start()
    assert told()["ok"] is True
    monkeypatch.setenv("MUSTER_RUNTIME_URL", harmed.url.replace("//", "//:tiger@"))
    shown = muster(folder, "config", "show")
    assert ":***@127.0.0.1" in shown.stdout
    assert "tiger" not in shown.stdout + shown.stderr


@pytest.mark.parametrize("url", ["valkey://", "http://h/0", "valkey://h/0?db=1", "valkey://:tiger@h/0"])
def test_a_wrong_address_is_refused_before_anything_is_started(folder: Path, at: str, url: str) -> None:
    """So is a password that everybody could see."""
    done = muster(folder, "serve", "--listen", at, "--runtime", url)
    assert done.returncode == 2
    assert (
        "--runtime holds" if "tiger" in url else "runtime.url"
    ) in done.stderr and "tiger" not in done.stderr
    assert not (folder / ".muster" / "muster.sock").exists()
