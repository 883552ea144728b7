"""`muster report`: what a task says about itself, with the token of its attempt."""

from __future__ import annotations

import argparse
import base64
import json
import os
import stat
import sys
import time
from contextlib import closing, contextmanager, nullcontext

from muster.cli.context import AWAY_S, connect_to, patiently
from muster.cli.output import note, now_ms, print_error, print_json
from muster.cli.values import number, time_s
from muster.client.api import Api, error_of
from muster.client.http import REPLY_S, Connection
from muster.config.project import Project
from muster.model.errors import BadInput, NotAllowed, NotFound, Unavailable
from muster.model.states import ErrorKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, BinaryIO

    from muster.client.api import Transport

CHECKPOINT_BYTES_MAX = 1 << 20
RESULT_BYTES_MAX = 1 << 20
"""As in model.commands, which would cost 30 ms to import."""
STEP_CHARS_MAX = 500
MESSAGE_CHARS_MAX = 10_000

_HELP = """\
Called inside a task; Muster sets MUSTER_SOCKET, MUSTER_TOKEN, MUSTER_TASK_ID and MUSTER_EPOCH for it.

    muster report progress 40 --step "migrating users"
    echo '{"last": 4711}' | muster report checkpoint -         # a pipe: one JSON object, list or text
    muster report checkpoint -- pg_dump shop                   # what a command prints, once it has ended with 0
    { step1 && echo END; } | muster report checkpoint - --end END     # the last line proves that it is whole
    last=$(muster report checkpoint --show || echo '{}')     # in the next attempt
    muster report artifact report dist/report.html
    muster report ask "which of the two schemas is meant?"     # then stop: the answer is in MUSTER_NOTE
    muster report done --result '{"rows": 120}'

While the owner restarts, a report waits for it (--timeout).  Exit code 6 means that this attempt is over and
another one may hold the task: stop working.

A checkpoint that may be cut off is refused: a warning says why, the last one is kept, and the exit code is 2
(`|| true` goes on under `sh -e`).  A writer that dies unseen cannot be noticed: one before another `|`, one in
--text "$(...)", or one that writes a JSON value on each line.  Use --end, or `set -o pipefail` in the command's
shell; or write a file, and save it with `checkpoint FILE` only when its writer has ended well.
"""
_VARIABLES = ("MUSTER_SOCKET", "MUSTER_TOKEN", "MUSTER_TASK_ID", "MUSTER_EPOCH")


class ReportingAttempt:
    def __init__(self, socket: str, token: str, task_id: int, epoch: int) -> None:
        self.socket, self.token, self.task_id, self.epoch = socket, token, task_id, epoch

    def path(self, verb: str) -> str:
        return f"/attempt/v1/{self.task_id:d}/{self.epoch:d}/{verb}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = _HELP
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    progress = verbs.add_parser("progress", help="how far it is")
    progress.add_argument("percent", metavar="PERCENT", nargs="?", type=_percent)
    progress.add_argument("--step", metavar="TEXT", help="what it does now")
    progress.add_argument(
        "--left",
        metavar="TIME",
        type=time_s,
        help="how long it still takes, like 20m: 30 min more are allowed",
    )
    checkpoint = verbs.add_parser("checkpoint", help="save what the next attempt needs to go on from here")
    checkpoint.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="a file; - for stdin; -- COMMAND ... for what a command prints",
    )
    # Written as `--`: behind any other option, those that stand everywhere would be taken out of the command.
    checkpoint.add_argument("--run", dest="command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    checkpoint.add_argument("--text", metavar="TEXT", help="the checkpoint itself")
    checkpoint.add_argument(
        "--end", metavar="LINE", help="its last line, which proves that it is whole; not saved"
    )
    checkpoint.add_argument(
        "--show", action="store_true", help="print the last one instead (exit code 3: none)"
    )
    artifact = verbs.add_parser("artifact", help="name something that the task has made")
    artifact.add_argument("name", metavar="NAME")
    artifact.add_argument("location", metavar="LOCATION", help="a path or an address")
    done = verbs.add_parser("done", help="it is done; counts once its process has ended")
    done.add_argument("--result", metavar="JSON|@FILE", help="what came out, as JSON")
    fail = verbs.add_parser("fail", help="it cannot be done; counts once its process has ended")
    fail.add_argument("message", metavar="MESSAGE")
    fail.add_argument(
        "--kind",
        metavar="KIND",
        choices=tuple(ErrorKind),
        default="crash",
        help="which kind of failure (crash)",
    )
    ask = verbs.add_parser("ask", help="ask a person: this attempt ends, the answer begins the next one")
    ask.add_argument("question", metavar="QUESTION")
    for verb in (progress, checkpoint, artifact, done, fail, ask):
        verb.add_argument(
            "--timeout",
            metavar="TIME",
            type=time_s,
            default=AWAY_S,
            help=f"how long to wait for an owner that is away ({AWAY_S:g}s)",
        )


def run(args: argparse.Namespace) -> int:
    attempt = _attempt(os.environ)
    if args.verb == "checkpoint" and args.show:
        return _show_checkpoint(args, attempt)
    body = {
        "progress": _progress,
        "checkpoint": _checkpoint,
        "artifact": _artifact,
        "done": result_of,
        "fail": _fail,
        "ask": _ask,
    }
    try:
        content = body[args.verb](args)
    except BadInput as error:
        if args.verb != "checkpoint":
            raise
        print_error(error, as_json=args.json, word="warning")
        return error.exit_code
    with _connection(attempt) as connection:
        api = Api(connection, attempt.headers)
        answer = patiently(lambda: _reach(lambda: api.post(attempt.path(args.verb), content)), args.timeout)
    if args.json:
        print_json(answer)
    return 0


def _reach(call: Callable[[], Any]) -> Any:
    """Raises NotAllowed where a sandbox keeps this process from the owner: waiting would not help."""
    try:
        return call()
    except Unavailable as error:
        if not isinstance(error.__cause__, PermissionError):
            raise
        raise NotAllowed(
            f"nothing was reported: this process may not reach Muster ({error.__cause__.strerror})",
            "write `muster: progress 40 TEXT`, `muster: checkpoint TEXT` or `muster: ask QUESTION` as a line "
            "of its own in a message instead",
        ) from error


def _attempt(env: Mapping[str, str]) -> ReportingAttempt:
    missing = [name for name in _VARIABLES if not env.get(name)]
    if missing:
        raise BadInput(
            f"this is not inside a task: {', '.join(missing)} not set",
            "`muster report` is for the processes of a task; Muster sets these variables for them",
        )
    numbers = {}
    for name in ("MUSTER_TASK_ID", "MUSTER_EPOCH"):
        if not (env[name].isascii() and env[name].isdigit()):
            raise BadInput(f"{name} is {env[name]!r}, which is not a number", "leave it as Muster has set it")
        numbers[name] = int(env[name])
    token = env["MUSTER_TOKEN"]
    if not (token.isascii() and token.isprintable()):
        raise BadInput("MUSTER_TOKEN is not a token", "leave it as Muster has set it")
    return ReportingAttempt(env["MUSTER_SOCKET"], token, numbers["MUSTER_TASK_ID"], numbers["MUSTER_EPOCH"])


@contextmanager
def _connection(attempt: ReportingAttempt) -> Iterator[Transport]:
    """To the owner.  A task that was taken by hand can be held without one; any other has a worker that waits."""
    if os.environ.get("MUSTER_BY_HAND"):
        with connect_to(Project(os.path.dirname(os.path.dirname(attempt.socket)))) as context:
            yield context.transport
        return
    with closing(Connection(attempt.socket)) as connection:
        yield connection


def _percent(text: str) -> int:
    return number(0, 100)(text.removesuffix("%").strip())


def _progress(args: argparse.Namespace) -> dict[str, Any]:
    if args.percent is None and args.step is None and args.left is None:
        raise BadInput("there is nothing to report", "muster report progress 40 --step TEXT")
    step = None if args.step is None else text_of("the step", args.step, STEP_CHARS_MAX)
    until_ms = None if args.left is None else now_ms() + int(args.left * 1000)
    return {"percent": args.percent, "step": step, "estimatedCompletionAtMs": until_ms}


def _checkpoint(args: argparse.Namespace) -> dict[str, Any]:
    given = [what for what in (args.file, args.text, args.command or None) if what is not None]
    if len(given) != 1:
        what = "FILE, --text and -- COMMAND exclude each other" if given else "there is nothing to save"
        raise BadInput(what, "muster report checkpoint FILE, or --text TEXT, or -- COMMAND ...")
    if args.text is not None:
        data = args.text.encode("utf-8", "surrogateescape")
    elif args.file is not None:
        data = _read(args.file, CHECKPOINT_BYTES_MAX, shows_end=args.end is not None)
    else:
        data = _printed_by(args.command, CHECKPOINT_BYTES_MAX)
    if len(data) > CHECKPOINT_BYTES_MAX:
        raise BadInput(
            f"the checkpoint has more than {CHECKPOINT_BYTES_MAX} bytes; the last one is kept",
            "write large state to a file and save its path",
        )
    if args.end is not None:
        data = _before(args.end, data)
    if not data:
        raise BadInput(
            "the checkpoint is empty; nothing was sent, the last one is kept",
            "save what the next attempt needs",
        )
    # Which of two is the newer one is told by when they were taken: one of them may be held up on its way.
    taken = {"takenUs": time.monotonic_ns() // 1000, "takenOn": _this_boot()}
    return {"data": base64.b64encode(data).decode(), **taken}


def _before(end: str, data: bytes) -> bytes:
    """Raises BadInput where this is not the last line."""
    head, _, last = data.removesuffix(b"\n").rpartition(b"\n")
    if last != os.fsencode(end):
        raise BadInput(
            f"the checkpoint does not end with the line {end!r}, so half of it may be missing; nothing was sent",
            f"WRITER && echo {end}",
        )
    return head and head + b"\n"


def _this_boot() -> str:
    """Empty where the system does not tell: then checkpoints stand in the order in which they come."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _artifact(args: argparse.Namespace) -> dict[str, Any]:
    limits = {"name": 200, "location": MESSAGE_CHARS_MAX}
    for name, limit in limits.items():
        number = len(getattr(args, name))
        if not 0 < number <= limit:
            raise BadInput(
                f"{name.upper()} has {number} characters, not 1 to {limit}", "muster report artifact --help"
            )
    _refuse_escape(args.location, os.environ.get("MUSTER_WORKDIR") or os.getcwd())
    return {name: text_of(name, getattr(args, name), limit) for name, limit in limits.items()}


def _refuse_escape(location: str, folder: str) -> None:
    """A link out of the task's folder would pass off somebody else's file as the task's work.

    Addresses and paths that are openly elsewhere are what they say.  Raises BadInput.
    """
    if "://" in location or "\0" in location:
        return
    folder = os.path.abspath(folder)
    named = os.path.normpath(os.path.join(folder, location))
    real, inside = os.path.realpath(named), os.path.realpath(folder)
    if os.path.islink(real):
        raise BadInput(f"{location} is a link that leads to itself; nothing was sent", "name a file")
    if (_lies_in(folder, named) or _lies_in(inside, named)) and not _lies_in(inside, real):
        raise BadInput(
            f"{location} is a link out of the task's folder, to {real}; nothing was sent",
            "copy the file into the folder, or name where it really is",
        )


def _lies_in(folder: str, path: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))


def result_of(args: argparse.Namespace) -> dict[str, Any]:
    """`{"result": ...}` of --result.  Raises BadInput."""
    if args.result is None:
        return {}
    named = args.result.startswith("@")
    data = (
        _read(args.result[1:], RESULT_BYTES_MAX) if named else args.result.encode("utf-8", "surrogateescape")
    )
    if len(data) > RESULT_BYTES_MAX:
        raise BadInput(
            f"the result has more than {RESULT_BYTES_MAX} bytes; nothing was sent",
            "muster report artifact NAME FILE, and a short result",
        )
    try:
        return {"result": json.loads(data.decode(), parse_constant=_refuse_constant)}
    except (ValueError, RecursionError) as error:
        where = f" in {args.result[1:]}" if named else ""
        raise BadInput(
            f"--result is not JSON{where}: {error}; nothing was sent", "--result '{\"rows\": 120}', or @FILE"
        ) from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def _fail(args: argparse.Namespace) -> dict[str, Any]:
    return {"kind": args.kind, "message": text_of("the message", args.message, MESSAGE_CHARS_MAX)}


def _ask(args: argparse.Namespace) -> dict[str, Any]:
    if not args.question.strip():
        raise BadInput("the question is empty; nothing was asked", "muster report ask QUESTION")
    return {"question": text_of("the question", args.question, MESSAGE_CHARS_MAX)}


def text_of(what: str, text: str, limit: int) -> str:
    """Without bytes that are no Unicode; cut rather than refused: a shorter report is better than none."""
    sound = text.encode("utf-8", "replace").decode()
    if len(sound) > limit:
        note(f"{what} was cut to {limit} characters")
        sound = sound[: limit - 3] + "..."
    return sound


def _read(name: str, limit: int, *, shows_end: bool = False) -> bytes:
    """At most one byte more than `limit`.  Raises BadInput where half of it may be missing.

    `shows_end`: the caller can tell that of a pipe by what it brings.
    """
    try:
        with open(name, "rb") if name != "-" else nullcontext(sys.stdin.buffer) as file:
            before = _stamp(file)
            data = file.read(limit + 1)
            after = _stamp(file)
    except OSError as error:
        raise BadInput(
            f"cannot read {name}: {error.strerror}; nothing was sent", "name a file that you can read"
        ) from error
    if before != after:
        raise BadInput(
            f"{name} was written to while it was read; nothing was sent",
            "write it under another name first, and rename it when it is whole",
        )
    if before is None and len(data) <= limit and not shows_end:
        _refuse_half(data)
    return data


def _stamp(file: BinaryIO) -> tuple[int, int] | None:
    """Size and time of a regular file; None for anything else."""
    try:
        found = os.fstat(file.fileno())
    except OSError:  # no file of the system's
        return None
    return (found.st_size, found.st_mtime_ns) if stat.S_ISREG(found.st_mode) else None


def _refuse_half(data: bytes) -> None:
    """A pipe ends the same way when its writer was killed: only what shows its own end is known to be whole."""
    try:
        whole = isinstance(json.loads(data, parse_constant=_refuse_constant), dict | list | str)
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise BadInput(
            "a pipe must bring one whole JSON object, list or text: anything else might be the half that a "
            "killed writer has left; nothing was sent",
            "muster report checkpoint -- COMMAND ..., or --end LINE, or write a file and name it",
        )


def _printed_by(command: Sequence[str], limit: int) -> bytes:
    """At most one byte more than `limit`."""
    import subprocess

    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            data = process.stdout.read(limit + 1)
            if len(data) > limit:
                process.kill()
                return data
    except OSError as error:
        raise BadInput(
            f"cannot run {command[0]}: {error.strerror}; nothing was sent", "name a command that is there"
        ) from error
    if process.returncode:
        raise BadInput(
            f"{command[0]} ended with exit code {process.returncode}; nothing was sent, the last one is kept",
            "run it by hand",
        )
    return data


def _show_checkpoint(args: argparse.Namespace, attempt: ReportingAttempt) -> int:
    if args.file is not None or args.text is not None or args.command is not None:
        raise BadInput("--show saves nothing", "muster report checkpoint --show")

    def ask() -> tuple[int, bytes]:
        target = attempt.path("checkpoint")
        status, data = connection.request("GET", target, headers=attempt.headers, reply_s=REPLY_S)
        if status >= 400:
            raise error_of(status, data)
        return status, data

    with _connection(attempt) as connection:
        status, data = patiently(ask, args.timeout)
    if status == 204:
        raise NotFound("no attempt of this task has saved a checkpoint", "start from the beginning")
    if args.json:
        print_json({"data": base64.b64encode(data).decode()})
        return 0
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    return 0
