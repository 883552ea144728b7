"""Files of another version in the place of Muster's own, while a crew of it is up."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from contextlib import closing
from pathlib import Path

import pytest
from command_line import muster

import muster as installed
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from patience import until

PROGRAMS = ("shim.py", "guard.py", "__init__.py")
"""What a worker starts beside an agent, and what that imports: it talks to no other code of Muster."""
CONFIG = """\
[git]
worktrees = false
[agents.work]
command = ["true"]
"""


@pytest.mark.promise("L4")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each new process is of the new version")
def test_a_crew_goes_on_with_the_code_that_it_was_begun_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "lib" / "muster"
    shutil.copytree(Path(installed.__file__).parent, package)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    project = Project(tmp_path / "project")
    project.root.mkdir()
    (project.root / "muster.toml").write_text(CONFIG)
    assert muster(project.root, "up", "--daemon", "--workers", "1")[0] == 0
    monkeypatch.delenv("PYTHONPATH")
    try:
        with closing(Api(Connection(project.socket))) as api:
            [worker] = until(lambda: api.get("/api/v1/workers"), "the worker is there")
            for file in package.rglob("*.py"):
                if file.name not in PROGRAMS:
                    file.write_text("raise ImportError('of another version')\n")
            (package / "stores" / "sqlite" / "migrations" / "9999_later.sql").write_text(
                "of another version;"
            )
            for pid in (worker["pid"], api.get("/api/v1/owner")["pid"]):
                os.kill(pid, signal.SIGKILL)
            (project.root / "plan.md").write_text("# P\n\n- [ ] One\n- [ ] Two\n")
            code, said = muster(project.root, "run", str(project.root / "plan.md"))
            assert code == 0 and "already up" in said, said + project.log_file.read_text()
    finally:
        muster(project.root, "down")
