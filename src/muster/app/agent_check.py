"""Tries an agent once, outside of any plan: what `muster agent test` tells."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from muster.agents.inputs import base_env
from muster.agents.provider import lacks_login
from muster.app.settings import KINDS
from muster.config.settings import COMMAND, AgentConfig
from muster.hosts.local_host import LocalHost, become_subreaper
from muster.hosts.process import LocalLauncher
from muster.model.pools import CLOSING
from muster.model.usage import Usage
from muster.ports.agent import Agent, AttemptFolder, Completed, Exit, Failed, Home, Job, Outcome

PROMPT = "This is a test of the connection. Answer with the one word: ready. Use no tools."
SCRIPT = "echo ready"
VERSION_S = 10.0
STOP_GRACE_S = 5.0
LOOK_S = 0.1
TRIES = 3
"""Refusals in a row that are no accident."""


class Tried(NamedTuple):
    outcome: Outcome
    seconds: float
    usage: Usage | None
    said: str
    """Of a success: the answer."""


def version_of(agent: AgentConfig, home: Home | None) -> str:
    """What `--version` of its program prints first; empty where that fails."""
    if not agent.command:
        return ""
    try:
        done = subprocess.run(
            [agent.command[0], "--version"],
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


def try_agent(agent: Agent, timeout_s: float, *, script: bool) -> Tried:
    """Runs a trivial prompt in a folder that is thrown away.  Raises MusterError where it cannot even start."""
    agent.check()
    become_subreaper()
    try:
        with tempfile.TemporaryDirectory(prefix="muster-agent-test-") as name:
            return _try(agent, SCRIPT if script else PROMPT, Path(name), timeout_s)
    finally:
        become_subreaper(wanted=False)  # nobody here would collect what others leave behind


def _try(agent: Agent, prompt: str, root: Path, timeout_s: float) -> Tried:
    folder, work = AttemptFolder(path=root / "attempt"), root / "work"
    folder.path.mkdir()
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
    launch = agent.launch(job, folder, cwd=work, extra_env={})
    stream = agent.stream(job, launch)
    begun_s = time.monotonic()
    process = LocalLauncher(LocalHost()).start(launch, folder, mark=f"MUSTER_AGENT_TEST={os.getpid()}")
    refused, heard = False, 0
    try:
        process.hang_up()  # it has its prompt: nobody stops it before its time is over
        while (code := process.wait(LOOK_S)) is None and time.monotonic() < begun_s + timeout_s:
            printed = folder.stdout.read_bytes()
            stream.feed(printed[heard:])
            heard, waiting = len(printed), stream.waiting
            # What it would try again for minutes is known by now.
            refused = waiting is not None and waiting.tries >= TRIES and waiting.refusal.kind in CLOSING
            if refused:
                break
        timed_out = code is None and not refused
        if code is None:
            code = process.stop(grace_s=STOP_GRACE_S, on_step=lambda _: None)
    finally:
        process.kill()
    seconds = time.monotonic() - begun_s
    printed = folder.stdout.read_bytes()
    if not refused:
        stream.feed(printed[heard:])
    stream.close()
    ended = Exit(code=code, timed_out=timed_out, given_up=refused, at_s=time.time())
    outcome = stream.outcome(ended, folder)
    said = ""
    if isinstance(outcome, Completed):
        said = (outcome.result or printed).decode(errors="replace").strip()
    return Tried(outcome, seconds, stream.usage, said)


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
