"""Processes that can be told from all others, and the proof that none of them is left."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from muster.hosts.local_host import LocalHost, kill_all
from muster.hosts.process import LocalLauncher, LocalProcess
from muster.hosts.process_table import scan
from muster.ports.agent import AttemptFolder, Launch
from muster.ports.host import ProcessId
from patience import until


@dataclass
class HostileCrowd:
    """Starts processes that can be told from all others, whatever they do to their environment."""

    tmp_path: Path
    token: str
    """A duration for `sleep` that nobody else has."""
    host: LocalHost = field(default_factory=LocalHost)
    launcher: LocalLauncher = field(default_factory=LocalLauncher)

    @property
    def mark(self) -> str:
        return self.mark_of("1")

    def mark_of(self, name: str) -> str:
        return f"MUSTER_MARK={self.token}/{name}"

    def folder(self, name: str = "1") -> AttemptFolder:
        path = self.tmp_path / "attempts" / "7" / name
        path.mkdir(parents=True, exist_ok=True)
        return AttemptFolder(path=path)

    @staticmethod
    def descendants(process: LocalProcess) -> int:
        """How many processes of its tree are alive besides the root."""
        return sum(proc.pid != process.pid for proc in process._look())

    def start(self, *argv: str, name: str = "1", env: dict[str, str] | None = None) -> LocalProcess:
        launch = Launch(argv=argv, env={"PATH": os.environ["PATH"], **(env or {})}, cwd=self.tmp_path)
        return self.launcher.start(launch, self.folder(name), mark=self.mark_of(name))

    def sh(self, script: str, *, name: str = "1") -> LocalProcess:
        """`$T` in the script is the token; starts once the script has said "ready"."""
        process = self.start("sh", "-c", script.replace("$T", self.token), name=name)
        self.until_said("ready", name=name)
        return process

    def python(self, script: str, *, name: str = "1") -> LocalProcess:
        process = self.start(sys.executable, "-S", "-E", "-c", f"# {self.token}\n{script}", name=name)
        self.until_said("ready", name=name)
        return process

    def said(self, name: str = "1") -> str:
        return self.folder(name).stdout.read_text()

    def until_said(self, text: str, *, name: str = "1") -> None:
        self.until(lambda: text in self.said(name))

    @staticmethod
    def until(condition: Callable[[], object]) -> None:
        until(condition)

    def alive(self) -> list[ProcessId]:
        """Processes with the token in their arguments or environment; uses the scan alone."""
        own_pid = os.getpid()
        return [
            proc.id for proc in scan() if not proc.gone and proc.pid != own_pid and self._carries(proc.pid)
        ]

    def _carries(self, pid: int) -> bool:
        with contextlib.suppress(OSError):
            place = Path(f"/proc/{pid}")
            return self.token.encode() in (place / "cmdline").read_bytes() + (place / "environ").read_bytes()
        return False

    def environments(self) -> list[bytes]:
        found = []
        for process in self.alive():
            with contextlib.suppress(OSError):
                found.append(Path(f"/proc/{process.pid}/environ").read_bytes())
        return found

    def until_apart(self, *, wiped: bool) -> None:
        """Until a `sleep` leads a session of its own, past the exec that wipes its environment or not."""
        name = b"sleep\0" + self.token.encode()

        def apart(process: ProcessId) -> bool:
            place = Path(f"/proc/{process.pid}")
            with contextlib.suppress(OSError):
                traced = self.token.encode() in (place / "environ").read_bytes()
                leads = os.getsid(process.pid) == process.pid
                return leads and traced != wiped and (place / "cmdline").read_bytes().startswith(name)
            return False

        self.until(lambda: any(apart(process) for process in self.alive()))

    def kill_leftovers(self) -> list[ProcessId]:
        left = self.alive()
        kill_all(
            lambda: [proc for proc in scan() if self._carries(proc.pid)], lambda proc: self._carries(proc.pid)
        )
        return left
