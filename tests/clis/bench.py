"""A real CLI on a bench: started as a worker starts it, against the stub."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from install import install

from muster.agents.process import LocalLauncher
from muster.app.agents import agent_of
from muster.config.agents import read_agents
from muster.config.project import Project
from muster.config.settings import Config
from muster.config.tables import Table
from muster.ports.agent import (
    Agent,
    AgentEvent,
    AgentStream,
    AttemptFolder,
    Exit,
    Job,
    Outcome,
    RunningProcess,
)

LIMIT_S = 60.0


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
    """Of Codex: as it has them where nobody sets them."""

    @property
    def settings(self) -> dict[str, object]:
        """As they would stand in `muster.toml`."""
        own = _claude if self.kind == "claude-code" else _codex
        settings = own(self) | {"kind": self.kind, "permission_mode": self.permission_mode}
        settings["command"] = [str(install(self.kind))]
        for name, value in self.extra.items():
            old = settings.get(name)
            settings[name] = [*old, *value] if isinstance(old, list) and isinstance(value, list) else value
        return settings

    def agent(self) -> Agent:
        [config] = read_agents(Table("agents", {"cli": self.settings}))
        return agent_of(config, Config(), Project(install(self.kind).parent))

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
        agent, job = self.agent(), self.job(scenario, **changes)
        folder = AttemptFolder(path=self.root / ".muster" / "attempts" / "1" / str(self.epoch))
        folder.path.mkdir(parents=True)
        launch = agent.launch(job, folder, cwd=self.root, extra_env={})
        stream = agent.stream(job, launch)
        begun_s = time.monotonic()
        process = LocalLauncher().start(launch, folder, mark=f"MUSTER_MARK={self.epoch}-{os.getpid()}")
        stopped, events, heard = False, [], 0
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
        finally:
            left = process.sweep()
        ended = Exit(code=-9 if code is None else code, timed_out=code is None, stopped_by_us=stopped)
        data = folder.stdout.read_bytes()
        events += stream.feed(data[heard:])
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

    def until(self, name: str) -> None:
        """Until the agent's tool has made this file."""
        deadline_s = time.monotonic() + LIMIT_S
        while not (self.root / name).exists():
            assert time.monotonic() < deadline_s, f"{name} was not made"
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
