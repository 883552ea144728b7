"""Has the last build whose stores have schema 7 work on a plan, kills its crew, and prints the store as SQL.

git worktree add OLD b42e2129 && OLD/run muster --help
python tests/upgrade/record_schema_7.py OLD > tests/upgrade/schema_7.sql
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

KEY = "07" * 32
"""That of the recorded project's audit: it lies in a file beside the store."""
FOLDER, HOST, BOOT = "/recorded", "recorded-host", "recorded-boot"
"""What stands for the project's folder, its host, and that host's last boot."""

PLAN = """# Shop

## Epic: Counter

- [ ] Say hello {#hello}
- [ ] Build the wall {#wall after=hello priority=8 estimated=5m}
- [ ] Count the stock {#half}
- [ ] Order what is missing {#order after=half,wall}
- [ ] Weigh the scales {#fail retries=0}
- [ ] Label the scales {#blocked after=fail}
- [ ] Polish the scales {#polish after=fail on-failed=skip}
- [ ] Choose a colour {#ask}
- [ ] Paint the door {#paint after=ask}
- [ ] Print the sign {#print}
- [ ] Think about it {#think agent=claude}
"""
SETTINGS = """agent = "shell"

[agents.shell]
command = ["sh", "{folder}/agent.sh"]
slots = 4

[agents.claude]
kind = "claude-code"
permission_mode = "plan"
command = ["sh", "{folder}/claude.sh"]

[task.backoff]
first = "1h"
max = "1h"
"""
AGENT = """
case "$MUSTER_TASK" in
*/half) muster report progress 40 --step "shelf 4"; echo '{"shelf": 4}' | muster report checkpoint -
        echo "4 shelves counted"; exec sleep 3600 ;;
*/fail | */again) echo "no weights"; exit 3 ;;
*/ask) muster report ask "which colour?" ;;
*/print) echo sign > sign.txt; muster report artifact sign sign.txt; echo '{"rows": 120}' > "$MUSTER_RESULT" ;;
*) echo "did $MUSTER_TASK" ;;
esac
"""
Muster = Callable[..., str]
SETTLED = {
    "RUNNING": {"shop/half", "tasks/sign"},
    "FAILED": {"shop/fail"},
    "PAUSED": {"shop/ask", "tasks/held"},
    "ABORTED": {"tasks/again"},
    "CANCELLED": {"tasks/unwanted", "tasks/skipped", "shop/polish"},
    "ARCHIVED": {"tasks/old"},
}
PATIENCE_S = 60.0


def record(old: Path, folder: Path) -> str:
    env = os.environ | {"PATH": f"{old / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"}

    def muster(*argv: str) -> str:
        done = subprocess.run(
            ["muster", *argv], cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=True
        )
        return done.stdout

    _lay_out(old, folder)
    muster("plan", "add", "shop.md")
    (folder / ".muster" / "key").write_text(f"{KEY}\n")
    _add_by_hand(muster)
    try:
        _have_worked(muster)
    finally:
        _kill_crew(folder)
    return "\n".join(_dumped(folder / ".muster" / "state.db", folder))


def _have_worked(muster: Muster) -> None:
    def states() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for task in json.loads(muster("task", "list", "--json")):
            found.setdefault(task["status"], set()).add(f"{task['plan']}/{task['key']}")
        return found

    muster("up", "--daemon", "--workers", "2")
    until_s = time.monotonic() + PATIENCE_S
    while not all(keys <= states().get(status, set()) for status, keys in SETTLED.items()):
        if time.monotonic() > until_s:
            raise TimeoutError(str(states()))
        time.sleep(0.5)
    time.sleep(12)  # whatever has happened is sealed by then, and workers were heard


def _lay_out(old: Path, folder: Path) -> None:
    stream = old / "tests" / "agents" / "streams" / "claude-code.plain.jsonl"
    (folder / "claude.sh").write_text(f"cat {stream}\n")
    (folder / "agent.sh").write_text(AGENT)
    (folder / "muster.toml").write_text(SETTINGS.format(folder=folder))
    (folder / "shop.md").write_text(PLAN)


def _add_by_hand(muster: Muster) -> None:
    def add(key: str, *more: str) -> None:
        muster("task", "add", f"The task {key}", "--key", key, *more)

    add("again")
    add("later", "--delay", "24h", "--idempotency-key", "once", "--meta", "shelf=4", "--tag", "red")
    add("held")
    muster("task", "pause", "tasks/held")
    add("unwanted")
    muster("task", "cancel", "tasks/unwanted", "--reason", "nobody wants it")
    add("skipped")
    add("behind", "--after", "skipped", "--cap", "forklift")
    muster("task", "skip", "tasks/skipped")
    add("by-person")
    muster("task", "complete", "tasks/by-person")
    add("old")
    muster("task", "complete", "tasks/old")
    muster("task", "archive", "tasks/old")
    add("sign")
    muster("claim", "take", "tasks/sign")
    add("aimed", "--target", "berlin", "--expires", "1000h", "--parent", "tasks/held")


def _kill_crew(folder: Path) -> None:
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            command = proc.joinpath("cmdline").read_bytes()
            environ = proc.joinpath("environ").read_bytes()
        except OSError:
            continue
        named = os.fsencode(folder) in command + environ or proc.joinpath("cwd").resolve() == folder
        if named and int(proc.name) != os.getpid():
            os.kill(int(proc.name), signal.SIGKILL)


def _dumped(store: Path, folder: Path) -> Iterator[str]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    with sqlite3.connect(store) as connection:
        yield f"-- What `{Path(__file__).name}` has printed; it says how."
        for line in connection.iterdump():
            yield line.replace(str(folder), FOLDER).replace(socket.gethostname(), HOST).replace(boot, BOOT)
        yield "PRAGMA user_version = 7;"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(record(Path(sys.argv[1]).resolve(), Path(made).resolve()))
