"""`muster init`: makes a folder a project.  Nothing that is there is ever overwritten."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from muster.cli.context import start_folder
from muster.cli.output import print_json
from muster.config.project import FILE_NAME, ROOT_VARIABLE, STATE_DIR_NAME, Project
from muster.model.errors import MusterError

PLAN_NAME = "plan.md"
AGENT_BINARIES = ("claude", "codex")

CONFIG = """\
# What Muster does in this project.  Every line that begins with a # and no space is an option with its usual
# value: remove the # to change it.  `muster doctor` checks this file.

# The agent of tasks that name none ({agent=NAME} in a plan).
#agent = "claude"

[task]
#timeout = "2h"
#retries = 3                               # runs after the first one
#backoff = { first = "30s", max = "5m" }   # the wait before a retry doubles, up to max
#losses = 5                                # attempts lost to dead workers before a task is given up
#failures = 5                              # failures in a row that pause a plan; 0: never
#waiting = 100_000                         # tasks that may wait; more are refused

[workers]
#count = 2          # processes that run agents; usually one per core, at most 4
#slots = 1          # tasks that one of them runs at the same time
#drain = "5m"       # what `muster down` waits for running tasks

# Tasks with {limit=NAME} in a plan share a number of places, over all workers.
[limits]
#gpu = 2

# Words of a task that ask for a kind of agent, besides the usual ones ({profile=NAME} asks outright).
[profiles]
#data-scientist = ["pandas", "jupyter notebook", "plot*"]

[health]
#heartbeat = "5s"
#lease = "15s"      # silence after which a worker's tasks go to others
#sweep = "500ms"
#claim_lease = "30m"  # how long a task that was taken by hand is kept for its holder
#orphan_grace = "10m"
#stall_after = "10m"   # without output, processor time and writing: suspected to hang, then stopped

# In a repository, agents with writes = true work in trees and on branches of their own; elsewhere one at a time.
[git]
#worktrees = true
#setup = "npm ci"   # makes a new tree ready to work in
#merge = true       # finished work goes on to the branch muster/plan/NAME
#keep = false       # trees and branches of finished tasks stay

[retention]
#events = "90d"       # the audit
#logs = "30d"         # output, and checkpoints of ended tasks
#idempotency = "7d"   # how long idempotency keys count
#trees = "14d"        # working trees of tasks that have ended

# An agent is a command that gets a task's text as its last argument (prompt = "stdin" or "file": otherwise).
# Its exit code 0 means done.  The agent `shell` is built in: it runs the text as a script.

# Claude Code and Codex are known by kind: Muster understands what they say, and resumes them after a kill.

#[agents.claude]
#kind = "claude-code"
#permission_mode = "acceptEdits"            # what it may do without asking; bypassPermissions: everything
#max_budget_usd = 5.00                      # most that one run may cost
#slots = 4                                  # tasks that it does at one time, over all workers
#capabilities = ["rust", "gpu"]             # tasks with {cap=rust} go only to an agent that has it
#profiles = ["writer"]                      # tasks with {profile=writer} go to it rather than to others
#writes = true                              # it changes files: see [git]
#home = "own"                               # a HOME below .muster/homes/
#limits = { memory = "4GB", output = "1GB", processes = 200 }

#[agents.codex]
#kind = "codex"
#permission_mode = "workspace-write"        # or read-only, danger-full-access

#[agents.check]
#command = ["make", "check"]
#prompt = "stdin"
#env = ["CI"]                               # variables handed on from your environment
#set = { LANG = "C.UTF-8" }                 # variables with a value of their own
#exit_codes = { invalid = [2], rate_limit = [75] }
"""

PLAN = """\
# Example

Each box is a task.  What is indented below it goes to its agent; the agent `shell` runs it as a script.
`after=` names the tasks that must be done first.  Try: muster run plan.md

- [ ] Look at the machine {#machine agent=shell}

      echo "This is $(uname -s) on $(uname -m)"
      sleep 1

- [ ] Count the files of this folder {#files agent=shell after=machine}

      echo "There are $(ls | wc -l | tr -d ' ') files here"
      sleep 1

- [ ] Look at the disk {#disk agent=shell after=machine}

      df -h .
      sleep 1

- [ ] Say that all is done {#summary agent=shell after=files,disk}

      echo "Four tasks, and the second and third ran side by side"
"""


def add(parser: argparse.ArgumentParser) -> None:
    files = f"{FILE_NAME}, {PLAN_NAME} (an example that runs) and {STATE_DIR_NAME}/"
    parser.description = f"Writes {files} where they are missing."


def run(args: argparse.Namespace) -> int:
    project = Project(start_folder(args.root or os.environ.get(ROOT_VARIABLE) or None))
    root = project.root
    found = [name for name in AGENT_BINARIES if shutil.which(name)]
    plan = root / PLAN_NAME
    made = [
        name
        for name, make in (
            (FILE_NAME, lambda: _write(project.config_file, CONFIG)),
            (PLAN_NAME, lambda: _write(plan, PLAN)),
            (f"{STATE_DIR_NAME}/", lambda: _make_state(project.state_dir)),
        )
        if _attempt(root, make)
    ]
    kept = [name for name in (FILE_NAME, PLAN_NAME, f"{STATE_DIR_NAME}/") if name not in made]
    if args.json:
        print_json({"root": str(root), "found": found, "created": made, "kept": kept})
        return 0
    _tell(found, made, kept)
    return 0


def _attempt(root: Path, make: Callable[[], bool]) -> bool:
    try:
        return make()
    except OSError as error:
        raise MusterError(
            f"cannot write {error.filename or root}: {error.strerror}; what was there is untouched",
            f"make {root} a folder that you can write to, or choose another one: muster init -C DIR",
        ) from error


def _write(path: Path, text: str) -> bool:
    """False where there is something of that name, whatever it is."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _make_state(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise NotADirectoryError(20, "there is a file of that name", str(folder)) from None
        created = False
    else:
        created = True
    _write(folder / ".gitignore", "*\n")
    return created


def _tell(found: list[str], made: list[str], kept: list[str]) -> None:
    if found:
        names = " and ".join(f"[agents.{name}]" for name in found)
        print(f"Found    {', '.join(found)} on PATH: to use, uncomment {names} in {FILE_NAME}")
    else:
        print(f"Found    neither {' nor '.join(AGENT_BINARIES)} on PATH; the agent `shell` is built in")
    if made:
        print(f"Created  {', '.join(made)}")
    if kept:
        print(f"Kept     {', '.join(kept)}: already there")
    print(f"Next     muster run {PLAN_NAME}")
