"""Secrets in a task's input context whose agent works on another host: it has them there, and nobody else."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from test_remote_worker import Served, elsewhere, folder, served, working

from muster_command import MUSTER
from patience import until

__all__ = ["elsewhere", "folder", "served"]

VALUE = "sk-canary-0123456789"
GIVEN = {"apiKey": VALUE, "branch": "main"}
SCRIPT = """\
cp "$MUSTER_INPUT_CONTEXT_FILE" KEEP/given; echo "$MUSTER_INPUT_CONTEXT_FILE" > KEEP/place; env > KEEP/env
cat "$MUSTER_INPUT_CONTEXT_FILE"; cat "$MUSTER_INPUT_CONTEXT_FILE" >&2
muster report checkpoint - < "$MUSTER_INPUT_CONTEXT_FILE"
muster report progress 40 --step "at $(cat "$MUSTER_INPUT_CONTEXT_FILE")"
cp "$MUSTER_INPUT_CONTEXT_FILE" left; muster report artifact left left; rm left; touch KEEP/ready
while [ ! -e KEEP/go ]; do sleep 0.05; done
cp "$MUSTER_INPUT_CONTEXT_FILE" "$MUSTER_RESULT"; exit 0
"""
"""What its prompt has after it is no command."""


def holding(root: Path, but: Path | None = None) -> list[Path]:
    found = []
    for path in root.rglob("*"):
        if path.is_file() and not (but is not None and path.is_relative_to(but)):
            data = path.read_bytes()
            found += [path] if VALUE.encode() in data else []
    return found


def test_an_agent_elsewhere_is_given_them_and_nothing_keeps_them(
    served: Served, elsewhere: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    keep = tmp_path_factory.mktemp("keep")
    script = SCRIPT.replace("KEEP", str(keep))
    with working(elsewhere, served, served.worker):
        until(served.far, "the worker is known")
        words = ("task", "add", "t", "--plan", "p", "--key", "t", "--agent", "far", "--prompt", script)
        said = [*MUSTER, *words, "--input-context", "-"]
        text = json.dumps(GIVEN)
        subprocess.run(said, cwd=served.folder, input=text, text=True, check=True, stdout=subprocess.PIPE)
        try:
            until((keep / "ready").exists, "it has said all of it")
            assert json.loads((keep / "given").read_text()) == GIVEN
            place = Path((keep / "place").read_text().strip())
            assert place.is_relative_to(elsewhere) and place.stat().st_mode & 0o777 == 0o600
            assert VALUE not in (keep / "env").read_text()
            assert not holding(served.folder)
            assert not holding(elsewhere, but=elsewhere / ".muster" / "attempts"), (
                "it prints there until it ends"
            )
        finally:
            (keep / "go").touch()
        until(lambda: served.status("p/t") == "COMPLETED", "it is done")
        assert not place.exists()
    logs = served.said("logs", "p/t")
    assert logs.count('"apiKey":"****') + logs.count('"apiKey": "****') >= 2, "both streams came, with stars"
    shown = [logs, *(served.said(*words) for words in (("task", "show", "p/t", "--json"), ("audit", "list")))]
    shown.append(served.said("artifact", "get", "p/t", "left"))
    assert not [text for text in shown if VALUE in text]
    assert not holding(served.folder) and not holding(elsewhere)
