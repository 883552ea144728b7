"""The benchmark runs, and its JSON can be read by a machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PEERS = "peers are left out of a quick run"
RUN = Path(__file__).resolve().parents[2] / "bench" / "run.py"


def bench(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(RUN), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, **env})


def test_a_quick_run_measures_and_shows_every_row_and_says_why_others_are_missing(tmp_path: Path) -> None:
    """By a user whose own settings would end it at once."""
    file, broken = tmp_path / "figures.json", tmp_path / "muster" / "muster.toml"
    broken.parent.mkdir()
    broken.write_text("[broken", "utf-8")
    only = ("--quick", "--only", "drain,enqueue,growth,app,followers", "--json", str(file))
    done = bench(*only, XDG_CONFIG_HOME=str(tmp_path), MUSTER_TASK_RETRIES="many")
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text("utf-8"))
    assert figures["quick"] is True
    assert (
        list(figures["sections"])
        == list(figures["seconds"])
        == ["drain", "enqueue", "growth", "app", "followers"]
    )
    rows = [row for found in figures["sections"].values() for row in found]
    measured = [row for row in rows if not row["notRun"]]
    assert len(measured) >= 31
    for row in measured:
        assert 0 < row["min"] <= row["median"] <= row["max"], row
        assert row["unit"], row
        assert (row["ok"] is None) == (row["target"] == ""), row
        assert row["ok"] is not False or row["boundBy"], f"a miss says what bounds it: {row}"
    assert {row["what"]: row["notRun"] for row in rows if row["notRun"]} == {
        "drain, huey on SQLite": PEERS,
        "drain, dbos on SQLite": PEERS,
        "drain, batches of 100, to the fastest peer": "no peer was run",
        "enqueue one by one, huey on SQLite": PEERS,
        "enqueue one by one, dbos on SQLite": PEERS,
        "muster.App, added and run, one by one, to persist-queue": PEERS,
        "muster.App, run, in batches of 100, to huey": PEERS,
    }
    for row in rows:
        assert row["what"] in done.stdout


def test_a_quick_run_on_postgres_measures_what_is_muster_s_own(tmp_path: Path, postgres: str) -> None:
    file = tmp_path / "figures.json"
    done = bench("--backend", "postgres", "--quick", "--json", str(file), TEST_POSTGRES=postgres)
    assert done.returncode == 0, done.stderr
    figures = json.loads(file.read_text("utf-8"))
    rows = [row for found in figures["sections"].values() for row in found]
    for row in rows:
        assert row["what"] in done.stdout
        if row["notRun"]:
            assert row["notRun"] in {PEERS, "it was not run"}, row
            continue
        assert 0 <= row["min"] <= row["median"] <= row["max"], row
        assert (row["ok"] is None) == (row["target"] == ""), row
        assert row["ok"] is not False or row["boundBy"], f"a miss says what bounds it: {row}"


def test_an_unknown_section_is_named_with_those_there_are():
    done = bench("--only", "nonsense")
    assert done.returncode == 2
    assert "no section nonsense" in done.stderr
    assert "drain" in done.stderr
