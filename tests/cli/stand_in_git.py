"""A git of which one command is another one."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path


def git_that(tmp_path: Path, script: str, at: str = "--no-commit") -> dict[str, str]:
    """An environment with a git that runs this where `at` is among its words; `real` is git itself."""
    folder = tmp_path / "bin"
    folder.mkdir()
    real = shlex.quote(shutil.which("git") or "")
    asked = f'case " $* " in *" {at} "*) real="{real}"; {script};; *) exec {real} "$@";; esac'
    (folder / "git").write_text(f"#!/bin/sh\n{asked}\n")
    (folder / "git").chmod(0o755)
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
