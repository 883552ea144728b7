"""What the documentation shows, and its commands run as a reader would."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXIT = re.compile(r"# exits with (\d+)$")


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, _, body in _BLOCK.findall(page.read_text("utf-8")) if kind == language]


def commands(page: Path) -> list[tuple[str, int]]:
    """In their order, each with the exit code that the page names.  A block with a title is a file to be made."""
    found = []
    for kind, title, body in _BLOCK.findall(page.read_text("utf-8")):
        if title:
            found.append((f"cat > {title} <<'END_OF_FILE'\n{body}END_OF_FILE\n", 0))
        for line in body.splitlines():
            if kind == "console" and line.startswith("$ "):
                expected = _EXIT.search(line)
                found.append((line[2:], int(expected[1]) if expected else 0))
    return found


def run_as_shown(
    shown: Iterable[tuple[str, int]], folder: Path, env: Mapping[str, str], *, limit_s: float
) -> None:
    """`limit_s` is for each of them."""
    for command, expected in shown:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
        )
        assert done.returncode == expected, f"$ {command}\n{done.stdout}{done.stderr}"
