"""`muster report`: what a task says about itself, with the token of its attempt."""

from __future__ import annotations

import argparse
import base64
import json
import os
import stat
import sys
from contextlib import closing, contextmanager, nullcontext

from muster.cli.context import AWAY_S, connect_to, patiently
from muster.cli.output import note, print_error, print_json
from muster.cli.values import number, time_s
from muster.client import reports
from muster.client.api import error_of
from muster.client.http import ClientRequest, Connection
from muster.client.reports import CHECKPOINT_BYTES_MAX, RESULT_BYTES_MAX, ReportingAttempt
from muster.config.project import Project
from muster.model.errors import BadInput, NotFound
from muster.model.states import ErrorKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, BinaryIO

    from muster.client.api import Transport

_HELP = """\
Called inside a task; Muster sets MUSTER_SOCKET (or MUSTER_SERVER, where the task runs on another host than the
server), MUSTER_TOKEN, MUSTER_TASK_ID and MUSTER_EPOCH for it.

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
    attempt = ReportingAttempt.of(os.environ)
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
        if args.verb == "artifact":
            place = {"location": args.location, "folder": _workdir()}
            reports.send_file(attempt, connection, content, **place, away_s=args.timeout, say=note)
        answer = attempt.send(connection, args.verb, content, args.timeout, note)
    if args.json:
        print_json(answer)
    return 0


@contextmanager
def _connection(attempt: ReportingAttempt) -> Iterator[Transport]:
    """To the owner.  A task that was taken by hand can be held without one; any other has a worker that waits."""
    if os.environ.get("MUSTER_BY_HAND"):
        with connect_to(Project(os.path.dirname(os.path.dirname(attempt.owner)))) as context:
            yield context.transport
        return
    with closing(Connection(attempt.owner)) as connection:
        yield connection


def _percent(text: str) -> int:
    return number(0, 100)(text.removesuffix("%").strip())


def _progress(args: argparse.Namespace) -> dict[str, Any]:
    return reports.progress(args.percent, args.step, args.left, note)


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
    # Too much may be a part of it, whose end is not its own.
    if args.end is not None and len(data) <= CHECKPOINT_BYTES_MAX:
        data = _before(args.end, data)
    return reports.checkpoint(data)


def _before(end: str, data: bytes) -> bytes:
    """Raises BadInput where this is not the last line."""
    head, _, last = data.removesuffix(b"\n").rpartition(b"\n")
    if last != os.fsencode(end):
        raise BadInput(
            f"the checkpoint does not end with the line {end!r}, so half of it may be missing; nothing was sent",
            f"WRITER && echo {end}",
        )
    return head and head + b"\n"


def _artifact(args: argparse.Namespace) -> dict[str, Any]:
    return reports.artifact(args.name, args.location, _workdir(), note)


def _workdir() -> str:
    return os.environ.get("MUSTER_WORKDIR") or os.getcwd()


def result_of(args: argparse.Namespace) -> dict[str, Any]:
    """`{"result": ...}` of --result.  Raises BadInput."""
    if args.result is None:
        return {}
    named = args.result.startswith("@")
    data = (
        _read(args.result[1:], RESULT_BYTES_MAX) if named else args.result.encode("utf-8", "surrogateescape")
    )
    where = f" in {args.result[1:]}" if named else ""
    return reports.done(data, f"--result is not JSON{where}")


def _fail(args: argparse.Namespace) -> dict[str, Any]:
    return reports.fail(args.kind, args.message, note)


def _ask(args: argparse.Namespace) -> dict[str, Any]:
    return reports.ask(args.question, note)


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
        whole = isinstance(json.loads(data, parse_constant=reports.refuse_constant), dict | list | str)
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
        status, data = connection.request(ClientRequest("GET", target, headers=attempt.headers))
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
