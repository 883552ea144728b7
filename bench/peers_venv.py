"""Other durable queues, in a venv of their own: measured on the same machine, in the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from setting import HERE, Setting, progress

T = TypeVar("T")

PINNED = ("huey==3.5.4", "dbos==3.4.0", "persist-queue==1.1.0", "uvicorn==0.54.0", "httptools==0.9.0")
TASKS = {"huey": 2000, "dbos": 100, "persist_queue": 1000}
INSTALL_S = 240
RUN_S = 120


@dataclass(frozen=True)
class Venv:
    """Where peers are installed, and which."""

    name: str
    pinned: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return HERE / ".cache" / self.name

    def python(self) -> str:
        """Its interpreter; it is made on first use."""
        python, mark, wanted = (
            self.folder / "bin" / "python",
            self.folder / "installed",
            "\n".join(self.pinned),
        )
        if not mark.exists() or mark.read_text("utf-8") != wanted:
            progress("installing the peers ...")
            venv.create(self.folder, clear=True, with_pip=True, symlinks=os.name != "nt")
            pip = [
                str(python),
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                *self.pinned,
            ]
            subprocess.run(pip, capture_output=True, check=True, timeout=INSTALL_S)
            mark.write_text(wanted, "utf-8")
        return str(python) if python.exists() else sys.executable


_PEERS = Venv("peers", PINNED)


@dataclass
class Peers:
    """Rates by (peer, `enqueue` or `drain`), one for each call of `measure`."""

    rates: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def measure(self, name: str, setting: Setting) -> None:
        for what, rate in (self._unless_refused(name, setting, lambda: _run(name, setting)) or {}).items():
            self.rates.setdefault((name, what), []).append(rate)

    def python(self, name: str, setting: Setting) -> str | None:
        """The interpreter that knows this peer."""
        return self._unless_refused(name, setting, _PEERS.python)

    def _unless_refused(self, name: str, setting: Setting, run: Callable[[], T]) -> T | None:
        return unless_refused(self.refused, name, setting, run)


def unless_refused(refused: dict[str, str], name: str, setting: Setting, run: Callable[[], T]) -> T | None:
    """What `run` returns.  A peer that cannot be run says why, once, in `refused`."""
    if name not in refused:
        if not setting.peers:
            refused[name] = "peers are left out of a quick run"
            return None
        progress(f"{name} ...")
        try:
            return run()
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            output = getattr(error, "stderr", None) or str(error)
            text = output.decode(errors="replace") if isinstance(output, bytes) else str(output)
            refused[name] = (text.strip().splitlines() or ["no reason was given"])[-1]
    return None


def _run(name: str, setting: Setting) -> dict[str, float]:
    python = _PEERS.python()
    script = HERE / "peers" / f"run_{name}.py"
    with setting.place() as folder:
        argv = [*setting.prefix, python, str(script), str(folder), str(TASKS[name])]
        done = subprocess.run(argv, capture_output=True, check=True, timeout=RUN_S, cwd=folder)
    rates: dict[str, float] = json.loads(done.stdout.decode().strip().splitlines()[-1])
    return rates
