"""Asks an agent something outside of any plan: what `muster agent test` tells, and `plan from` is told."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from muster.agents.inputs import base_env
from muster.agents.provider import lacks_login
from muster.app.interrupts import Interrupts
from muster.app.settings import KINDS
from muster.config.settings import COMMAND, AgentConfig
from muster.hosts import guard
from muster.hosts.local_host import LocalHost, become_subreaper
from muster.hosts.plain_files import read_part
from muster.hosts.process import LocalLauncher
from muster.model.pools import CLOSING
from muster.model.states import ErrorKind
from muster.model.usage import Usage
from muster.ports.agent import (
    Agent,
    AgentStream,
    AttemptFolder,
    Completed,
    Exit,
    Failed,
    Home,
    Job,
    Outcome,
    SessionSeen,
    Step,
)

PROMPT = "This is a test of the connection. Answer with the one word: ready. Use no tools."
SCRIPT = "echo ready"
VERSION_S = 10.0
STOP_GRACE_S = 5.0
LOOK_S = 0.1
TRIES = 3
"""Refusals in a row that are no accident."""
PRINTED_MAX = 64 << 20
_PART = 1 << 20


Watch = Callable[[str], None]


def _unseen(step: str) -> None:
    """Where nobody looks."""


class _Text(Struct):
    text: str


class Tried(NamedTuple):
    outcome: Outcome
    seconds: float
    usage: Usage | None
    said: str
    """Of a success: the answer."""
    session_key: str | None
    """The session that goes on from here, where the agent has one ..."""
    session_usage: Usage | None
    """... and what that has cost in all."""


def version_of(agent: AgentConfig, home: Home | None) -> str:
    """What `--version` of its program prints first; empty where that fails."""
    if not agent.command:
        return ""
    try:
        # Letta Code leaves a folder wherever it is called.
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as elsewhere:
            done = subprocess.run(
                [agent.command[0], "--version"],
                cwd=elsewhere,
                env=base_env(agent.env_names, agent.env, home),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=VERSION_S,
                check=False,
            )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next(iter(done.stdout.splitlines()), "") if done.returncode == 0 else ""


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """A folder that is thrown away; where this process is killed, with the agents that it has asked."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        # In a group of its own, which no Ctrl-C reaches, but not in another session, as only agents are.
        argv = [sys.executable, "-I", "-m", guard.__name__, _mark(), name]
        beside = subprocess.Popen(argv, stdin=subprocess.PIPE, process_group=0)
        try:
            yield Path(name)
        finally:
            beside.communicate(b"nothing is left")


def _mark() -> str:
    """Of the agents that this process asks."""
    return f"MUSTER_AGENT_TEST={os.getpid()}"


def try_agent(agent: Agent, timeout_s: float, *, script: bool) -> Tried:
    """Runs a trivial prompt in a folder that is thrown away.  Raises MusterError where it cannot even start."""
    agent.check()
    prompt = SCRIPT if script else PROMPT
    with scratch("muster-agent-test-") as folder:
        work = folder / "work"
        work.mkdir()
        job = Job(
            task_id=0,
            epoch=1,
            ref="muster/agent-test",
            title=prompt,
            prompt=prompt,
            session_key=None,
            checkpoint=None,
            timeout_s=timeout_s,
        )
        return ask_agent(agent, job, AttemptFolder(path=folder / "attempt"), work)


def ask_agent(agent: Agent, job: Job, folder: AttemptFolder, cwd: Path, watch: Watch = _unseen) -> Tried:
    """Runs it outside of any crew; `watch` is told what it does.

    However this ends, by Ctrl-C or a signal too, none of its processes is left.

    Raises MusterError where it cannot even start.
    """
    become_subreaper()
    try:
        # Counted, for an exception in the midst of a start or of an end would leave processes.
        with Interrupts().counting() as interrupts:
            tried = _ask(agent, job, folder, cwd, watch=watch, interrupts=interrupts)
    finally:
        become_subreaper(wanted=False)  # nobody here would collect what others leave behind
    if interrupts.count:
        raise KeyboardInterrupt("counted")  # which signal it was is known to who has counted
    return tried


class _Printed:
    """What an agent has printed, as far as it was read."""

    def __init__(self, folder: AttemptFolder, stream: AgentStream, watch: Watch) -> None:
        self._path = folder.stdout
        self._stream = stream
        self._watch = watch
        self.data = bytearray()
        self.session_key: str | None = None

    @property
    def too_much(self) -> bool:
        return len(self.data) >= PRINTED_MAX

    def read(self) -> None:
        while not self.too_much and (part := read_part(self._path, _PART, len(self.data))):
            self.data += part
            for event in self._stream.feed(part):
                if isinstance(event, SessionSeen):
                    self.session_key = event.key
                elif isinstance(event, Step):
                    self._watch(event.text)


def _ask(
    agent: Agent, job: Job, folder: AttemptFolder, cwd: Path, *, watch: Watch, interrupts: Interrupts
) -> Tried:
    folder.path.mkdir()
    launch = agent.launch(job, folder, cwd=cwd, extra_env={})
    stream = agent.stream(job, launch)
    printed = _Printed(folder, stream, watch)
    begun_s = time.monotonic()
    process = LocalLauncher(LocalHost()).start(launch, folder, mark=_mark())
    refused = False
    try:
        process.hang_up()  # it has its prompt: nobody stops it before its time is over
        while (code := process.wait(LOOK_S)) is None and time.monotonic() < begun_s + job.timeout_s:
            printed.read()
            waiting = stream.waiting
            # What it would try again for minutes is known by now.
            refused = waiting is not None and waiting.tries >= TRIES and waiting.refusal.kind in CLOSING
            if refused or printed.too_much or interrupts.count:
                break
        timed_out = code is None and not refused
        if interrupts.count:
            code = process.kill()
        elif code is None:
            code = process.stop(grace_s=STOP_GRACE_S, on_step=lambda _: None)
    finally:
        process.kill()
    seconds = time.monotonic() - begun_s
    if not refused:
        printed.read()
    stream.close()
    ended = Exit(code=code, timed_out=timed_out, given_up=refused, at_s=time.time())
    outcome = stream.outcome(ended, folder)
    if printed.too_much:
        outcome = Failed(kind=ErrorKind.INVALID, message=f"it printed more than {PRINTED_MAX >> 20} MiB")
    said = _said(outcome.result or bytes(printed.data)) if isinstance(outcome, Completed) else ""
    session_key = printed.session_key or launch.session_key
    return Tried(outcome, seconds, stream.usage, said, session_key, stream.session_usage)


def _said(result: bytes) -> str:
    """The text of a result that holds one, else all of it."""
    try:
        return msgspec.json.decode(result, type=_Text).text.strip()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return result.decode(errors="replace").strip()


def failure_hint(agent: AgentConfig, outcome: Failed) -> str:
    name = agent.name
    match outcome.kind.value:
        case "auth":
            login = KINDS[agent.kind].login if agent.kind != COMMAND else ""
            login = login or f"log its CLI in, or hand on the key: env of [agents.{name}] in muster.toml"
            return f"it has no login: {login}" if lacks_login(outcome.message) else f"it was refused: {login}"
        case "billing" | "quota":
            return "see your account at its provider"
        case "rate_limit":
            return "its provider is busy or cannot be reached: try again later"
        case "timeout":
            return "see whether its provider can be reached, or give it longer: --timeout"
        case _:
            return f"see [agents.{name}] in muster.toml"
