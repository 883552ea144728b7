"""`muster init`: makes a folder a project.  Nothing that is there is ever overwritten."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from muster.app.settings import KINDS
from muster.cli.builds import builds_of
from muster.cli.context import start_folder
from muster.cli.output import print_json
from muster.config.kinds import AgentKind
from muster.config.project import FILE_NAME, ROOT_VARIABLE, STATE_DIR_NAME, Project
from muster.model.errors import BadInput, MusterError

PLAN_NAME = "plan.md"
SHELL = "shell"
PERMISSIONS = {
    "read": "read files, change nothing",
    "edit": "read and change files; for most commands it asks, or is refused",
    "all": "anything that you may do: run commands, use the network, delete",
}
"""What agents may do without asking; `AgentKind.levels` has the permission mode of each that allows it."""
USUAL = "edit"
NOTHING = "none"

OTHER = "check"
"""The agent of the example that is no known CLI."""
CONFIG = """\
# What Muster does in this project.  Every line that begins with a # and no space is an option with its usual
# value: remove the # to change it.  `muster doctor` checks this file.

# The agent of tasks that name none ({agent=NAME} in a plan).
#agent = "check"

[task]
#timeout = "2h"
#retries = 3                               # runs after the first one
#backoff = { first = "30s", max = "5m" }   # the wait before a retry doubles, up to max
#losses = 5                                # attempts lost to dead workers before a task is given up
#failures = 5                              # failures in a row that pause a plan; 0: never
#waiting = 100_000                         # tasks that may wait; more are refused
#check = "make test"                       # what work has to pass, merged, before its task is done
#review = "person"                         # who accepts it then: an agent's name, or you
#rubric = "..."                            # what an agent that reviews is to go by
#rounds = 3                                # how often work goes back to its agent before you are asked

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
#remote_lease = "60s"  # the same for a worker on another host, where it is longer
#claim_lease = "30m"  # how long a task that was taken by hand is kept for its holder
#orphan_grace = "10m"
#stall_after = "10m"   # without output, processor time and writing: suspected to hang, then stopped

# Plan files.  Each may say `order: phases` itself, between two lines of --- at its top.
[plan]
#order = "file"     # how tasks follow each other where that is said nowhere: file, phases, free
#debounce = "2s"    # how long a file has to be left alone before what was edited in it is looked at
#settle = "30s"     # how long a new or edited box has to stand before it is taken up
#protect = true     # boxes that an agent has ticked in its working tree are put back
#prompt = ""        # what a prompt says of the task's place in its plan; "": nothing

# Dollars; at 80 % the agent is told, then the task or the plan is paused: muster budget PLAN|REF USD.
[budget]
#task = 5.0
#plan = 50.0

# In a repository each task works in a tree of its own; elsewhere agents with writes = true work one at a time.
[git]
#worktrees = true
#setup = "npm ci"   # makes a new tree ready to work in
#merge = true       # finished work goes on to the branch muster/plan/NAME
#keep = false       # trees and branches of finished tasks stay
#author = "Crew <crew@example.org>"   # of Muster's commits
#max_file = "100MB"   # a larger file is published once you have accepted it
#droppings = ["dist"]   # ignored files that nobody misses, beside caches and dependencies
#remote = "git@git.example.org:team/site.git"   # of servers that share a store, for the work of their tasks
#forge = "https://git.example.org/api/v1"   # for `muster pr`, where the remote does not say it

[retention]
#events = "90d"       # the audit
#logs = "30d"         # output, and checkpoints of ended tasks
#idempotency = "7d"   # how long idempotency keys count
#trees = "14d"        # working trees of tasks that have ended
#tasks = "30d"        # completed tasks in sight, in plans with nothing left to do; then they are archived

# The API for others than you: `muster serve`, or `muster up` once an address stands here.
[serve]
#listen = "127.0.0.1:7420"
#tls_cert = "cert.pem"   # with those above it
#tls_key = "key.pem"
#login = true            # false: whoever reaches it is you; on a loopback address only
#hosts = ["muster.test"] # names that it has without login, beside localhost
#rate = 100              # requests a second of one caller; 0: any number
#store = "postgresql://USER@HOST/DATABASE" # for several servers; without it the store is a file
#store_file = "/run/secrets/store" # in place of that: a file that holds the address, with its password
#alert = "https://alerts.example.com/muster" # is told when that store is away or halted
#alert_after = "5m"      # how long it may be away before that
#trusted_hops = 0        # proxies before it that add to X-Forwarded-For who asked them

# Wake-ups, live events and presence over a Valkey: pip install 'musterd[valkey]'.  It may be away at any time.
[runtime]
#url = "valkey://127.0.0.1:6379/0"  # valkeys:// for TLS; with a password rather in MUSTER_RUNTIME_URL
#namespace = "blue"                 # goes before all keys, where several stores share it

# What is told to others by HTTP: muster webhook add.
[webhooks]
#private = true          # also to this machine and private networks, and without TLS

# How you are told what waits for you: docs/how-to/notifications.md, muster notify test NAME.
[notify]
#link = "https://muster.example.org"   # the pages as you reach them, for links in messages
#title = true            # `muster up`, `run` and `watch` say in the terminal's title how much waits
#bell = true             # and ring its bell for something new

#[channels.phone]
#kind = "ntfy"           # or slack, webhook, email, desktop
#url = "https://ntfy.sh/TOPIC"
#secret = "NTFY_TOKEN"   # of `muster secrets set`; or secret_file = "PATH"
#private = true          # also to this machine and private networks, and without TLS
#tell = ["needs-you", "dead", "budget", "quota", "settled"]
#digest = "10m"          # what happens in that time is one message
#quiet = "22:00-07:00"   # what still matters then comes as one message
#time_zone = "Europe/Berlin"

#[channels.mail]
#kind = "email"
#server = "smtp.example.org:587"
#tls = "starttls"        # or tls, none
#user = "crew"           # its password is the secret
#secret_file = "/run/secrets/mail"
#from = "crew@example.org"
#to = ["ada@example.org"]

[log]
#format = "json"   # an object each line, in place of text
#max_size = "16MB" # a longer log becomes an old one
#keep = 4          # old ones that stay

[trace]
#spans = true      # to OpenTelemetry: pip install 'musterd[otel]'

# An agent is a command that gets a task's text as its last argument (prompt = "stdin" or "file": otherwise).
# Its exit code 0 means done.  The agent `shell` is built in: it runs the text as a script.

# CLIs with a kind are known: Muster understands what they say, and resumes them after a kill.

#[agents.check]
#command = ["make", "check"]
#prompt = "stdin"
#env = ["CI"]                               # variables handed on from your environment
#set = { LANG = "C.UTF-8" }                 # variables with a value of their own
#secrets = ["GITHUB_TOKEN"]                 # values of `muster secrets set`
#exit_codes = { invalid = [2], rate_limit = [75] }
#slots = 4                                  # tasks that it does at one time, over all workers
#capabilities = ["rust", "gpu"]             # tasks with {cap=rust} go only to an agent that has it
#coordinator_enabled = false                # it takes only tasks that name it
#profiles = ["writer"]                      # tasks with {profile=writer} go to it rather than to others
#writes = true                              # it changes files: see [git]
#home = "own"                               # a HOME below .muster/homes/
#limits = { memory = "4GB", output = "1GB", processes = 200 }
"""

AGENT_PLAN = """\
# Example

Each box is a task.  What is indented below it is the prompt of its agent; `after=` names the tasks that must
be done first.  The agent `shell` runs its text as a script.  Try: muster run plan.md

- [ ] Describe this project {#overview}
  Read the files of this folder. {overview}: what the project is for, how it is laid out, and how it is built and
  tested. At most 60 lines, and nothing that you have not seen in the files.
- [ ] List what a newcomer would miss {#gaps}
  Read the files of this folder. {gaps}: at most ten things that a newcomer to this project would look for and not
  find, one line each, the most important one first.
- [ ] Say that all is done {#summary after=overview,gaps agent=shell}

      echo "Two tasks ran side by side, and this one after them"
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
    known = offered()
    parser.add_argument(
        "--agent",
        metavar="NAME",
        action="append",
        choices=(*known, SHELL),
        help=f"set this one up, the first one as default: {', '.join(known)}, or {SHELL} for none; "
        "default: all that are on PATH",
    )
    parser.add_argument(
        "--permissions",
        choices=tuple(PERMISSIONS),
        help=f"what agents may do without asking: {', '.join(PERMISSIONS)}; asked on a terminal, else {USUAL}",
    )
    parser.add_argument(
        "--run",
        metavar="COMMAND",
        action="append",
        help=f"a command that they may run without asking, besides what --permissions {USUAL} allows; none: "
        f"{NOTHING}; asked on a terminal, else the tests and builds that are found here",
    )
    parser.add_argument("--yes", action="store_true", help="ask nothing: take what is usual")


def run(args: argparse.Namespace) -> int:
    project = Project(start_folder(args.root or os.environ.get(ROOT_VARIABLE) or None))
    root = project.root
    found = [name for name in offered() if shutil.which(name)]
    agents = [name for name in dict.fromkeys(args.agent or found) if name != SHELL]
    permissions = args.permissions or USUAL
    asks = bool(agents) and not project.config_file.exists() and not (args.yes or args.json)
    if asks and not args.permissions:
        permissions = _ask(agents)
    commands = args.run or builds_of(Path(root))
    if (
        permissions != USUAL
        or commands == [NOTHING]
        or not any(offered()[name][1].allowing for name in agents)
    ):
        commands = []
    elif asks and not args.run and commands:
        commands = _ask_commands(commands)
    parts: dict[str, Callable[[], bool]] = {
        FILE_NAME: lambda: _write(project.config_file, settings_for(agents, permissions, commands)),
        PLAN_NAME: lambda: _write(root / PLAN_NAME, plan_for(agents, permissions)),
        f"{STATE_DIR_NAME}/": lambda: _make_state(project.state_dir),
    }
    try:
        made = [name for name, make in parts.items() if make()]
    except OSError as error:
        raise MusterError(
            f"cannot write {error.filename or root}: {error.strerror}; what was there is untouched",
            f"make {root} a folder that you can write to, or choose another one: muster init -C DIR",
        ) from error
    kept = [name for name in parts if name not in made]
    if args.json:
        chosen = {"agents": agents, "permissions": permissions if agents else None, "run": commands}
        print_json({"root": str(root), "found": found, **chosen, "created": made, "kept": kept})
        return 0
    _tell(found, made, kept)
    if FILE_NAME in made and agents:
        print(f"Agents   {', '.join(agents)}: may {PERMISSIONS[permissions]} ({permissions})")
        if commands:
            print(f"         and run {', '.join(commands)}; other commands ask you: muster inbox")
        print(f"         to change that, edit permission_mode and args in {FILE_NAME}")
        told = "a short round trip, which shows whether its login works"
        print(f"Check    muster agent test {agents[0]}   {told}")
    missing = [name for name in agents if name not in found]
    for name in missing:
        how = offered()[name][1].install or "install it"
        print(f"Missing  {name} is not on PATH: {how}, or set its full path as agents.{name}.command")
    print(f"Next     {'muster doctor, then ' if missing else ''}muster run {PLAN_NAME}")
    return 0


def _ask(agents: Sequence[str]) -> str:
    """One question on a terminal; without one, what is usual."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return USUAL
    print(f"What may {' and '.join(agents)} do without asking?")
    names = list(PERMISSIONS)
    for number, name in enumerate(names, start=1):
        print(f"  {number}  {name:<4}  {PERMISSIONS[name]}")
    usual = names.index(USUAL) + 1
    while True:
        try:
            given = input(f"1 to {len(names)} [{usual}]: ").strip()
        except EOFError:
            raise BadInput(
                "no answer; nothing was written", "muster init --yes, or --permissions edit"
            ) from None
        meant = (
            {"": USUAL} | {str(n): name for n, name in enumerate(names, 1)} | {name: name for name in names}
        )
        if given in meant:
            return meant[given]


def _ask_commands(found: Sequence[str]) -> list[str]:
    """One more question on a terminal; without one, all that was found."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return list(found)
    print(f"What may they run without asking?  Found here: {', '.join(found)}")
    try:
        given = input(f"commands with commas between, or {NOTHING} [all of these]: ").strip()
    except EOFError:
        raise BadInput("no answer; nothing was written", "muster init --yes, or --run COMMAND") from None
    wanted = [command for part in given.split(",") if (command := part.strip())]
    return list(found) if not wanted else [] if wanted == [NOTHING] else wanted


def offered() -> dict[str, tuple[str, AgentKind]]:
    """The kinds that can be set up with no more than a permission mode, by their program."""
    found: dict[str, tuple[str, AgentKind]] = {}
    for name in KINDS:
        with contextlib.suppress(Exception):  # somebody else's that is broken: who names it is told
            if KINDS[name].levels:
                found[KINDS[name].program] = (name, KINDS[name])
    # Those that can do most come first: the first one on PATH becomes the default.
    return dict(sorted(found.items(), key=lambda item: -len(set(item[1][1].levels.values()))))


def settings_for(agents: Sequence[str], permissions: str, commands: Sequence[str] = ()) -> str:
    """The settings, with these agents set up and the first one as default; the others as comments."""
    known = offered()
    text = CONFIG.replace(f'#agent = "{OTHER}"', f'agent = "{agents[0]}"') if agents else CONFIG
    head, other, rest = text.partition(f"#[agents.{OTHER}]\n")
    ordered = [*agents, *(name for name in known if name not in agents)]
    blocks = [_block(name, *known[name], permissions if name in agents else "", commands) for name in ordered]
    return head + "\n".join([*blocks, other]) + rest


def _block(program: str, name: str, kind: AgentKind, permissions: str, commands: Sequence[str]) -> str:
    mark = "" if permissions else "#"
    mode = kind.levels[permissions or USUAL]
    others = ", ".join(other for other in kind.modes if other != mode)
    lines = [f"[agents.{program}]", f'kind = "{name}"', f'permission_mode = "{mode}"   # or {others}']
    lines += ["writes = false"] if permissions == "read" else []
    if permissions and commands and kind.allowing is not None:
        lines.append(f"args = {json.dumps(kind.allowing(commands))}   # what it runs without asking")
    text = "".join(f"{mark}{line}\n" for line in lines)
    return f"{text}#max_budget_usd = 5.00   # most that one run may cost\n" if kind.budget else text


def plan_for(agents: Sequence[str], permissions: str) -> str:
    """A first plan that the default agent can do with what it may."""
    if not agents:
        return PLAN
    told = ("Answer", "Answer") if permissions == "read" else ("Write OVERVIEW.md", "Write GAPS.md")
    return AGENT_PLAN.replace("{overview}", told[0]).replace("{gaps}", told[1])


def _write(path: Path, text: str) -> bool:
    """False where there is something of that name, whatever it is."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def _make_state(folder: Path) -> bool:
    created = not folder.exists()
    if not created and not folder.is_dir():
        raise NotADirectoryError(20, "there is a file of that name", str(folder))
    folder.mkdir(mode=0o700, exist_ok=True)
    _write(folder / ".gitignore", "*\n")
    return created


def _tell(found: list[str], made: list[str], kept: list[str]) -> None:
    none = f"none of {', '.join(offered())} on PATH; the agent `shell` is built in"
    print(f"Found    {', '.join(found)} on PATH" if found else f"Found    {none}")
    if made:
        print(f"Created  {', '.join(made)}")
    if kept:
        print(f"Kept     {', '.join(kept)}: already there")
