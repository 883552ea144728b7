"""What the documentation shows, and its commands run as a reader would."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

LOOK_S = 0.2
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXIT = re.compile(r"# (?:until .*, )?exits with (\d+)$")
_UNTIL = re.compile(r"# until (q|Ctrl-C)\b")


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
    """`limit_s` is for each of them.  What goes on until somebody ends it is ended once it has said something."""
    for command, expected in shown:
        if (ends := _UNTIL.search(command)) is not None:
            code, said = _ended(command, folder, env, by_key=ends[1] == "q", limit_s=limit_s)
            assert code == expected, f"$ {command}\n{said}"
            continue
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


def _ended(
    command: str, folder: Path, env: Mapping[str, str], *, by_key: bool, limit_s: float
) -> tuple[int, str]:
    """On a terminal; its exit code as a shell tells it, and what it has shown."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
    said, deadline_s = b"", time.monotonic() + limit_s
    with subprocess.Popen(
        ["sh", "-c", command], cwd=folder, env={**env, "TERM": "xterm"}, start_new_session=True, **streams
    ) as process:
        try:
            while process.poll() is None and time.monotonic() < deadline_s:
                if select.select([ours], [], [], LOOK_S)[0]:
                    said += os.read(ours, 1 << 16)
                elif said and by_key:
                    os.write(ours, b"q")
                elif said:
                    os.killpg(process.pid, signal.SIGINT)
        finally:
            process.kill()
            os.close(ours)
            os.close(theirs)
    code = process.returncode
    return code if code >= 0 else 128 - code, said.decode(errors="replace")
