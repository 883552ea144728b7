"""A real CLI on a bench: started as a worker starts it, against the stub."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from install import install
from model_stub import ModelStub

from muster.app.agents import agent_of
from muster.app.settings import KINDS
from muster.config.load import read_agents
from muster.config.project import Project
from muster.config.settings import Config
from muster.config.tables import Table
from muster.hosts.process import LocalLauncher
from muster.model.states import ErrorKind
from muster.ports.agent import (
    Agent,
    AgentEvent,
    AgentStream,
    AttemptFolder,
    Completed,
    Exit,
    Failed,
    Job,
    Outcome,
    RunningProcess,
    SessionSeen,
)

LIMIT_S = 60.0
MODES = {
    "claude-code": "bypassPermissions",
    "codex": "danger-full-access",
    "gemini": "yolo",
    "qwen-code": "yolo",
    "opencode": "allow",
    "letta": "unrestricted",
    "aider": "code",
    "acp:opencode": "all",
    "acp:gemini": "all",
}
"""The permission modes that allow everything."""


@dataclass
class Bench:
    """One project folder with one agent, and as many attempts as the test makes."""

    root: Path
    kind: str
    url: str
    permission_mode: str
    extra: dict[str, object] = field(default_factory=dict)
    epoch: int = 0
    own_retries: bool = False
    """As the CLI has them where nobody sets them; else few, for tests that end soon."""
    steps: list[str] = field(default_factory=list)
    """What was done to stop the last attempt, in that order."""

    @property
    def settings(self) -> dict[str, object]:
        """As they would stand in `muster.toml`."""
        (self.root / "home").mkdir(exist_ok=True)
        settings = _SETTINGS[self.kind](self) | {
            "kind": self.kind.partition(":")[0],
            "permission_mode": self.permission_mode,
        }
        if "command" not in settings:
            settings["command"] = [str(install(self.kind))]
        for name, value in self.extra.items():
            old = settings.get(name)
            settings[name] = [*old, *value] if isinstance(old, list) and isinstance(value, list) else value
        return settings

    def agent(self) -> Agent:
        [config] = read_agents(Table("agents", {"cli": self.settings}), KINDS)
        return agent_of(config, Config(), Project(self.root))

    def job(self, scenario: str, **changes: object) -> Job:
        fields: dict[str, object] = {
            "task_id": 1,
            "epoch": self.epoch,
            "ref": "plan/task",
            "title": "A task",
            "prompt": f"stub: {scenario}",
            "session_key": None,
            "checkpoint": None,
            "timeout_s": LIMIT_S,
        }
        return Job(**{**fields, **changes})  # type: ignore[arg-type]

    def run(
        self, scenario: str, *, meanwhile: Callable[[RunningProcess], object] | None = None, **changes: object
    ) -> Ran:
        """One attempt, to its end.  `meanwhile` may interfere; a process that is left then is waited for."""
        self.epoch += 1
        self.steps.clear()
        agent, job = self.agent(), self.job(scenario, **changes)
        folder = AttemptFolder(path=self.root / ".muster" / "attempts" / "1" / str(self.epoch))
        folder.path.mkdir(parents=True)
        launch = agent.launch(job, folder, cwd=self.root, extra_env={})
        stream = agent.stream(job, launch)
        begun_s = time.monotonic()
        process = LocalLauncher().start(launch, folder, mark=f"MUSTER_MARK={self.epoch}-{os.getpid()}")
        stopped, events, heard = False, [], 0
        given_up = False
        try:
            if meanwhile is not None:
                stopped = meanwhile(process) is not None
            while (code := process.wait(0.05)) is None and time.monotonic() < begun_s + LIMIT_S:
                with folder.stdout.open("rb") as file:
                    file.seek(heard)
                    said = file.read()
                events += stream.feed(said)
                heard += len(said)
                if stream.ended:
                    process.hang_up()
                if stream.waiting is not None and stream.waiting.delay_s == math.inf:
                    code, given_up = process.stop(grace_s=5.0, on_step=self.steps.append), True
                    break
        finally:
            left = process.sweep()
        ended = Exit(
            code=-9 if code is None else code,
            timed_out=code is None,
            stopped_by_us=stopped,
            given_up=given_up,
        )
        data = folder.stdout.read_bytes()
        events += stream.feed(data[heard:])
        stream.close()
        return Ran(
            outcome=stream.outcome(ended, folder),
            stream=stream,
            events=events,
            code=code,
            left=left,
            seconds=time.monotonic() - begun_s,
            session_key=launch.session_key,
            stdout=data,
            argv=launch.argv,
        )

    def stop_once_begun(self, process: RunningProcess) -> int:
        """For `meanwhile`: stops it as a worker does, as soon as its tool has begun."""
        self.until("begun")
        return process.stop(grace_s=5.0, on_step=self.steps.append)

    def stop_after(self, seconds: float) -> Callable[[RunningProcess], None]:
        """For `meanwhile`: a time limit, before which it must not end by itself."""

        def stop(process: RunningProcess) -> None:
            assert process.wait(seconds) is None
            process.stop(grace_s=5.0, on_step=self.steps.append)

        return stop

    def kill_and_resume(self, stub: ModelStub, number: int) -> tuple[Ran, Ran]:
        """Two attempts: one that a signal ends at its work, and one that goes on in the same session."""

        def kill(process: RunningProcess) -> None:
            self.until("begun")
            os.kill(process.pid, number)

        first = self.run("slow", meanwhile=kill)
        assert isinstance(first.outcome, Failed), first.outcome
        assert first.outcome.kind is ErrorKind.LOST, first.outcome
        (self.root / "go").touch()
        second = self.run("slow", session_key=first.session, note="Mind the gap.")
        assert isinstance(second.outcome, Completed), second.outcome
        assert second.session == first.session
        told = stub.model_requests("slow")[-1].text
        assert "stub: slow" in told, "it remembers the task"
        assert "was interrupted" in told
        assert "Mind the gap." in told
        assert (self.root / "steps.txt").read_text() == "one\n", "what was done is not done again"
        return first, second

    def until(self, name: str) -> None:
        """Until the agent's tool has made this file."""
        self.until_true((self.root / name).exists, name)

    def until_true(self, found: Callable[[], bool], what: str) -> None:
        deadline_s = time.monotonic() + LIMIT_S
        while not found():
            assert time.monotonic() < deadline_s, f"not in time: {what}"
            time.sleep(0.01)


@dataclass(frozen=True)
class Ran:
    outcome: Outcome
    stream: AgentStream
    events: list[AgentEvent]
    code: int | None
    left: int
    """Processes that outlived the CLI and had to be swept."""
    seconds: float
    session_key: str | None
    stdout: bytes
    argv: tuple[str, ...]

    @property
    def session(self) -> str:
        """As the CLI itself has named it, or as we did where it tells none."""
        keys = [event.key for event in self.events if isinstance(event, SessionSeen)]
        [key] = keys or [self.session_key]
        assert key is not None
        return key


def _claude(bench: Bench) -> dict[str, object]:
    return {
        "model": "claude-sonnet-4-5",
        "set": {
            "HOME": str(bench.root / "home"),
            "CLAUDE_CONFIG_DIR": str(bench.root / "home" / "claude"),
            "ANTHROPIC_BASE_URL": bench.url,
            "ANTHROPIC_API_KEY": "sk-ant-dummy",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
            **({} if bench.own_retries else {"CLAUDE_CODE_MAX_RETRIES": "2"}),
        },
        "args": [],
    }


def _codex(bench: Bench) -> dict[str, object]:
    home = bench.root / "home" / "codex"
    home.mkdir(parents=True, exist_ok=True)
    provider = {
        "model_provider": '"stub"',
        "model_providers.stub.name": '"stub"',
        "model_providers.stub.base_url": f'"{bench.url}/v1"',
        "model_providers.stub.env_key": '"STUB_KEY"',
        "model_providers.stub.wire_api": '"responses"',
    }
    if not bench.own_retries:
        provider |= {
            "model_providers.stub.request_max_retries": "0",
            "model_providers.stub.stream_max_retries": "0",
        }
    return {
        "model": "gpt-5",
        "set": {"HOME": str(bench.root / "home"), "CODEX_HOME": str(home), "STUB_KEY": "dummy"},
        "args": [part for name, value in provider.items() for part in ("-c", f"{name}={value}")],
    }


def _gemini(bench: Bench) -> dict[str, object]:
    home = bench.root / "home"
    (home / ".gemini").mkdir(parents=True, exist_ok=True)
    # With an address of another server it would not take the key otherwise.
    chosen = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "general": {"maxAttempts": 1}}
    (home / ".gemini" / "settings.json").write_text(json.dumps(chosen))
    return {
        "model": "gemini-2.5-pro",
        "set": {"HOME": str(home), "GOOGLE_GEMINI_BASE_URL": bench.url, "GEMINI_API_KEY": "dummy"},
        "args": [],
    }


def _qwen(bench: Bench) -> dict[str, object]:
    (bench.root / "home" / ".qwen").mkdir(exist_ok=True)
    # After its work it asks what is worth remembering, and counts that as well.
    chosen = {"memory": {"enableManagedAutoMemory": False}}
    (bench.root / "home" / ".qwen" / "settings.json").write_text(json.dumps(chosen))
    return {
        "model": "qwen3-coder-plus",
        "set": {
            "HOME": str(bench.root / "home"),
            "OPENAI_BASE_URL": f"{bench.url}/v1",
            "OPENAI_API_KEY": "dummy",
        },
        "args": ["--auth-type", "openai"],
    }


def _opencode(bench: Bench) -> dict[str, object]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{bench.url}/v1", "apiKey": "dummy"},
        "models": {"m": {"cost": {"input": 3.0, "output": 15.0}}},
    }
    return {
        "model": "stub/m",
        "set": {
            "HOME": str(bench.root / "home"),
            "OPENCODE_CONFIG_CONTENT": json.dumps({"provider": {"stub": provider}}),
        },
        "args": [],
    }


def _letta(bench: Bench) -> dict[str, object]:
    home, local = bench.root / "home", ["--backend", "local"]
    if not (home / ".letta").exists():
        connect = [*local, "connect", "lmstudio", "--base-url", f"{bench.url}/v1"]
        subprocess.run(
            [str(install("letta")), *connect],
            cwd=bench.root,  # it leaves a folder where it is called
            env={**os.environ, "HOME": str(home)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
        )
    return {"model": "lmstudio/stub", "set": {"HOME": str(home)}, "args": [*local, "--no-memfs"]}


def _aider(bench: Bench) -> dict[str, object]:
    return {
        "model": "openai/aider",
        "set": {
            "HOME": str(bench.root / "home"),
            "OPENAI_API_BASE": f"{bench.url}/v1",
            "OPENAI_API_KEY": "dummy",
        },
        "args": [],
    }


def _acp_gemini(bench: Bench) -> dict[str, object]:
    settings = _gemini(bench)
    given = settings["set"]
    assert isinstance(given, dict)
    given["GEMINI_CLI_TRUST_WORKSPACE"] = "true"
    return settings | {"command": [str(install("gemini")), "--acp"]}


def _acp_opencode(bench: Bench) -> dict[str, object]:
    settings = _opencode(bench)
    model = {"model": settings.pop("model")}
    given = settings["set"]
    assert isinstance(given, dict)
    given["OPENCODE_CONFIG_CONTENT"] = json.dumps(json.loads(given["OPENCODE_CONFIG_CONTENT"]) | model)
    return settings | {"command": [str(install("opencode")), "acp"]}


_SETTINGS: dict[str, Callable[[Bench], dict[str, object]]] = {
    "claude-code": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "qwen-code": _qwen,
    "opencode": _opencode,
    "letta": _letta,
    "aider": _aider,
    "acp:opencode": _acp_opencode,
    "acp:gemini": _acp_gemini,
}
