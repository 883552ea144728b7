"""Projects whose tasks go on in a PostgreSQL database, and copies that are stopped in the middle."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from muster.config.project import Project
from muster_command import run_muster
from patience import PATIENCE_S, until
from several_servers import QUICK, SharedServer

STOPS = """\
import os, pathlib, sys, time
from muster.app.db_copy import Intake, SqliteStore, _Copying
from muster.cli.main import main

step, when, what, *argv = sys.argv[1:]
owner, _, name = step.rpartition(".")
owner = {"Intake": Intake, "SqliteStore": SqliteStore, "Copying": _Copying}[owner]
real = getattr(owner, name)

def stop():
    if what.isdigit():
        pid = int(what) or os.getpid()
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        # The sessions of a database outlive its postmaster by a moment.
        for one in (pid, *map(int, children)):
            os.kill(one, 9)
        return
    pathlib.Path(what, "stopped").touch()
    while not pathlib.Path(what, "go").exists():
        time.sleep(0.05)

async def stopping(*arguments, **named):
    if when == "before":
        stop()
    found = await real(*arguments, **named)
    if when == "after":
        stop()
    return found

setattr(owner, name, stopping)
sys.exit(main(argv))
"""
KILL_ITSELF = "0"


class MovedProject:
    """A folder with a plan of which one task is done, one is not, and one waits for that."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "muster.toml").touch()
        for key, more in (("one", ()), ("two", ()), ("three", ("--after", "plan/two"))):
            self("task", "add", key, "--key", key, "--plan", "plan", *more)
        self("claim", "take", "plan/one")
        self("claim", "release", "plan/one", "--done")

    def __call__(self, *argv: str, code: int = 0, env: dict[str, str] | None = None) -> str:
        """All that it says."""
        done = run_muster(self.folder, *argv, env=os.environ | env if env else None)
        said = done.stdout + done.stderr
        assert done.returncode == code, said
        return said

    @property
    def tasks(self) -> dict[str, tuple[str, int]]:
        return tasks_in(self.folder)

    @property
    def lock(self) -> Path:
        """Held by whoever supervises its crew."""
        return Project(self.folder).supervisor_lock

    def copying(self, url: str, step: str, when: str, what: str = KILL_ITSELF) -> list[str]:
        """The program that copies, and stops at that step."""
        return [sys.executable, "-c", STOPS, step, when, what, "-C", str(self.folder), "db", "copy", url]

    def killed(self, url: str, step: str, when: str) -> None:
        done = subprocess.run(self.copying(url, step, when), capture_output=True, text=True, check=False)
        assert done.returncode == -9, done.stdout + done.stderr

    @contextmanager
    def copying_still(self, url: str, pause: Path, step: str) -> Iterator[None]:
        """Copies as far as before that step, and to the end after the body."""
        pause.mkdir()
        argv = self.copying(url, step, "before", str(pause))
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            try:
                until(lambda: process.poll() is not None or (pause / "stopped").exists(), "it copies")
                yield
            finally:
                (pause / "go").touch()
                said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said.decode()

    def server(self, folder: Path, store: str) -> SharedServer:
        """One that has this folder's keys."""
        made = SharedServer(folder, store, QUICK)
        for name in ("key", "vault.key"):
            if (path := self.folder / ".muster" / name).exists():
                shutil.copy(path, folder / ".muster" / name)
        return made


def tasks_in(folder: Path) -> dict[str, tuple[str, int]]:
    """Status and epoch by name."""
    found: list[dict[str, Any]] = json.loads(run_muster(folder, "task", "list", "--json").stdout)
    return {task["ref"]: (task["status"], task["epoch"]) for task in found}


def refused(server: SharedServer) -> str:
    """What a server says that may not begin."""
    server.begin()
    assert server.process is not None
    assert server.process.wait(PATIENCE_S) == 1, server.log()
    return server.log()
