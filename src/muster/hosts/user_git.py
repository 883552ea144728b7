"""Git as the user would run it by hand: with their own settings, hooks, signature and credentials."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from muster.hosts.handed_on import handed_on
from muster.model.errors import MusterError
from muster.model.file_names import readable

_OF_A_CALLER = frozenset(
    {
        *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"),
        *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_PREFIX", "GIT_CONFIG"),
    }
)
"""What names another repository than that of the folder (`git rev-parse --local-env-vars`)."""
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
_SAID_MAX = 600
_END_S = 2.0
"""How long a git that is told to end may take for its locks."""


class UserGit:
    def __init__(self, folder: Path, more: Mapping[str, str] | None = None) -> None:
        """`more` is added to its environment."""
        self.folder = folder
        self._more = dict(more or {})
        self.running: subprocess.Popen[bytes] | None = None
        """The git that was started last."""

    def ask(
        self, *words: str, given: bytes = b"", within_s: float | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Whatever its exit code; `given` is its standard input.

        With `within_s` it is ended after so long, with all that it has started: then it has no terminal, so that
        nobody can be asked for anything.
        """
        env = {name: value for name, value in handed_on().items() if name not in _OF_A_CALLER}
        # Its words are read; and nobody can be asked for a password whose terminal shows no question.
        env |= {"LC_ALL": "C", "GIT_EDITOR": "true", **self._more}
        if not sys.stderr.isatty():
            env["GIT_TERMINAL_PROMPT"] = "0"
        asked = ["git", *words]
        try:
            process = subprocess.Popen(
                asked,
                cwd=self.folder,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=within_s is not None,
            )
        except OSError as error:
            return subprocess.CompletedProcess(asked, 127, b"", f"git cannot be run: {error}".encode())
        self.running = process
        with process:
            try:
                out, err = process.communicate(given, within_s)
            except subprocess.TimeoutExpired as error:
                assert within_s is not None
                end_session(process)
                took = f"\ngit {words[0]} took more than {within_s:g} s, and was ended".encode()
                return subprocess.CompletedProcess(
                    asked, process.wait(), error.stdout or b"", (error.stderr or b"") + took
                )
            except BaseException:  # Ctrl-C: a git that is asked to end removes its locks first
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_END_S)
                process.kill()
                raise
        return subprocess.CompletedProcess(asked, process.returncode, out, err)

    def run(self, *words: str, given: bytes = b"") -> str:
        """What it printed.  Raises MusterError with its last words."""
        done = self.ask(*words, given=given)
        if done.returncode:
            raise MusterError(f"git {words[0]} failed: {said(done)}", "try it by hand")
        return text_of(done.stdout)

    def commit_of(self, name: str) -> str:
        """Empty where there is none."""
        return text_of(self.ask("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").stdout)

    def branch(self) -> str:
        """The one that is checked out; empty where none is."""
        return text_of(self.ask("symbolic-ref", "--quiet", "--short", "HEAD").stdout)

    def setting(self, name: str) -> str:
        return text_of(self.ask("config", "--get", name).stdout)


def end_session(process: subprocess.Popen[bytes]) -> None:
    """Ends a git that was given its time, and what it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)


def text_of(data: bytes) -> str:
    return os.fsdecode(data).rstrip("\n")


def said(done: subprocess.CompletedProcess[bytes]) -> str:
    """Why it failed, in its own words; the logins that addresses may hold are left out."""
    words = text_of(done.stderr).strip() or text_of(done.stdout).strip() or f"exit code {done.returncode}"
    return without_logins(readable(words)[-_SAID_MAX:])


def without_logins(text: str) -> str:
    return _LOGIN.sub("", text)
