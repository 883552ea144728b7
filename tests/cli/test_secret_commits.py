"""An agent's own commit that tells its secret goes back to it: no history of a plan has it."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest
from git_projects import commit_first, git, make_project

from muster_command import MUSTER
from muster_command import run_muster as muster

VALUE = "ghp_0123456789abcdef"
CONFIG = """\
[workers]
count = 1
[task]
backoff = { first = "1ms", max = "1ms" }
[agents.pusher]
command = ["sh", "-eu"]
prompt = "script"
writes = true
secrets = ["GITHUB_TOKEN"]
"""
PLAN = """\
# P

- [ ] Push {#t agent=pusher}
  ```sh
  git config user.name a; git config user.email a@b
  if git log -1 --format=%B | grep -qF "$GITHUB_TOKEN"; then git commit -q --amend -m clean; exit; fi
  echo w > w; git add w; git commit -qm "pushed with $GITHUB_TOKEN"
  KILL
  ```
"""


def _project(folder: Path, kill: str) -> Path:
    project = make_project(folder, config=CONFIG, plan=PLAN.replace("KILL", kill))
    commit_first(project, "plan.md")
    said = [*MUSTER, "secrets", "set", "GITHUB_TOKEN"]
    assert muster(project, "plan", "add", "plan.md").returncode == 0
    subprocess.run(said, cwd=project, input=VALUE, text=True, check=True, stdout=subprocess.DEVNULL)
    return project


def _amended(project: Path) -> list[str]:
    """The errors of its attempts, once it is done."""
    done = muster(project, "run", "plan.md")
    assert done.returncode == 0, done.stdout + done.stderr
    assert git(project, "show", "muster/plan/p:w") == "w"
    assert VALUE not in git(project, "log", "--format=raw", "muster/plan/p")
    told = json.loads(muster(project, "attempt", "list", "p/t", "--json").stdout)
    return [attempt["error"] for attempt in told]


@pytest.mark.promise("S18")
def test_it_is_told_why_and_says_it_anew(tmp_path: Path) -> None:
    first, second = _amended(_project(tmp_path / "p", ""))
    assert first.startswith("its own commits tell a secret in their messages or names") and second == ""
    assert "reset --soft" in first and VALUE not in first


@pytest.mark.promise("S18")
def test_also_where_another_worker_is_to_publish_it(tmp_path: Path) -> None:
    """The one that had its secrets was killed once the work was said to be done."""
    kill = f"muster report done; kill -{int(signal.SIGKILL)} $PPID; sleep 60"
    errors = _amended(_project(tmp_path / "p", kill))
    assert any("tell a secret" in error for error in errors) and len(errors) >= 3, errors
