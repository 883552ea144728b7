"""`muster demo`: `muster run` on a real plan, with two of its workers hurt on the way.

Nothing is canned: the agents are processes that build a small package in a git repository, and every word
about them was read from what they left behind.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from muster.app.interrupts import Interrupts
from muster.cli.demo import proof
from muster.cli.demo.agent import NOTES_DIR
from muster.cli.demo.story import WORKERS, Story
from muster.cli.feed import EventPrinter
from muster.cli.output import BOLD, Screen, print_json
from muster.cli.run import EXIT_INTERRUPTED
from muster.config.project import Project
from muster.config.variables import VARIABLES
from muster.model.errors import BadInput, MusterError
from muster.model.refs import plan_branch

HERE = Path(__file__).parent
PLAN_FILE = "plan.md"
# Nobody's hooks, signatures or templates.
GIT_ENV = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
_INSTALL_GIT = "install git: apt install git, dnf install git, brew install git, or https://git-scm.com"
GIT_LINES = 10
EXIT_OK, EXIT_FAILED = 0, 1


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        f"Builds a small Python package with {WORKERS} workers, kills one of them and stops another, and "
        "checks afterwards that nothing was lost or done by two.  Needs git, but no keys and no network, and "
        "takes less than a minute."
    )
    parser.add_argument("--keep", action="store_true", help="keep the folder afterwards")
    parser.add_argument("--dir", metavar="DIR", help="work in this new or empty folder, and leave it")


def run(args: argparse.Namespace) -> int:
    if shutil.which("git") is None:
        raise MusterError("the demo builds a git repository, and there is no git on PATH", _INSTALL_GIT)
    printer = EventPrinter(as_json=args.json, colour=args.color)
    with Interrupts().counting() as interrupts:
        folder = _choose_folder(args.dir)
        keep = args.keep or args.dir is not None
        try:
            with own_settings(folder):
                return _demo(args, folder, printer, interrupts, keep=keep)
        except MusterError:
            # Ctrl-C reaches git and the like, too: then their failure is no news.
            if not interrupts.count:
                raise
            printer.say("Interrupted: everything was stopped.")
            return EXIT_INTERRUPTED
        finally:
            if keep:
                printer.say(f"Kept     {folder}   (try there: muster status, muster task list, git log)")
            else:
                shutil.rmtree(folder)


def _demo(
    args: argparse.Namespace, folder: Path, printer: EventPrinter, interrupts: Interrupts, *, keep: bool
) -> int:
    from muster.app.history import history_of

    began_s = time.monotonic()
    _make(folder)
    printer.say(f"Folder   {folder}, a new git repository")
    printer.say("Agents   real processes; scripts stand in for models, so no key is needed")
    project = Project(folder)
    story = Story(project, PLAN_FILE, printer, interrupts)
    try:
        story.play()
    finally:
        story.close()
    _git(folder, "merge", "--quiet", plan_branch("tally"))
    use = [sys.executable, "-m", "tally.report", PLAN_FILE]
    used = subprocess.run(use, cwd=folder, capture_output=True, text=True, check=False)
    output = (used.stdout or used.stderr).rstrip()
    commits = _git(folder, "log", "--oneline").splitlines()
    ledger = story.ledger()
    history = history_of(project.store, [line.deed() for line in ledger])
    recoveries = [proof.recovery(history, ledger, fault) for fault in story.faults]
    found = proof.findings(history, recoveries, story.late, used.returncode)
    ok = all(finding.holds for finding in found)
    took_s = time.monotonic() - began_s
    if args.json:
        told = {
            "ok": ok,
            "seconds": round(took_s, 2),
            "folder": str(folder) if keep else None,
            "checks": [proof.as_json(finding) for finding in found],
            "recoveries": msgspec.to_builtins(recoveries),
            "lateWrites": [write._asdict() for write in story.late],
            "commits": len(commits),
            "output": output,
        }
        print_json({"demo": told}, lines=True)
    else:
        screen = Screen(args.color)
        heads = ("The package at work: python -m tally.report plan.md", f"git log   ({len(commits)} commits)")
        for head, lines in zip(heads, (output.splitlines(), commits[:GIT_LINES]), strict=True):
            screen.line(f"\n{screen.paint(head, BOLD)}")
            screen.line("\n".join(f"  {line}" for line in lines))
        proof.show(screen, recoveries, found)
        screen.line(f"\n{'All of it holds' if ok else 'NOT ALL OF IT HOLDS'}; {took_s:.1f} s in all")
    return EXIT_OK if ok else EXIT_FAILED


def _choose_folder(named: str | None) -> Path:
    """A new, empty folder.  Raises BadInput where the named one is not empty."""
    if named is None:
        try:
            return Path(tempfile.mkdtemp(prefix="muster-demo-")).resolve()
        except OSError as error:
            raise MusterError(
                f"no temporary folder: {error.strerror}", "muster demo --dir NEW_FOLDER"
            ) from error
    folder = Path(named)
    hint = "muster demo --dir NEW_FOLDER, or without --dir for a temporary one"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BadInput(f"--dir {named}: that folder is not empty; nothing was changed", hint)
    except OSError as error:
        raise BadInput(f"--dir {named}: {error.strerror}", hint) from error
    return folder.resolve()


@contextmanager
def own_settings(folder: Path) -> Iterator[None]:
    """The demo is the same for everybody: no settings of the user, neither here nor in processes started here."""
    before = dict(os.environ)
    for name in (*VARIABLES, *(name for name in before if name.startswith("GIT_"))):
        os.environ.pop(name, None)
    os.environ.update(GIT_ENV, XDG_CONFIG_HOME=str(folder / NOTES_DIR / "no-settings"))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _make(folder: Path) -> None:
    """Fills the folder.  Raises MusterError where git refuses."""
    (folder / NOTES_DIR).mkdir(mode=0o700)
    (folder / NOTES_DIR / "ledger.jsonl").touch(mode=0o600)
    shutil.copyfile(HERE / PLAN_FILE, folder / PLAN_FILE)
    # A JSON text is a TOML text, too.
    command = json.dumps([sys.executable, "-I", str(HERE / "agent.py")])
    (folder / "muster.toml").write_text(
        'agent = "builder"\n\n'
        "# A script stands in for a real agent: this is all that it takes to add one.\n"
        f'[agents.builder]\ncommand = {command}\nprompt = "stdin"\nwrites = true\n',
        "utf-8",
    )
    (folder / ".gitignore").write_text(f"{NOTES_DIR}/\n.muster/\n__pycache__/\n", "utf-8")
    _git(folder, "init", "--quiet", "--template=")
    # Whatever the default of this version of git is; `init -b` is younger than some that are in use.
    _git(folder, "symbolic-ref", "HEAD", "refs/heads/main")
    for name, value in (("name", "Muster demo"), ("email", "demo@localhost")):
        _git(folder, "config", f"user.{name}", value)
    _git(folder, "add", ".")
    _git(folder, "commit", "--quiet", "--message", "the plan")


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise MusterError(f"git {arguments[0]} failed: {said}", "try: git --version")
    return done.stdout
