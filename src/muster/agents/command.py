"""Any command as an agent: its exit code says how it went, `result.json` what came out."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import msgspec

from muster.agents.host import oom_kills
from muster.agents.script import script_of
from muster.model.errors import AgentUnfit, BadInput, Unavailable
from muster.model.limits import Limits
from muster.model.states import ErrorKind
from muster.ports.agent import AgentEvent, AttemptFolder, Completed, Exit, Failed, Job, Launch, Outcome

RESULT_BYTES_MAX = 1 << 20
MESSAGE_CHARS_MAX = 300
_TAIL_BYTES = 1 << 16
_LAST_CHARS = 4096
"""Of stderr: where a program that ran out of memory says so, with its stack below."""
_ENV_NAMES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "TERM"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
EXIT_CODES: Mapping[int, ErrorKind] = MappingProxyType(
    {64: ErrorKind.INVALID, 65: ErrorKind.INVALID, 78: ErrorKind.INVALID}
)
_FROM_OUTSIDE = frozenset({signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGINT})
_AT_A_LIMIT: Mapping[int, str] = {
    signal.SIGXCPU: "its limit of processor time is used up",
    signal.SIGXFSZ: "it wrote a file larger than its limit",
}
_OUT_OF_MEMORY = re.compile(
    r"\bMemoryError\b|out of memory|cannot allocate memory|bad_alloc|alloc(?:ation|ate memory)? failed",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"\{(prompt|prompt_file|task|title)\}")
_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")

Prompt = Literal["argument", "script", "file", "stdin", "none"]


@dataclass(frozen=True, kw_only=True)
class CommandAgent:
    """An agent that is one command.  Exit code 0 is success."""

    name: str
    command: tuple[str, ...]
    prompt: Prompt = "argument"
    env_names: tuple[str, ...] = ()
    """Variables of the worker's environment that the agent gets besides the usual ones."""
    env: Mapping[str, str] = field(default_factory=dict)
    exit_codes: Mapping[int, ErrorKind] = field(default_factory=lambda: EXIT_CODES)
    """What exit codes mean that do not mean `crash`: by default those of sysexits.h for wrong input."""
    home: Path | None = None
    """Its HOME where that is not the user's.  All its attempts share it, so that a session can be resumed."""
    limits: Limits = field(default_factory=Limits)

    def check(self) -> None:
        """Raises AgentUnfit where the binary cannot be found or executed on this host."""
        if not self.command:
            raise AgentUnfit(f"agent {self.name} has no command", "set its command in the configuration")
        binary = self.command[0]
        path = self._base_env()["PATH"]
        if shutil.which(binary, path=path):
            return
        found = shutil.which(binary, mode=os.F_OK, path=path)
        if found and not Path(found).is_dir():
            raise AgentUnfit(
                f"{found} is not executable (agents.{self.name}.command in muster.toml)", f"chmod +x {found}"
            )
        where = "" if os.sep in binary else " on PATH"
        raise AgentUnfit(
            f"{binary} not found{where} (agents.{self.name}.command in muster.toml)",
            "install it, or set its full path in the agent's command",
        )

    def launch(self, job: Job, folder: AttemptFolder, *, cwd: Path, extra_env: Mapping[str, str]) -> Launch:
        """Writes the prompt and the checkpoint into `folder` and says what to start.

        Raises AgentUnfit where there is no command, BadInput where the prompt or title cannot be passed on,
        Unavailable where the folder cannot be written.
        """
        if not self.command:
            raise AgentUnfit(f"agent {self.name} has no command", "set its command in the configuration")
        _refuse_unpassable(job)
        try:
            _write_inputs(job, folder)
            if self.home is not None:
                self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as exc:
            raise Unavailable(f"cannot write the attempt's folder {folder.path}: {exc}") from exc
        return Launch(
            argv=self._argv(job, folder),
            env=self._base_env() | _job_env(job, folder) | dict(extra_env),
            cwd=cwd,
            stdin=folder.prompt.absolute() if self.prompt == "stdin" else None,
            limits=self.limits,
        )

    def stream(self) -> SilentStream:
        return SilentStream()

    def outcome(self, exit: Exit, folder: AttemptFolder) -> Outcome:
        """What this end means.  Never raises: a broken result file is a failure with a message."""
        if exit.timed_out:
            return Failed(kind=ErrorKind.TIMEOUT, message="ran longer than its time limit and was stopped")
        if exit.stopped_by_us:
            # Many CLIs exit with 0 when interrupted, so the code proves nothing.
            return Failed(kind=ErrorKind.LOST, message="stopped on request before it had finished")
        if exit.code == 0:
            return _read_result(folder.result)
        kind, cause = self._cause(exit, folder)
        said = _last_words(folder)
        return Failed(kind=kind, message=_shorten(f"{cause}: {said}" if said else cause))

    def _cause(self, exit: Exit, folder: AttemptFolder) -> tuple[ErrorKind, str]:
        if exit.code in {-signal.SIGKILL, 128 + signal.SIGKILL} and exit.out_of_memory:
            return ErrorKind.OUT_OF_MEMORY, "killed while the host was out of memory"
        if self.limits.memory_bytes is not None and _OUT_OF_MEMORY.search(
            _tail(folder.stderr)[-_LAST_CHARS:]
        ):
            return ErrorKind.OUT_OF_MEMORY, f"{_ended(exit.code)} at its limit of memory"
        if exit.code < 0:
            return _signal_cause(-exit.code)
        cause = f"exit code {exit.code}"
        if exit.code in self.exit_codes:
            return self.exit_codes[exit.code], cause
        if exit.code == 128 + signal.SIGKILL and oom_kills() is None:
            return ErrorKind.OUT_OF_MEMORY, f"{cause}, most likely killed for want of memory"
        return ErrorKind.CRASH, cause

    def _argv(self, job: Job, folder: AttemptFolder) -> tuple[str, ...]:
        values = {
            "prompt": prompt_of(job),
            "prompt_file": str(folder.prompt.absolute()),
            "task": job.ref,
            "title": job.title,
        }
        argv = [_fill(element, values) for element in self.command]
        if self.prompt == "script":
            # In a file: a script may be longer than an argument can be.
            _write_private(folder.script, script_of(job.prompt).encode())
            argv.append(str(folder.script.absolute()))
        elif self.prompt == "argument" and not any("{prompt}" in element for element in self.command):
            argv.append(_fill("{prompt}", values))
        return tuple(argv)

    def _base_env(self) -> dict[str, str]:
        names = {*_ENV_NAMES, *self.env_names}
        env = {name: value for name, value in os.environ.items() if name in names or name.startswith("LC_")}
        if self.home is not None:
            env["HOME"] = str(self.home.absolute())
        env |= self.env
        # So that a task finds `muster report`, without ever hiding another program.
        scripts = str(Path(sys.executable).parent)
        places = env.get("PATH", os.defpath).split(os.pathsep)
        env["PATH"] = os.pathsep.join(places if scripts in places else [*places, scripts])
        return env


class SilentStream:
    """The output of a plain command: a log, nothing more."""

    def feed(self, data: bytes) -> list[AgentEvent]:  # noqa: ARG002
        return []


def prompt_of(job: Job) -> str:
    """The task's title and text, with what a person wants this attempt to know."""
    text = job.title if job.prompt in ("", job.title) else f"{job.title}\n\n{job.prompt}"
    text = f"{text}\n\nNote from a person: {job.note}\n" if job.note else text
    return f"{text}\n\n{job.told}\n" if job.told else text


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Replaces the placeholders in one pass: what they stand for is never looked at again.

    Text of the task cannot become an option: at the head of an argument, a dash gets a space before it.
    """
    text = _PLACEHOLDER.sub(lambda match: values[match[1]], template)
    return f" {text}" if text.startswith("-") and not template.startswith("-") else text


def _refuse_unpassable(job: Job) -> None:
    for what, text in (("prompt", prompt_of(job)), ("title", job.title), ("reference", job.ref)):
        if "\0" in text:
            raise BadInput(f"the {what} of {job.ref!r} holds a NUL character", "remove it from the task")
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise BadInput(f"the {what} of {job.ref!r} is not valid Unicode: {exc}") from exc


def _write_inputs(job: Job, folder: AttemptFolder) -> None:
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.path.chmod(0o700)
    folder.result.unlink(missing_ok=True)
    _write_private(folder.prompt, prompt_of(job).encode())
    if job.checkpoint is None:
        folder.checkpoint.unlink(missing_ok=True)
    else:
        _write_private(folder.checkpoint, job.checkpoint)


def _write_private(path: Path, data: bytes) -> None:
    # A new file each time: an old one may be a link, or open to others.
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def _job_env(job: Job, folder: AttemptFolder) -> dict[str, str]:
    env = {
        "MUSTER_TASK": job.ref,
        "MUSTER_TASK_ID": str(job.task_id),
        "MUSTER_EPOCH": str(job.epoch),
        "MUSTER_RESULT": str(folder.result.absolute()),
        "MUSTER_PROMPT_FILE": str(folder.prompt.absolute()),
    }
    if job.note:
        env["MUSTER_NOTE"] = job.note
    if job.told:
        env["MUSTER_HANDOVER"] = job.told
    if job.checkpoint is not None:
        env["MUSTER_CHECKPOINT"] = str(folder.checkpoint.absolute())
    return env


def _read_result(path: Path) -> Outcome:
    try:
        return Completed(result=_result_bytes(path))
    except _BadResult as exc:
        message = _shorten(f"exit code 0, but its {path.name} {exc}")
        return Failed(kind=ErrorKind.CRASH, message=message)


class _BadResult(Exception):
    """The text continues "result.json ..."."""


def _result_bytes(path: Path) -> bytes | None:
    try:
        # Not following links, and not blocking on a pipe: the agent made this file.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise _BadResult("is a symbolic link" if path.is_symlink() else f"cannot be read: {exc}") from exc
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise _BadResult("is not a regular file")
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(RESULT_BYTES_MAX + 1)
        if len(data) > RESULT_BYTES_MAX:
            raise _BadResult(f"is larger than {RESULT_BYTES_MAX:,} bytes")
        if not data.strip():
            return None
        msgspec.json.decode(data)
    except OSError as exc:
        raise _BadResult(f"cannot be read: {exc}") from exc
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
        raise _BadResult(f"is not JSON: {exc}") from exc
    else:
        return data
    finally:
        os.close(fd)


def _ended(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _signal_cause(number: int) -> tuple[ErrorKind, str]:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number in _AT_A_LIMIT:
        return ErrorKind.CRASH, f"killed by {name}, {_AT_A_LIMIT[number]}"
    if number in _FROM_OUTSIDE:
        return ErrorKind.LOST, f"killed by {name} from outside"
    return ErrorKind.CRASH, f"killed by {name}"


def _last_words(folder: AttemptFolder) -> str:
    """The last line that says anything: of stderr, else of stdout."""
    for path in (folder.stderr, folder.stdout):
        for line in reversed(_ESCAPE.sub("", _tail(path)).splitlines()):
            if text := _printable(line):
                return text
    return ""


def _tail(path: Path) -> str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        # pread refuses pipes and directories.
        return os.pread(fd, _TAIL_BYTES, max(0, os.fstat(fd).st_size - _TAIL_BYTES)).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(fd)


def _printable(line: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in line).split())


def _shorten(text: str) -> str:
    return text if len(text) <= MESSAGE_CHARS_MAX else text[: MESSAGE_CHARS_MAX - 1] + "…"
