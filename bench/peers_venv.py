"""Other durable queues, in a venv of their own: measured on the same machine, in the same run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from setting import HERE, Setting, progress

T = TypeVar("T")

PINNED = ("huey==3.5.4", "dbos==3.4.0", "persist-queue==1.1.0", "uvicorn==0.54.0", "httptools==0.9.0")
TASKS = {"huey": 2000, "dbos": 100, "persist_queue": 1000}
INSTALL_S = 240
RUN_S = 120

_FOLDER = HERE / ".cache" / "peers"


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
        return self._unless_refused(name, setting, _python)

    def _unless_refused(self, name: str, setting: Setting, run: Callable[[], T]) -> T | None:
        """A peer that cannot be run says why, once."""
        if name in self.refused:
            return None
        if not setting.peers:
            self.refused[name] = "peers are left out of a quick run"
            return None
        progress(f"{name} ...")
        try:
            return run()
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            output = getattr(error, "stderr", None) or str(error)
            text = output.decode(errors="replace") if isinstance(output, bytes) else str(output)
            self.refused[name] = (text.strip().splitlines() or ["no reason was given"])[-1]
            return None


def _run(name: str, setting: Setting) -> dict[str, float]:
    python = _python()
    script = HERE / "peers" / f"run_{name}.py"
    with setting.place() as folder:
        argv = [python, str(script), str(folder), str(TASKS[name])]
        done = subprocess.run(argv, capture_output=True, check=True, timeout=RUN_S, cwd=folder)
    rates: dict[str, float] = json.loads(done.stdout.decode().strip().splitlines()[-1])
    return rates


def _python() -> str:
    """The interpreter of the peers' venv, which is made on first use."""
    python = _FOLDER / "bin" / "python"
    mark = _FOLDER / "installed"
    if not mark.exists() or mark.read_text("utf-8") != "\n".join(PINNED):
        progress("installing the peers ...")
        venv.create(_FOLDER, clear=True, with_pip=True, symlinks=os.name != "nt")
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PINNED]
        subprocess.run(pip, capture_output=True, check=True, timeout=INSTALL_S)
        mark.write_text("\n".join(PINNED), "utf-8")
    return str(python) if python.exists() else sys.executable
