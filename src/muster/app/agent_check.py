"""Tries an agent once, outside of any plan: what `muster agent test` tells."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from muster.agents.inputs import base_env
from muster.config.settings import AgentConfig
from muster.hosts.local_host import LocalHost, become_subreaper
from muster.hosts.process import LocalLauncher
from muster.model.usage import Usage
from muster.ports.agent import Agent, AttemptFolder, Completed, Exit, Failed, Home, Job, Outcome

PROMPT = "This is a test of the connection. Answer with the one word: ready. Use no tools."
SCRIPT = "echo ready"
VERSION_S = 10.0
STOP_GRACE_S = 5.0


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
    try:
        process.hang_up()  # it has its prompt: nobody stops it before its time is over
        code = process.wait(timeout_s)
        timed_out = code is None
        if code is None:
            code = process.stop(grace_s=STOP_GRACE_S, on_step=lambda _: None)
    finally:
        process.kill()
    seconds = time.monotonic() - begun_s
    printed = folder.stdout.read_bytes()
    stream.feed(printed)
    outcome = stream.outcome(Exit(code=code, timed_out=timed_out), folder)
    said = ""
    if isinstance(outcome, Completed):
        said = (outcome.result or printed).decode(errors="replace").strip()
    return Tried(outcome, seconds, stream.usage, said)


def failure_hint(name: str, outcome: Failed) -> str:
    match outcome.kind.value:
        case "auth":
            return f"log its CLI in, or hand on the key: env of [agents.{name}] in muster.toml"
        case "billing" | "quota" | "rate_limit":
            return "see your account at its provider"
        case "timeout":
            return "see whether its provider can be reached, or give it longer: --timeout"
        case _:
            return f"see [agents.{name}] in muster.toml"
