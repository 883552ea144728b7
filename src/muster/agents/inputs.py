"""What every agent is given, and what is left behind when its process has ended."""

from __future__ import annotations

import os
import re
import shutil
import signal
import stat
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import replace

from muster.hosts.plain_files import read_part
from muster.model.errors import AgentUnfit, BadInput
from muster.model.limits import Limits
from muster.model.shown import without_escapes
from muster.model.states import ErrorKind
from muster.ports.agent import AttemptFolder, Completed, Exit, Failed, Home, Job, Outcome

SHARED = "MUSTER_SHARED"
RESULT_BYTES_MAX = 1 << 20
MESSAGE_CHARS_MAX = 300
TEXT_CHARS_MAX = 100_000
REFUSED_MAX = 20
INPUT_CHARS_MAX = 20_000
"""Of what a task gives its agent, in a prompt."""
_NO_WORD = "It holds secrets: print none of them, and write none of them to a file."
_TAIL_BYTES = 1 << 16
_LAST_CHARS = 4096
"""Of stderr: where a program that ran out of memory says so, with its stack below."""
_ENV_NAMES = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "TERM"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
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
_HINT = re.compile(
    r"\W*(?:(?:hint|help|try|tip|fix|note|usage)(?::|\s\s)|try ['`]|for more |did you mean)",
    re.IGNORECASE,
)


def check_binary(agent: str, binary: str, path: str) -> None:
    """Raises AgentUnfit where `binary` cannot be found on `path` or executed on this host."""
    if shutil.which(binary, path=path):
        return
    found = shutil.which(binary, mode=os.F_OK, path=path)
    if found and not Path(found).is_dir():
        raise AgentUnfit(
            f"{found} is not executable (agents.{agent}.command in muster.toml)", f"chmod +x {found}"
        )
    where = "" if os.sep in binary else " on PATH"
    raise AgentUnfit(
        f"{binary} not found{where} (agents.{agent}.command in muster.toml)",
        "install it, or set its full path in the agent's command",
    )


def base_env(names: Collection[str], given: Mapping[str, str], home: Home | None = None) -> dict[str, str]:
    """The usual variables of the worker's own environment, those in `names`, and what is `given`.

    `home` is the agent's where that is not the user's.
    """
    wanted = {*_ENV_NAMES, *names}
    env = {name: value for name, value in os.environ.items() if name in wanted or name.startswith("LC_")}
    if home is not None:
        env |= {"HOME": str(home.path.absolute()), SHARED: str(home.shared.absolute())}
    env |= given
    # So that a task finds `muster report`, without ever hiding another program.
    scripts = str(Path(sys.executable).parent)
    places = env.get("PATH", os.defpath).split(os.pathsep)
    env["PATH"] = os.pathsep.join(places if scripts in places else [*places, scripts])
    return env


def prompt_of(job: Job) -> str:
    """The task's title and text, with what a person wants this attempt to know."""
    return with_notes(task_text(job), job)


def task_text(job: Job) -> str:
    return job.title if job.prompt in ("", job.title) else f"{job.title}\n\n{job.prompt}"


def placed_text(job: Job) -> str:
    """With where the task stands in its plan."""
    return f"{task_text(job).rstrip()}\n\n{job.place}" if job.place else task_text(job)


def with_notes(text: str, job: Job) -> str:
    """`text` with what a person and the folder's earlier attempts want this one to know."""
    text = f"{text}\n\nWhy your last result was not taken: {job.sent_back}\n" if job.sent_back else text
    text = f"{text}\n\nNote from a person: {job.note}\n" if job.note else text
    return f"{text}\n\n{job.told}\n" if job.told else text


def input_text(job: Job, folder: AttemptFolder, *, reads_all: bool = True) -> str:
    """Where the agent finds what it is given to work with, or that itself where it may not read it there."""
    if not job.input_context:
        return ""
    place = input_place(job, folder)
    if reads_all:
        warned = f" {_NO_WORD}" if job.input_file else ""
        return f"What you are given to work with is JSON in {place}.{warned}"
    given = msgspec.json.format(msgspec.json.encode(job.input_context)).decode()
    cut = f"\n(cut; all of it is in {place})" if len(given) > INPUT_CHARS_MAX else ""
    hidden = (
        f"\n\nStars stand for secrets, which programs find in {place}. {_NO_WORD}" if job.input_file else ""
    )
    return f"What you are given to work with, as JSON:\n\n{given[:INPUT_CHARS_MAX]}{cut}{hidden}"


def input_place(job: Job, folder: AttemptFolder) -> Path:
    return (job.input_file or folder.input_context).absolute()


def refuse_unpassable(job: Job) -> None:
    for what, text in (("prompt", prompt_of(job)), ("title", job.title), ("reference", job.ref)):
        if "\0" in text:
            raise BadInput(f"the {what} of {job.ref!r} holds a NUL character", "remove it from the task")
        try:
            text.encode()
        except UnicodeEncodeError as exc:
            raise BadInput(f"the {what} of {job.ref!r} is not valid Unicode: {exc}") from exc


def write_inputs(job: Job, folder: AttemptFolder, *, prompt: str, home: Home | None = None) -> None:
    """Raises OSError."""
    for place in () if home is None else (home.path, home.shared):
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.path.chmod(0o700)
    folder.result.unlink(missing_ok=True)
    write_private(folder.prompt, prompt.encode())
    if job.input_context and job.input_file is None:
        write_private(folder.input_context, msgspec.json.encode(job.input_context))
    if job.checkpoint is None:
        folder.checkpoint.unlink(missing_ok=True)
    else:
        write_private(folder.checkpoint, job.checkpoint)


def write_private(path: Path, data: bytes) -> None:
    # A new file each time: an old one may be a link, or open to others.
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)


def job_env(job: Job, folder: AttemptFolder) -> dict[str, str]:
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
    if job.input_context:
        env["MUSTER_INPUT_CONTEXT_FILE"] = str(input_place(job, folder))
    if job.checkpoint is not None:
        env["MUSTER_CHECKPOINT"] = str(folder.checkpoint.absolute())
    return env


def read_result(path: Path) -> Outcome:
    try:
        return Completed(result=_result_bytes(path))
    except _BadResult as exc:
        message = shorten(f"exit code 0, but its {path.name} {exc}")
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


def out_of_memory(exit: Exit, folder: AttemptFolder, limits: Limits) -> str:
    """How it ran out of memory; empty where nothing says that it did."""
    if exit.code in {-signal.SIGKILL, 128 + signal.SIGKILL} and exit.out_of_memory:
        return f"out of memory: {exit.out_of_memory}"
    if limits.memory_bytes is not None and _OUT_OF_MEMORY.search(tail(folder.stderr)[-_LAST_CHARS:]):
        ended = f"exit code {exit.code}" if exit.code >= 0 else f"signal {-exit.code}"
        return f"{ended} at its limit of memory"
    return ""


def signal_cause(number: int) -> tuple[ErrorKind, str]:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number in _AT_A_LIMIT:
        return ErrorKind.CRASH, f"killed by {name}, {_AT_A_LIMIT[number]}"
    if number in _FROM_OUTSIDE:
        return ErrorKind.LOST, f"killed by {name} from outside"
    return ErrorKind.CRASH, f"killed by {name}"


def last_words(folder: AttemptFolder) -> str:
    """The last line that says anything: of stderr, else of stdout."""
    return last_line(folder.stderr) or last_line(folder.stdout)


def last_line(path: Path) -> str:
    """The last line of a file that says anything, and more than what to try next; empty where there is none."""
    lines = without_escapes(tail(path)).splitlines()
    said = [(text, _HINT.match(line)) for line in reversed(lines) if (text := printable(line))]
    return next((text for text, hint in said if not hint), said[0][0] if said else "")


def tail(path: Path) -> str:
    """The end of a file, at most 64 KiB; empty where it cannot be read."""
    try:
        return read_part(path, _TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ""


def printable(line: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in line).split())


def shorten(text: str) -> str:
    return text if len(text) <= MESSAGE_CHARS_MAX else text[: MESSAGE_CHARS_MAX - 1] + "…"


def stopped_by_us(exit: Exit) -> Failed | None:
    """Many CLIs exit with 0 when interrupted, so the code proves nothing."""
    if exit.timed_out:
        return Failed(kind=ErrorKind.TIMEOUT, message="ran longer than its time limit and was stopped")
    if exit.stopped_by_us:
        return Failed(kind=ErrorKind.LOST, message="stopped on request before it had finished")
    return None


def exit_failure(exit: Exit, folder: AttemptFolder, limits: Limits) -> Failed:
    """What an end means that says nothing but its code: of an agent that tells success by an event."""
    if stopped := stopped_by_us(exit):
        return stopped
    number = -exit.code if exit.code < 0 else exit.code - 128
    if starved := out_of_memory(exit, folder, limits):
        kind, cause = ErrorKind.OUT_OF_MEMORY, starved
    elif number in _FROM_OUTSIDE or exit.code < 0:
        kind, cause = signal_cause(number)
    else:
        kind, cause = ErrorKind.CRASH, f"exit code {exit.code}"
    said = last_line(folder.stderr)
    return Failed(kind=kind, message=shorten(f"{cause}: {said}" if said else cause))


def with_result(folder: AttemptFolder, text: str, refused: Iterable[str] = ()) -> Outcome:
    """Done: with the result file that the agent has written, else with its last words as `{"text": ...}`."""
    found = read_result(folder.result)
    if isinstance(found, Failed):
        return found
    told = tuple(dict.fromkeys(shorten(printable(what)) for what in refused))[:REFUSED_MAX]
    if found.result is None and text:
        said = msgspec.json.encode({"text": text[:TEXT_CHARS_MAX]})
        return Completed(result=said, spoken=True, refused=told)
    return replace(found, refused=told)
