"""An owner and its workers as processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.hosts.local_host import LocalHost
from patience import until
from real_processes import answers


def start(root: Path, role: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", f"muster.app.{role}", str(root)], stderr=subprocess.DEVNULL
    )


@contextmanager
def crew(root: Path, *roles: str) -> Iterator[tuple[Api, list[subprocess.Popen[bytes]]]]:
    """One process for each role, "owner" or "worker"; in the end they are killed, with all they have started.

    So are those that the test has added to the list.
    """
    (root / ".muster").mkdir(mode=0o700)
    api = Api(Connection(Project(root).socket))
    processes = [start(root, role) for role in roles]
    try:
        until(lambda: answers(api), "the owner answers")
        yield api, processes
    finally:
        api.close()
        for process in processes:
            process.kill()
            process.wait()
        LocalHost().kill_marked([f"MUSTER_ROOT={root}"])
