"""The benchmark runs, and its JSON can be read by a machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RUN = Path(__file__).resolve().parents[2] / "bench" / "run.py"


def bench(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(RUN), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, **env})


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """(what was printed, the JSON) of one quick run, by a user whose own settings would end it at once."""
    folder = tmp_path_factory.mktemp("bench")
    file, broken = folder / "figures.json", folder / "muster" / "muster.toml"
    broken.parent.mkdir()
    broken.write_text("[broken", "utf-8")
    only = ("--quick", "--only", "drain,enqueue,growth", "--json", str(file))
    done = bench(*only, XDG_CONFIG_HOME=str(folder), MUSTER_TASK_RETRIES="many")
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(file.read_text("utf-8"))


def test_every_figure_is_positive_and_judged(quick):
    _, figures = quick
    assert list(figures["sections"]) == ["drain", "enqueue", "growth"]
    assert figures["quick"] is True
    assert list(figures["seconds"]) == ["drain", "enqueue", "growth"]
    rows = [row for found in figures["sections"].values() for row in found]
    measured = [row for row in rows if not row["notRun"]]
    assert len(measured) >= 27
    for row in measured:
        assert 0 < row["min"] <= row["median"] <= row["max"], row
        assert row["unit"], row
        assert (row["ok"] is None) == (row["target"] == ""), row
        assert row["ok"] is not False or row["boundBy"], f"a miss says what bounds it: {row}"


def test_what_was_not_run_says_why(quick):
    _, figures = quick
    rows = [row for found in figures["sections"].values() for row in found]
    skipped = {row["what"]: row["notRun"] for row in rows if row["notRun"]}
    assert skipped.keys() == {
        "drain, huey on SQLite",
        "drain, dbos on SQLite",
        "drain, batches of 100, to the fastest peer",
        "enqueue one by one, huey on SQLite",
        "enqueue one by one, dbos on SQLite",
    }
    assert set(skipped.values()) == {"peers are left out of a quick run", "no peer was run"}


def test_the_table_holds_each_row(quick):
    printed, figures = quick
    for found in figures["sections"].values():
        for row in found:
            assert row["what"] in printed


def test_an_unknown_section_is_named_with_those_there_are():
    done = bench("--only", "nonsense")
    assert done.returncode == 2
    assert "no section nonsense" in done.stderr
    assert "drain" in done.stderr
