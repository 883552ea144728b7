"""A crew of real CLIs at work in a git repository, and a ledger that tells what has become of their work."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from model_stub import ModelStub, Say, Shell
from real_run import MUSTER, table_of
from wires import CACHED_TOKENS, INPUT_TOKENS, OUTPUT_TOKENS, Scenario, Step, Wire

from bench import MODES, Bench
from left_behind import processes_left
from muster.agents.inputs import base_env
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.hosts.process_table import environment, scan
from muster.model.errors import MusterError
from muster.model.marks import ATTEMPT
from patience import through_restarts, until

T = TypeVar("T")

PLAN = "rounds"
FINAL = ("COMPLETED", "CANCELLED", "FAILED")
CONFIG = """\
agent = "{first}"
[workers]
slots = {slots}
[health]
heartbeat = "1s"
lease = "5s"
[task]
retries = 100
losses = 1000
backoff = {{ first = "50ms", max = "500ms" }}
"""
PIECE = """\
set -eu
ledger={ledger}/$1
echo "$MUSTER_EPOCH begin $2" >> $ledger
(setsid sleep 300 >/dev/null 2>&1 < /dev/null &)
mkdir -p work/$1
echo "piece $2 of $1" > work/$1/$2.txt
grep -qsx "line $2" work/$1.txt || echo "line $2" >> work/$1.txt
case $2 in 0|2) git add -A && git commit -qm "piece $2" || true ;; esac
sleep 0.2
echo "$MUSTER_EPOCH end $2" >> $ledger
echo "$1.$2 is written"
"""
"""What an agent does: it may be killed at any point, and is told to do again what it has not seen done."""
LONG_S = 600.0
"""For what has to come in the end, on a machine where a CLI needs a minute to start."""
GONE_S = 10.0
"""Processes of an attempt that has ended are gone by then, however busy the machine is."""


def wait(condition: Callable[[], T | None], what: str) -> T:
    return until(condition, what, LONG_S)


@dataclass(frozen=True)
class Work:
    """The model's side of a task: piece after piece, until the conversation says that all are written."""

    key: str
    pieces: int
    tools: bool

    def __call__(self, wire: Wire) -> Step:
        if not self.tools:  # a CLI whose model only edits is told all files at once
            files = {f"work/{self.key}.txt": self.lines}
            files |= {f"work/{self.key}/{n}.txt": self.piece(n) for n in range(self.pieces)}
            return Say("\n".join(f"{name}\n```\n{text}```\n" for name, text in files.items()))
        known = wire.text()
        for n in range(self.pieces):
            if f"{self.key}.{n} is written" not in known:
                return Shell(f'sh "$PIECE" {self.key} {n}')
        return Say(f"All of {self.key} is done.")

    @property
    def lines(self) -> str:
        return "".join(f"line {n}\n" for n in range(self.pieces))

    def piece(self, n: int) -> str:
        return f"piece {n} of {self.key}\n"


@dataclass
class Findings:
    """What is left of a crew's work."""

    tasks: Counter[str] = field(default_factory=Counter)
    """By status."""
    attempts: int = 0
    files: int = 0
    again: int = 0
    """Pieces that were written more than once: their writer was killed before its model heard of it."""
    costs: Counter[str] = field(default_factory=Counter)
    """Tasks whose cost is exact, or marked as inexact."""
    violations: list[str] = field(default_factory=list)


class RepoCrew:
    """`agents` are kinds by name."""

    def __init__(
        self,
        root: Path,
        stub: ModelStub,
        agents: Mapping[str, str],
        *,
        workers: int,
        slots: int = 1,
        mode: str | None = None,
    ) -> None:
        self.root, self.stub, self.agents, self.workers = root, stub, agents, workers
        self.folder = root / "repository"
        self.ledger = root / "ledger"
        for folder in (self.folder, self.ledger, root / "tmp"):
            folder.mkdir()
        piece = root / "piece.sh"
        piece.write_text(PIECE.format(ledger=self.ledger))
        tables = []
        for name, kind in agents.items():
            settings = Bench(root, kind, stub.url, mode or MODES[kind]).settings
            given = settings["set"]
            assert isinstance(given, dict)
            tables.append(table_of(name, settings | {"set": given | {"PIECE": str(piece)}}))
        first = next(iter(agents))
        (self.folder / "muster.toml").write_text("".join([CONFIG.format(first=first, slots=slots), *tables]))
        (self.folder / "shared.txt").write_text("")
        (self.folder / ".gitignore").write_text(".muster\n")
        self.git("init", "-q")
        for name, value in (("user.name", "Rounds"), ("user.email", "rounds@example.org"), ("gc.auto", "0")):
            self.git("config", name, value)
        self.git("add", "-A")
        self.git("commit", "-qm", "Begin")
        self.works: dict[str, Work] = {}
        self.kinds: dict[str, str] = {}
        """Of each task."""
        self.stray: list[str] = []
        self._up: subprocess.Popen[bytes] | None = None
        self.api = Api(Connection(Project(self.folder).socket))

    def git(self, *argv: str, check: bool = True) -> str:
        done = subprocess.run(
            ["git", *argv], cwd=self.folder, capture_output=True, text=True, check=check, env=self.env
        )
        return done.stdout

    @property
    def env(self) -> dict[str, str]:
        given = {"TMPDIR": str(self.root / "tmp"), "XDG_CONFIG_HOME": str(self.root / "no-settings")}
        return base_env((), given)

    def muster(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*MUSTER, *argv], cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )

    # -- its life

    def up(self) -> None:
        self._start()
        wait(self._is_up, "the crew is up")

    def _is_up(self) -> bool:
        assert self._up is not None
        if self._up.poll() is not None:  # it has given its owner up, which a busy machine starts late
            self._start()
        try:
            workers = self.api.get("/api/v1/status")["status"]["workers"]
        except MusterError:
            return False
        return sum(worker["status"] != "dead" for worker in workers) >= self.workers

    def _start(self) -> None:
        with (self.root / "up.log").open("ab") as log:
            self._up = subprocess.Popen(
                [*MUSTER, "up", "--workers", str(self.workers)],
                cwd=self.folder,
                env=self.env,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def supervisor_pid(self) -> int:
        assert self._up is not None
        return self._up.pid

    def down(self, *how: str) -> None:
        self.muster("down", *how)
        assert self._up is not None
        self._up.wait(LONG_S)

    def kill_supervisor(self) -> None:
        assert self._up is not None
        self._up.kill()
        self._up.wait()

    def __enter__(self) -> Self:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._up is not None
        if self._up.poll() is None:
            self.muster("down", "--now")
            try:
                self._up.wait(30)
            except subprocess.TimeoutExpired:
                self.kill_supervisor()
        self.stray += [f"after the end: {left}" for left in processes_left(self.root)]
        self.api.close()

    # -- what it has to do

    def add(self, key: str, agent: str, pieces: int) -> int:
        """A task that writes so many files."""
        kind = self.agents[agent]
        self.works[key] = work = Work(key, pieces, tools=kind != "aider")
        self.kinds[key] = kind
        return self.enqueue(key, agent, work)

    def enqueue(self, key: str, agent: str, scenario: Scenario) -> int:
        self.stub.scenarios[key] = scenario
        body = {"plan": PLAN, "key": key, "title": f"Write {key}", "description": f"stub: {key}"}
        added = through_restarts(
            lambda: self.api.post("/api/v1/agent-tasks", body | {"agent": agent, "actor": "rounds"})
        )
        return int(added["taskIds"][0])

    def act(self, task_id: int, action: str, **more: object) -> bool:
        """Whether it was possible."""
        path = f"/api/v1/agent-tasks/{task_id}/{action}"
        try:
            through_restarts(lambda: self.api.post(path, {"actor": "rounds", **more}))
        except MusterError:
            return False
        return True

    def tasks(self, *statuses: str) -> list[dict[str, Any]]:
        query = {"limit": 10_000, "status": list(statuses)}
        return through_restarts(lambda: self.api.get("/api/v1/agent-tasks", query))

    def detail(self, task_id: int) -> dict[str, Any]:
        return through_restarts(lambda: self.api.get(f"/api/v1/agent-tasks/{task_id}"))

    def task(self, task_id: int) -> dict[str, Any]:
        found: dict[str, Any] = self.detail(task_id)["task"]
        return found

    def status(self) -> dict[str, Any]:
        return through_restarts(lambda: self.api.get("/api/v1/status"))

    def crew(self) -> list[dict[str, Any]]:
        return [worker for worker in self.status()["status"]["workers"] if worker["status"] != "dead"]

    # -- its processes

    def marked(self) -> dict[tuple[int, int], list[int]]:
        """Processes by the attempt that they carry the mark of, oldest first."""
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        ours = f"MUSTER_ROOT={self.folder}".encode()
        for proc in sorted(scan(), key=lambda proc: proc.start):
            if not proc.gone and ours in (env := environment(proc.pid)):
                for entry in env:
                    if entry.startswith(f"{ATTEMPT}=".encode()):
                        _, task, epoch = entry.decode().rsplit(":", 2)
                        found[int(task), int(epoch)].append(proc.pid)
        return found

    def look_for_strays(self) -> None:
        """What lives on though its attempt has ended."""

        def strays() -> dict[tuple[int, int], list[int]]:
            marked = self.marked()
            open_ones = {(task["id"], task["epoch"]) for task in self.tasks("ASSIGNED", "RUNNING")}
            return {attempt: pids for attempt, pids in marked.items() if attempt not in open_ones}

        deadline_s = time.monotonic() + GONE_S
        while left := strays():
            if time.monotonic() > deadline_s:
                self.stray += [f"of attempt {attempt}: processes {pids}" for attempt, pids in left.items()]
                return
            time.sleep(0.1)

    # -- what has become of it

    def findings(self) -> Findings:
        found = Findings(violations=[*self.stray])
        for task in self.tasks():
            if task["key"] not in self.works:
                continue
            detail = self.detail(task["id"])
            found.tasks[task["status"]] += 1
            found.attempts += len(detail["attempts"])
            found.violations += [f"{task['key']}: {what}" for what in self._wrong(task, found)]
            self._judge_cost(task["key"], detail["attempts"], found)
        missing = self.works.keys() - {task["key"] for task in self.tasks()}
        found.violations += [f"{key}: the task is lost" for key in missing]
        if dirty := self.git("status", "--porcelain"):
            found.violations.append(f"the user's own folder was changed: {dirty}")
        return found

    def _wrong(self, task: dict[str, Any], found: Findings) -> list[str]:
        work = self.works[task["key"]]
        entries = self._ledger(work.key)
        wrong, newest = [], 0
        for epoch, _, _ in entries:
            if epoch < newest:
                wrong.append(f"attempt {epoch} worked while attempt {newest} did")
            newest = max(newest, epoch)
        ended = [piece for _, what, piece in entries if what == "end"]
        found.again += len(ended) - len({*ended})
        match task["status"]:
            case "COMPLETED":
                found.files += work.pieces + 1
                wrong += self._published(work)
            case "CANCELLED":
                found.files += len({*ended})
                wrong += self._kept(work, task["id"], {*ended})
            case status:
                wrong.append(f"has ended as {status}: {task['why']}")
        return wrong

    def _ledger(self, key: str) -> list[tuple[int, str, int]]:
        path = self.ledger / key
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(epoch), what, int(n)) for epoch, what, n in map(str.split, lines)]

    def _published(self, work: Work) -> list[str]:
        branch = f"muster/plan/{PLAN}"
        there = {f"work/{work.key}.txt": work.lines}
        there |= {f"work/{work.key}/{n}.txt": work.piece(n) for n in range(work.pieces)}
        return [
            f"lost: {path} is not whole on {branch}"
            for path, text in there.items()
            if self.git("show", f"{branch}:{path}", check=False) != text
        ]

    def _kept(self, work: Work, task_id: int, pieces: set[int]) -> list[str]:
        """Of a cancelled task: in its tree or behind a ref."""
        tree = self.folder / ".muster" / "worktrees" / str(task_id)
        refs = self.git("for-each-ref", "--format=%(refname)", f"refs/muster/{PLAN}/{work.key}/").split()
        wrong = []
        for n in sorted(pieces):
            path = tree / "work" / work.key / f"{n}.txt"
            found = [self.git("show", f"{ref}:{path.relative_to(tree)}", check=False) for ref in refs]
            if path.exists():
                found.append(path.read_text())
            if work.piece(n) not in found:
                wrong.append(f"lost: piece {n} of a cancelled task is neither in its tree nor behind a ref")
        return wrong

    def _judge_cost(self, key: str, attempts: list[dict[str, Any]], found: Findings) -> None:
        served, kind = self.stub.served[key], self.kinds[key]
        cached_apart = CACHED_TOKENS if kind == "claude-code" else 0
        each = (INPUT_TOKENS + cached_apart, CACHED_TOKENS, OUTPUT_TOKENS)
        usages = [attempt["usage"] for attempt in attempts if attempt["usage"]]
        names = ("inputTokens", "cachedTokens", "outputTokens")
        counted = tuple(sum(usage[name] for usage in usages) for name in names)
        if any(usage["estimated"] for usage in usages):
            found.costs["marked"] += 1
        elif counted == tuple(served * tokens for tokens in each):
            found.costs["exact"] += 1
        else:
            found.costs["wrong"] += 1
            told = json.dumps([attempt["usage"] for attempt in attempts])
            found.violations.append(f"{key}: {served} answers were served, and it has cost {told}")
