"""A project with a crew whose agents wait for a sign, and its copies."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from command_line import muster

from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.hosts.file_lock import holder
from muster.hosts.local_host import LocalHost
from patience import PATIENCE_S, until
from pseudo_terminal import read_to_end
from real_processes import crew_pids

CONFIG = """\
[health]
sweep = "200ms"
[agents.work]
command = ["sh", "-c", '''
echo "$MUSTER_TASK_ID $$" >>"$MUSTER_ROOT/begun"
until [ -e "$MUSTER_ROOT/go" ]; do sleep 0.05; done
echo "$MUSTER_TASK_ID" >"work-$MUSTER_TASK_ID"
''']
prompt = "none"
[git]
worktrees = false
"""
PLAN = "# Plan\n\n- [ ] One {#one agent=work}\n- [ ] Two {#two agent=work after=one}\n"
RUN = [sys.executable, "-m", "muster.cli.main", "-C"]


class Ran(NamedTuple):
    code: int
    said: str


class Site:
    """A project's folder."""

    def __init__(self, root: Path, config: str = CONFIG) -> None:
        self.root = root
        self.project = Project(root)
        if not root.exists():
            root.mkdir()
            (root / "muster.toml").write_text(config)
            (root / "plan.md").write_text(PLAN)

    def __call__(self, *argv: str) -> Ran:
        """`muster ARGV` in it, with nobody at a terminal."""
        return Ran(*muster(self.root, *argv))

    def run(self) -> Ran:
        return self("run", str(self.root / "plan.md"), "--workers", "1")

    def up(self) -> None:
        """A crew in the background, with the first agent at work."""
        before = len(self.begun())
        code, said = self("up", "--daemon", "--workers", "1")
        assert code == 0, said
        until(lambda: len(self.begun()) > before, "an agent is at work")

    def add(self) -> None:
        code, said = self("plan", "add", str(self.root / "plan.md"))
        assert code == 0, said

    def go(self) -> None:
        """Lets its agents finish."""
        (self.root / "go").touch()

    def begun(self) -> list[tuple[int, int]]:
        """(task, pid) of every agent that was started here."""
        try:
            rows = [line.split() for line in (self.root / "begun").read_text().splitlines()]
        except FileNotFoundError:
            return []
        return [(int(task), int(pid)) for task, pid in rows]

    def statuses(self) -> dict[str, str]:
        with closing(Connection(self.project.socket)) as connection:
            return {task["key"]: task["status"] for task in Api(connection).get("/api/v1/agent-tasks")}

    def pids(self) -> list[int]:
        """Of the crew and its agents."""
        with closing(Connection(self.project.socket)) as connection:
            status = Api(connection).get("/api/v1/status")
        workers = [w["pid"] for w in status["status"]["workers"] if w["status"] != "dead"]
        return sorted([status["owner"]["pid"], *workers, self.begun()[-1][1]])

    def settled(self) -> None:
        until(lambda: set(self.statuses().values()) == {"COMPLETED"}, "all is done")

    def end(self) -> None:
        """All at once, by force."""
        for lock in (self.project.supervisor_lock, self.project.owner_lock):
            if (pid := holder(lock)) is not None:
                os.kill(pid, 9)
        for pid in crew_pids(self.root):
            with suppress(ProcessLookupError):
                os.kill(pid, 9)
        LocalHost().kill_marked([f"MUSTER_ROOT={self.root}"])


@contextmanager
def site(root: Path, config: str = CONFIG) -> Iterator[Site]:
    made = Site(root, config)
    try:
        yield made
    finally:
        made.end()


def alive(pids: list[int]) -> bool:
    return all(LocalHost().identify(pid) is not None for pid in pids)


def at_a_terminal(root: Path, answer: bytes, *argv: str) -> Ran:
    """`muster ARGV` where somebody types this answer."""
    reader, writer = pty.openpty()
    os.write(reader, answer)
    with os.fdopen(writer, "rb+", buffering=0) as terminal:
        process = subprocess.run(
            [*RUN, str(root), *argv],
            stdin=terminal,
            stderr=terminal,
            stdout=terminal,
            timeout=PATIENCE_S,
            check=False,
        )
    return Ran(process.returncode, read_to_end(reader).decode())
