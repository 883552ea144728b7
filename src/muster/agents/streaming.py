"""What the known CLIs have in common: a session that outlives its process, and a stream of events."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from muster.agents.handover import BEGINS, begins_anew, handed_over
from muster.agents.inputs import (
    MESSAGE_CHARS_MAX,
    base_env,
    check_binary,
    exit_failure,
    input_text,
    job_env,
    last_line,
    placed_text,
    printable,
    refuse_unpassable,
    with_notes,
    write_inputs,
    write_private,
)
from muster.agents.jsonlines import JsonLines, text_of
from muster.agents.provider import refusal
from muster.agents.reports import SERVER, how_to_report, identity, is_report, mcp_server, reports_in
from muster.agents.transcript import Reader
from muster.config.settings import AgentConfig
from muster.hosts.handed_on import handed_on
from muster.model.errors import AgentUnfit, BadInput, Unavailable
from muster.model.limits import Limits
from muster.model.pools import CLOSING
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.ports.agent import (
    AgentEvent,
    AttemptFolder,
    Exit,
    Failed,
    Home,
    Job,
    Launch,
    Outcome,
    Retrying,
    SessionSeen,
    Step,
    Talk,
)

STEP_CHARS_MAX = 200
IDLE_BYTES_PER_S = 2048
"""Written by a CLI that only waits, to its own logs and state: 300 to 1,300, the most in its first minute."""
_BY_ITSELF = range(1, 126)
"""Exit codes of programs themselves; those above are a shell's word on a program or on a signal."""
_TELLING = (
    "command",
    "file_path",
    "path",
    "pattern",
    "url",
    "query",
    "description",
    "prompt",
    "step",
    "question",
)
"""The inputs of tools that say in a line what is done."""


class StreamingAgent(Struct, frozen=True):
    """Base of the adapters: subclasses say how the command line looks and where sessions are kept."""

    config: AgentConfig
    home: Home | None = None
    """Where that is not the user's."""
    reader: Callable[[], Reader] = Reader
    """How the output of earlier attempts is read, which may be other agents'."""

    dangers: ClassVar[Mapping[str, str]]
    """What each permission mode lets it do, in half a sentence."""
    usual_env: ClassVar[tuple[str, ...]] = ()
    """Variables that the CLI needs to find its login."""
    config_env: ClassVar[str]
    """The variable that names the folder of its settings, login and sessions."""
    unlogged: ClassVar[bytes] = b""
    """As `Launch.unlogged`."""
    free_mode: ClassVar[str] = ""
    """The permission mode in which it may run any command."""
    names_session: ClassVar[bool] = False
    """A session that begins gets its key from us."""
    own_env: ClassVar[Mapping[str, str]] = {}
    """Variables that it is always given, unless the configuration sets them."""
    interrupts: ClassVar[bool] = True
    """It ends by an interrupt."""
    defaults: ClassVar[tuple[str, Mapping[str, object]]] = ("", {})
    """A variable that names a file of settings below the user's, and what we want to stand there."""

    trusting: ClassVar[Mapping[str, object]] = {"trust": True}
    """What stands in such a file with an MCP server whose tools run without being asked for."""

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def mode(self) -> str:
        assert self.config.permission_mode is not None, "its kind has modes"
        return self.config.permission_mode

    @property
    def about(self) -> str:
        command, model, args = self.config.command, self.config.model, self.config.args
        what = f"{' '.join(command)}, permission mode {self.mode}: {self.dangers[self.mode]}"
        what += "" if model is None else f"; model {model}"
        # What they let it do is not for us to judge: whoever reads this should see them.
        return f"{what}; args {' '.join(args)}" if args else what

    @property
    def model(self) -> list[str]:
        return [] if self.config.model is None else ["--model", self.config.model]

    def arguments(self, session_key: str | None, *, resumes: bool) -> list[str]:
        """All that follows the command."""
        raise NotImplementedError

    def instructed(self, text: str) -> list[str]:  # noqa: ARG002
        """The arguments that add `text` to its own instructions.  Raises BadInput where there are none."""
        raise BadInput(
            f"agent {self.name} cannot be given a system prompt",
            "write it into the task's text, or name another agent",
        )

    def knows(self, session_key: str, env: Mapping[str, str]) -> bool:
        """Whether the CLI still holds this session, in the home that `env` gives it."""
        raise NotImplementedError

    def offering(self, server: Sequence[str], env: dict[str, str]) -> list[str] | None:  # noqa: ARG002
        """The arguments that give its CLI the tools of this MCP server, which then run without being asked for.

        What the CLI reads from `env` instead may be put there.  None where it cannot be given any.
        """
        return [] if self.defaults[0] and self.defaults[0] not in env else None

    @property
    def asking(self) -> tuple[str, ...]:
        """More arguments, with which it asks us where it would refuse its model something."""
        return ()

    def talk(self, prompt: str) -> Talk | None:  # noqa: ARG002
        """How it is told `prompt` where it takes messages while it works; None: it reads the prompt's file."""
        return None

    def check(self) -> None:
        """Raises AgentUnfit where the binary cannot be found or executed on this host."""
        check_binary(self.name, self.config.command[0], self._env()["PATH"])

    def launch(self, job: Job, folder: AttemptFolder, *, cwd: Path, extra_env: Mapping[str, str]) -> Launch:
        """As `ports.agent.Agent.launch`.  The prompt goes in by stdin: it may be long, and `ps` shows it not."""
        refuse_unpassable(job)
        # Outside of its working tree many a CLI reads nothing, unless it may do all.
        if given := input_text(job, folder, reads_all=self.mode == self.free_mode):
            said = "" if job.prompt == job.title else f"{job.prompt.rstrip()}\n\n"
            job = replace(job, prompt=f"{said}{given}".lstrip())
        env = self._env()
        resumes = bool(job.session_key) and self.knows(job.session_key or "", env)
        try:
            if resumes:
                answered = bool(self.booked(job.session_key or "", env) or job.session_usage)
                prompt, begins = resume_prompt(job, answered=answered), _resumed(job)
            else:
                prompt, begins = self._anew(job, folder)
            known = identity(env | job_env(job, folder) | dict(extra_env)) if self.config.mcp else b""
            server = mcp_server(folder)
            offering = self.offering(server, env) if known else None
            how = self._how_to_report(folder, tools=offering is not None, branch="MUSTER_BRANCH" in extra_env)
            prompt = f"{prompt.rstrip()}\n\n{how}\n"
            write_inputs(job, folder, prompt=prompt, home=self.home)
            if offering is not None:
                write_private(folder.identity, known)
            if self.defaults[0]:
                path = folder.path.absolute() / "defaults.json"
                started = {"command": server[0], "args": server[1:], **self.trusting}
                own = {} if offering is None else {"mcpServers": {SERVER: started}}
                write_private(path, msgspec.json.encode({**self.defaults[1], **own}))
                env.setdefault(self.defaults[0], str(path))
        except OSError as exc:
            raise Unavailable(f"cannot write the attempt's folder {folder.path}: {exc}") from exc
        session_key = job.session_key if resumes else self._new_session()
        asking = self.asking if job.may_ask else ()
        return Launch(
            argv=(
                *self.config.command,
                *self._for(job, offering or []).arguments(session_key, resumes=resumes),
                *asking,
            ),
            env=env | job_env(job, folder) | dict(extra_env),
            cwd=cwd,
            stdin=folder.prompt.absolute(),
            talk=self.talk(prompt),
            interrupts=self.interrupts,
            limits=self.config.limits,
            session_key=session_key,
            unlogged=self.unlogged,
            idle_bytes_per_s=IDLE_BYTES_PER_S,
            begins=begins,
        )

    def booked(self, session_key: str, env: Mapping[str, str]) -> Usage | None:  # noqa: ARG002
        """What the CLI itself has noted that this session has cost, in the home that `env` gives it."""
        return None

    def _anew(self, job: Job, folder: AttemptFolder) -> tuple[str, str]:
        """The prompt of a session that begins, and what is said of it; the hand-over is written on the way."""
        prompt = with_notes(placed_text(job), job)
        told = handed_over(job, folder, prompt, self.reader, reads_all=self.mode == self.free_mode)
        if not told:
            return prompt, ""
        return f"{prompt.rstrip()}\n\n{told}\n", begins_anew(folder)

    def _how_to_report(self, folder: AttemptFolder, *, tools: bool, branch: bool) -> str:
        takes_messages = (talk := self.talk("")) is not None and talk.message is not None
        notice = "" if takes_messages else str(folder.notice.absolute())
        commands = self.mode == self.free_mode
        return how_to_report(tools=tools, commands=commands, notice=notice, branch=branch)

    def _for(self, job: Job, offering: Sequence[str]) -> Self:
        """With what the task itself wants, and Muster's tools."""
        told = self.instructed(job.system_prompt) if job.system_prompt else []
        config = replace(
            self.config, model=job.model or self.config.model, args=(*told, *offering, *self.config.args)
        )
        return replace(self, config=config)

    def _new_session(self) -> str | None:
        return str(uuid.uuid4()) if self.names_session else None

    def mark(self, job: Job, launch: Launch) -> Usage | None:
        """The session's total before this launch; None for a session that begins.

        Its own note comes first: it may have gone on after it was heard last.
        """
        if launch.session_key is None or launch.session_key != job.session_key:
            return None
        return self.booked(launch.session_key, launch.env) or job.session_usage

    def for_a_person(self) -> dict[str, str]:
        """The environment in which a person finds its sessions and its login."""
        return {**handed_on(), **self._env()}

    def _env(self) -> dict[str, str]:
        shared = {} if self.home is None else {self.config_env: str(self.home.shared.absolute())}
        given = {**self.own_env, **shared, **self.config.env}
        env = base_env((*self.usual_env, *self.config.env_names), given, self.home)
        if "HOME" not in env:
            raise AgentUnfit(f"agent {self.name}: HOME is not set", "set HOME, or add it to the agent's set")
        return env


Booked = Callable[[str], Usage | None]
"""By the session's key, what its CLI has noted that it has cost."""


def never_booked(session_key: str) -> None:
    """Of a CLI that keeps no such note."""


def _resumed(job: Job) -> str:
    """What going on in its session saves: to do and to pay that again."""
    used = job.session_usage
    known = "" if used is None else f", which holds {used.input_tokens + used.output_tokens:,} tokens of work"
    if used is not None and used.cost_microusd:
        known += f" (${used.cost_microusd / 1e6:.2f})"
    return f"{BEGINS} in its session {job.session_key}{known}"


class EventStream:
    """Base of the parsers: JSON lines in, events out; no process, clock or file.

    `mark` is what the session had cost before this process resumed it, where its totals go on counting.
    """

    costs = True
    waiting: Retrying | None = None
    answered = False

    skip: ClassVar[bytes] = b"\n"
    """How lines begin that tell nothing but that it lives."""
    other_exits: ClassVar[frozenset[int]] = frozenset()
    """Its exit codes for what ends it before it looks at any session: a login, settings."""

    def __init__(self, mark: Usage | None, limits: Limits, booked: Booked = never_booked) -> None:
        self._limits = limits
        self._lines = JsonLines(self.skip)
        self._mark = mark
        self._booked = booked
        self._session = ""
        self._total: Usage | None = None
        self._unbooked: Usage | None = None
        """What a CLI told that was killed before it stood in its own book, which its next total counts from."""
        self._text = ""
        """What the agent has said last."""
        self._unheard = ""
        """The begin of a line that it has not said to its end."""
        self.ended = False

    @property
    def usage(self) -> Usage | None:
        total = self._unbooked or self._total
        return None if total is None else total.since(self._mark)

    @property
    def session_usage(self) -> Usage | None:
        return self._mark if self._total is None else self._total

    def feed(self, data: bytes) -> list[AgentEvent]:
        events = [event for line in self._lines.feed(data) for event in self._line(line)]
        if self.waiting is None and (self._text or any(isinstance(event, Step) for event in events)):
            self.answered = True
        # A report says better than its tool's name what the agent does.
        return [event for event in events if not (isinstance(event, Step) and is_report(event.text))]

    def close(self) -> None:
        total = self._booked(self._session) if self._session else None
        if total is not None and total != self._mark:
            if self._total is not None and not total.holds(self._total):
                self._unbooked = self._total
            self._total = total

    def outcome(self, exit: Exit, folder: AttemptFolder) -> Outcome:
        if exit.timed_out or exit.stopped_by_us:
            return exit_failure(exit, folder, self._limits)
        if exit.given_up and self.waiting is not None and not self.ended:
            return self.waiting.refusal
        return self._outcome(exit, folder)

    def _line(self, line: dict[str, Any]) -> list[AgentEvent]:
        raise NotImplementedError

    def _outcome(self, exit: Exit, folder: AttemptFolder) -> Outcome:
        """Of an end that was not ours."""
        raise NotImplementedError

    def _without_end(self, exit: Exit, folder: AttemptFolder, *, gone: re.Pattern[str] | bool) -> Failed:
        """Of a CLI whose final event is missing; `gone` tells, by what it says, that it lacks the session."""
        if exit.code == 0:
            return Failed(kind=ErrorKind.CRASH, message="exit code 0, but its final event is missing")
        failed = plain_failure(exit, folder, self._limits)
        lacks = gone if isinstance(gone, bool) else bool(gone.search(failed.message))
        return Failed(
            kind=failed.kind,
            message=failed.message,
            session_gone=lacks and not self._session,
            unopened=self._unopened(exit, failed),
        )

    def _unopened(self, exit: Exit, failed: Failed) -> bool:
        """As `Failed.unopened`: without a word of the session or the model, and for no reason that is known."""
        reasons = exit.code in self.other_exits or exit.code not in _BY_ITSELF or exit.given_up
        return failed.kind is ErrorKind.CRASH and not (reasons or self._session or self.answered)

    def _says(self, text: str, *, more: bool = False) -> list[AgentEvent]:
        """A message, or more of one that comes in parts; returns what it reports in it."""
        self._text = self._text + text if more else text
        if not more:
            return [*reports_in(text)]
        whole, _, self._unheard = (self._unheard + text).rpartition("\n")
        return [*reports_in(whole)]

    def _has_said(self) -> list[AgentEvent]:
        """What it reports in the last line of a message whose parts have all come."""
        rest, self._unheard = self._unheard, ""
        return [*reports_in(rest)]

    def _seen(self, session: str) -> list[AgentEvent]:
        if not session or self._session:
            return []
        self._session = session
        return [SessionSeen(session)]


def resume_prompt(job: Job, *, answered: bool) -> str:
    """For a session; one that has not `answered` may have been killed before it noted what its task is."""
    if job.refused:
        return with_notes("Go on.", job)
    if job.sent_back:
        return with_notes(
            f"Your result for this task ({job.title}) was not taken yet.  Go on until it can be.", job
        )
    text = (
        f"Your work on this task ({job.title}) was interrupted before it was done. "
        "Look at what is there already, then finish it."
    )
    return with_notes(text if answered else f"{placed_text(job)}\n\n{text}", job)


def plain_failure(exit: Exit, folder: AttemptFolder, limits: Limits) -> Failed:
    """Of a CLI that has ended without its final event: what it says in plain text may be its provider's word."""
    failed = exit_failure(exit, folder, limits)
    said = last_line(folder.stderr)
    if failed.kind is not ErrorKind.CRASH or exit.code < 0:
        return failed
    for line in (said, last_line(folder.stdout)):
        if line and not line.startswith("{") and (told := refusal(line, at_s=exit.at_s)).kind in CLOSING:
            return told
    return failed


def is_root() -> bool:
    return os.geteuid() == 0


def step_of(tool: str, given: dict[str, Any]) -> str:
    """`Bash: make test`."""
    telling = target_of(given)
    text = printable(f"{tool}: {telling}" if telling else tool)
    return text if len(text) <= STEP_CHARS_MAX else text[: STEP_CHARS_MAX - 1] + "…"


def target_of(given: dict[str, Any]) -> str:
    """What a tool is used on, by the one of its inputs that says most."""
    return next((text_of(given, name) for name in _TELLING if text_of(given, name)), "")


def not_done(what: str, fix: str) -> Failed:
    """Another run would end the same way."""
    return Failed(kind=ErrorKind.INVALID, message=f"{printable(what)[: MESSAGE_CHARS_MAX - len(fix)]}: {fix}")
