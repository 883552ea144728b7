"""The demo's agent: a script where a real crew has Claude Code or Codex.

It gets a task as any command does, adds the code in it to a module of its own piece by piece, and runs that.
After each piece it notes it in the ledger of side effects and saves a checkpoint; it resumes from
`$MUSTER_CHECKPOINT` where there is one.  It needs the standard library only.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

NOTES_DIR = ".demo"
PACE_S = 0.5
"""A piece takes at least this long, or there would be nothing to see, or to kill."""
ATTEMPT_OVER = 6
"""Exit code of `muster report` once another attempt may hold the task."""
_REPORT_VARIABLES = ("MUSTER_SOCKET", "MUSTER_TOKEN", "MUSTER_TASK_ID", "MUSTER_EPOCH")


def main() -> int:
    key = os.environ["MUSTER_TASK"].partition("/")[2]
    pieces = pieces_of(sys.stdin.read())
    module = Path("tally", f"{key}.py")
    module.parent.mkdir(exist_ok=True)
    _keep_token()
    saved = os.environ.get("MUSTER_CHECKPOINT")
    done = json.loads(Path(saved).read_bytes())["done"] if saved else 0
    for number in range(done + 1, len(pieces) + 1):
        begun_s = time.monotonic()
        print(f"piece {number} of {len(pieces)}", flush=True)
        module.write_text("\n\n".join(pieces[:number]) + "\n", "utf-8")
        subprocess.run([sys.executable, "-m", f"tally.{key}"], check=True)
        _note(key, number, len(pieces))
        argv = ["-m", "muster.cli.main", "report", "checkpoint", "--text", json.dumps({"done": number})]
        reported = subprocess.run([sys.executable, *argv], check=False).returncode
        if reported:
            return reported
        time.sleep(max(0.0, begun_s + PACE_S - time.monotonic()))
    return 0


def pieces_of(prompt: str) -> list[str]:
    """The paragraphs of the code in a task's text; a loop over numbers is a piece for each."""
    found = []
    for block in re.findall(r"```\n(.*?)```", prompt, re.DOTALL):
        for piece in dedent(block).strip().split("\n\n"):
            loop = re.match(r"for (\w+) in range\((\d+)\):\n(.*)", piece, re.DOTALL)
            if loop:
                found += [f"{loop[1]} = {n}\n{dedent(loop[3])}" for n in range(int(loop[2]))]
            else:
                found.append(piece)
    return found


def _notes() -> Path:
    return Path(os.environ["MUSTER_ROOT"], NOTES_DIR)


def _keep_token() -> None:
    """So that the demo can try, once this attempt is over, whether it is really locked out."""
    env = {name: os.environ[name] for name in _REPORT_VARIABLES}
    path = _notes() / f"{env['MUSTER_TASK_ID']}-{env['MUSTER_EPOCH']}.json"
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(env, file)


def _note(key: str, piece: int, of: int) -> None:
    """One line in the ledger: this piece was really done, by this process, at this time."""
    task_id, epoch = int(os.environ["MUSTER_TASK_ID"]), int(os.environ["MUSTER_EPOCH"])
    line = json.dumps([task_id, key, epoch, piece, of, os.getpid(), time.time_ns() // 1_000_000])
    fd = os.open(_notes() / "ledger.jsonl", os.O_WRONLY | os.O_APPEND)
    try:
        os.write(fd, f"{line}\n".encode())
    finally:
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
