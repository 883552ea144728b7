"""The agent CLIs that the contract tests run: pinned, from npm, into a cache folder outside of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PINS = {"claude-code": "@anthropic-ai/claude-code@2.1.328", "codex": "@openai/codex@0.169.0"}
"""Without an exact version npm quietly takes an old one where it thinks Node too old."""
_BINARIES = {
    "claude-code": ["node_modules/@anthropic-ai/claude-code-*/claude"],
    "codex": ["node_modules/@openai/codex-*/vendor/*/bin/codex"],
}
"""The programs themselves, without the wrappers in JavaScript: those leave a process behind when killed."""


class NotInstalled(Exception):
    """Says what is missing."""


def cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "muster" / "agent-clis"


def binary(kind: str) -> Path | None:
    for pattern in _BINARIES[kind]:
        for path in sorted(_folder(kind).glob(pattern)):
            if os.access(path, os.X_OK):
                return path
    return None


def install(kind: str) -> Path:
    """Raises NotInstalled where npm is missing or fails."""
    found = binary(kind)
    if found is not None:
        return found
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalled("npm is not on PATH: install Node.js 20 or newer")
    folder = _folder(kind)
    folder.mkdir(parents=True, exist_ok=True)
    # Scripts of packages only link what was fetched already.
    command = [
        npm,
        "install",
        "--prefix",
        str(folder),
        "--no-audit",
        "--no-fund",
        "--ignore-scripts",
        PINS[kind],
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = binary(kind)
    if done.returncode != 0 or found is None:
        raise NotInstalled(f"npm could not install {PINS[kind]}: {done.stderr.strip()[-300:]}")
    return found


def _folder(kind: str) -> Path:
    return cache_folder() / PINS[kind].rpartition("/")[2].replace("@", "-")
