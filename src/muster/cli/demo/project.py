"""The demo's folder: a git repository with a plan and a crew that knows one agent."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from muster.config.variables import VARIABLES
from muster.model.errors import BadInput, MusterError

HERE = Path(__file__).parent
PLAN_FILE = "plan.md"
NOTES_DIR = ".demo"
LEDGER_FILE = f"{NOTES_DIR}/ledger.jsonl"
MODULE_RUN_S = 30.0
_IDENTITY = {"NAME": "Muster demo", "EMAIL": "demo@localhost"}
GIT_ENV = {
    **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _IDENTITY.items()},
    # Nobody's hooks, signatures or templates.
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
}
_INSTALL_GIT = "install git: apt install git, dnf install git, brew install git, or https://git-scm.com"
_REMOVE_TRIES = 20


def refuse_without_git() -> None:
    if shutil.which("git") is None:
        raise MusterError("the demo builds a git repository, and there is no git on PATH", _INSTALL_GIT)


def choose_folder(named: str | None) -> Path:
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
    before = {name: os.environ.pop(name, None) for name in (*VARIABLES, "XDG_CONFIG_HOME")}
    os.environ["XDG_CONFIG_HOME"] = str(folder / NOTES_DIR / "no-settings")
    try:
        yield
    finally:
        del os.environ["XDG_CONFIG_HOME"]
        os.environ.update({name: value for name, value in before.items() if value is not None})


def make(folder: Path) -> None:
    """Fills the folder.  Raises MusterError where git refuses."""
    (folder / NOTES_DIR).mkdir(mode=0o700)
    (folder / LEDGER_FILE).touch(mode=0o600)
    shutil.copyfile(HERE / PLAN_FILE, folder / PLAN_FILE)
    (folder / "muster.toml").write_text(_config(), "utf-8")
    git(folder, "init", "--quiet", "--template=")
    # Whatever the default of this version of git is; `init -b` is younger than some that are in use.
    git(folder, "symbolic-ref", "HEAD", "refs/heads/main")
    git(folder, "config", "gc.auto", "0")
    git(folder, "add", PLAN_FILE, "muster.toml")
    git(folder, "commit", "--quiet", "--message", "the plan")


def _config() -> str:
    # A JSON text is a TOML text, too.
    command = ", ".join(json.dumps(part) for part in (sys.executable, "-I", str(HERE / "agent.py")))
    variables = ", ".join(f"{name} = {json.dumps(value)}" for name, value in GIT_ENV.items())
    return (
        'agent = "builder"\n\n'
        "# A script stands in for a real agent: this is all that it takes to add one.\n"
        f'[agents.builder]\ncommand = [{command}]\nprompt = "none"\nset = {{ {variables} }}\n'
    )


def _env() -> Mapping[str, str]:
    """Without what would lead git into another repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | GIT_ENV


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=_env(), capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise MusterError(f"git {arguments[0]} failed: {said}", "try: git --version")
    return done.stdout


def use_package(folder: Path) -> tuple[int, str]:
    """(exit code, output) of what the agents have built, run on its own README."""
    argv = [sys.executable, "-m", "tally", "README.md"]
    try:
        done = subprocess.run(
            argv, cwd=folder, capture_output=True, text=True, check=False, timeout=MODULE_RUN_S
        )
    except subprocess.TimeoutExpired:
        return 1, f"it did not end in {MODULE_RUN_S:.0f} s"
    return done.returncode, (done.stdout or done.stderr).rstrip()


def remove(folder: Path) -> bool:
    """False where something was left."""
    for _ in range(_REMOVE_TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return True
        time.sleep(0.1)
    return False
