"""What an attempt says about itself, with its token: the rules of `muster report` and of the MCP server.

Each function gives the body of one report, as `web.attempts` takes it, or raises BadInput.
"""

from __future__ import annotations

import base64
import json
import os
import time

from muster.client.api import Api, patiently
from muster.client.http import REPLY_S
from muster.model.errors import BadInput, NotAllowed, Unavailable
from muster.model.file_names import readable
from muster.model.numbers import ARTIFACT_BYTES_MAX, ARTIFACT_PART_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from muster.client.api import Transport

    Say = Callable[[str], None]

CHECKPOINT_BYTES_MAX = 1 << 20
RESULT_BYTES_MAX = 1 << 20
"""As in model.commands, which would cost 30 ms to import."""
STEP_CHARS_MAX = 500
NAME_CHARS_MAX = 200
MESSAGE_CHARS_MAX = 10_000
NEXT_S = 5.0
"""So long one of several servers is waited for before the next one is asked.  A report may come twice."""
SERVER, SOCKET = "MUSTER_SERVER", "MUSTER_SOCKET"
"""Where the owner is: far away, or on this host."""
_VARIABLES = ("MUSTER_TOKEN", "MUSTER_TASK_ID", "MUSTER_EPOCH")


class ReportingAttempt:
    def __init__(self, owner: str, token: str, task_id: int, epoch: int) -> None:
        """`owner`: the path of its socket, or its URL."""
        self.owner, self.token, self.task_id, self.epoch = owner, token, task_id, epoch

    @classmethod
    def of(cls, env: Mapping[str, str]) -> ReportingAttempt:
        """By the variables that Muster sets for the processes of a task.  Raises BadInput."""
        # A task that was taken by hand names the socket of its project, whatever server a person uses besides.
        owner = env.get(SOCKET) or env.get(SERVER)
        unnamed = [] if owner else [SOCKET]
        if missing := unnamed + [name for name in _VARIABLES if not env.get(name)]:
            raise BadInput(
                f"this is not inside a task: {', '.join(missing)} not set",
                "reports are for the processes of a task; Muster sets these variables for them",
            )
        numbers = {}
        for name in ("MUSTER_TASK_ID", "MUSTER_EPOCH"):
            if not (env[name].isascii() and env[name].isdigit()):
                raise BadInput(
                    f"{name} is {env[name]!r}, which is not a number", "leave it as Muster has set it"
                )
            numbers[name] = int(env[name])
        token = env["MUSTER_TOKEN"]
        if not (token.isascii() and token.isprintable()):
            raise BadInput("MUSTER_TOKEN is not a token", "leave it as Muster has set it")
        return cls(owner or "", token, numbers["MUSTER_TASK_ID"], numbers["MUSTER_EPOCH"])

    def path(self, verb: str) -> str:
        return f"/attempt/v1/{self.task_id:d}/{self.epoch:d}/{verb}"

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def send(
        self, connection: Transport, verb: str, body: Mapping[str, Any], away_s: float, say: Say | None = None
    ) -> Any:
        """Waits so long for an owner that is away, but not where it can never be reached: NotAllowed."""
        others = self.owner.count(",") if "://" in self.owner else 0
        patience = iter([NEXT_S] * others)

        def reach() -> Any:
            api = Api(connection, self.headers, reply_s=next(patience, REPLY_S))
            try:
                return api.post(self.path(verb), body)
            except Unavailable as error:
                if not isinstance(error.__cause__, PermissionError):
                    raise
                raise NotAllowed(
                    f"nothing was reported: this process may not reach Muster ({error.__cause__.strerror})",
                    "write `muster: progress 40 TEXT`, `muster: checkpoint TEXT` or `muster: ask QUESTION` as "
                    "a line of its own in a message instead",
                ) from error

        return patiently(reach, away_s, say)


def progress(percent: int | None, step: str | None, left_s: float | None, say: Say) -> dict[str, Any]:
    if percent is None and step is None and left_s is None:
        raise BadInput("there is nothing to report", "say a percentage or a step")
    until_ms = None if left_s is None else int((time.time() + left_s) * 1000)
    told = None if step is None else text_of("the step", step, STEP_CHARS_MAX, say)
    return {"percent": percent, "step": told, "estimatedCompletionAtMs": until_ms}


def checkpoint(data: bytes) -> dict[str, Any]:
    if len(data) > CHECKPOINT_BYTES_MAX:
        raise BadInput(
            f"the checkpoint has more than {CHECKPOINT_BYTES_MAX} bytes; the last one is kept",
            "write large state to a file and save its path",
        )
    if not data:
        raise BadInput(
            "the checkpoint is empty; nothing was sent, the last one is kept",
            "save what the next attempt needs",
        )
    # Which of two is the newer one is told by when they were taken: one of them may be held up on its way.
    taken = {"takenUs": time.monotonic_ns() // 1000, "takenOn": _this_boot()}
    return {"data": base64.b64encode(data).decode(), **taken}


def _this_boot() -> str:
    """Empty where the system does not tell: then checkpoints stand in the order in which they come."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def artifact(name: str, location: str, folder: str, say: Say) -> dict[str, Any]:
    """`folder` is the task's."""
    given = {"name": (name, NAME_CHARS_MAX), "location": (location, MESSAGE_CHARS_MAX)}
    for what, (text, limit) in given.items():
        if not 0 < len(text) <= limit:
            raise BadInput(
                f"{what.upper()} has {len(text)} characters, not 1 to {limit}",
                "a short name, and a path or an address",
            )
    _refuse_escape(location, folder)
    return {what: text_of(what, text, limit, say) for what, (text, limit) in given.items()}


def send_file(
    attempt: ReportingAttempt,
    connection: Transport,
    told: Mapping[str, Any],
    *,
    location: str,
    folder: str,
    away_s: float,
    say: Say,
) -> None:
    """What the named file holds now goes to the owner before the name does: whoever reads it later needs no host.

    `location` is as given, and the one in `told` in words.  Of what is no ordinary file, or too long a one,
    only the name is kept, which `say` tells.
    """
    if "://" in location:
        return
    from pathlib import Path

    from muster.hosts.plain_files import read_plain

    try:
        data = read_plain(Path(folder, location), ARTIFACT_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        say(f"only the name of {told['location']} is kept: {getattr(error, 'strerror', None) or error}")
        return
    if len(data) > ARTIFACT_BYTES_MAX:
        say(f"only the name of {told['location']} is kept: it has more than {ARTIFACT_BYTES_MAX >> 20} MB")
        return
    import hashlib

    whole = {"name": told["name"], "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    offset = 0
    for _ in range(4 + 2 * (len(data) // ARTIFACT_PART_BYTES)):  # it may have to begin anew
        part = base64.b64encode(data[offset : offset + ARTIFACT_PART_BYTES]).decode()
        answer = attempt.send(
            connection, "artifact/content", {**whole, "offset": offset, "data": part}, away_s, say
        )
        if answer["whole"]:
            return
        offset = answer["received"]
    raise Unavailable(f"{told['location']} did not come to the owner whole; nothing was noted", "try again")


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


def done(data: bytes, what: str = "the result") -> dict[str, Any]:
    """`data` is the result as JSON."""
    if len(data) > RESULT_BYTES_MAX:
        raise BadInput(
            f"the result has more than {RESULT_BYTES_MAX} bytes; nothing was sent",
            "name a file with it as an artifact, and give a short result",
        )
    try:
        return {"result": json.loads(data.decode(), parse_constant=refuse_constant)}
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{what}: {error}; nothing was sent", 'write JSON, like {"rows": 120} or "a text"'
        ) from None


def refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def fail(kind: str, message: str, say: Say) -> dict[str, Any]:
    return {"kind": kind, "message": text_of("the message", message, MESSAGE_CHARS_MAX, say)}


def ask(question: str, say: Say) -> dict[str, Any]:
    if not question.strip():
        raise BadInput("the question is empty; nothing was asked", "say what you want to know")
    return {"question": text_of("the question", question, MESSAGE_CHARS_MAX, say)}


def text_of(what: str, text: str, limit: int, say: Say) -> str:
    """Without bytes that are no Unicode; cut rather than refused: a shorter report is better than none."""
    sound = readable(text)
    if len(sound) > limit:
        say(f"{what} was cut to {limit} characters")
        sound = sound[: limit - 3] + "..."
    return sound
