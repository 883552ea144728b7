"""The course of the demo: `muster run` works on a plan, two of its workers are hurt, and Muster recovers.

Whom to hurt is found out by looking at who holds what; everything that is told was read from the events, the
ledger or the process table.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from muster.app.interrupts import KILL, Interrupts
from muster.cli.demo.agent import ATTEMPT_OVER, NOTES_DIR
from muster.cli.demo.proof import Fault, LateWrite, Line, read_ledger
from muster.cli.feed import EventPrinter
from muster.client.api import Api
from muster.client.http import Connection
from muster.config.project import Project
from muster.model.errors import MusterError, StaleEpoch, Unavailable
from muster.ports.host import ProcessId

T = TypeVar("T")

MUSTER = (sys.executable, "-m", "muster.cli.main")
WORKERS = 3
LIMIT_S = 120.0
LOOK_S = 0.2
END_S = 20.0
REMARK_EVERY_S = 4.0
LONG_TASK = "fuzz"
"""It takes longer than a lease: the agent of a stopped worker is still at it when it is given up."""
PIECES_AT_LEAST = 2
"""Pieces that a killed attempt has done and still has to do, so that there is something to keep and to resume."""


class Story:
    """`play` it; when `close` returns no process is left."""

    def __init__(self, project: Project, plan: str, show: EventPrinter, interrupts: Interrupts) -> None:
        self.faults: list[Fault] = []
        self.late: list[LateWrite] = []
        self.events: list[dict[str, Any]] = []
        self._project = project
        self._show = show
        self._interrupts = interrupts
        self._until_s = time.monotonic() + LIMIT_S
        self._api = Api(Connection(project.socket))
        self._run = subprocess.Popen(
            [*MUSTER, "run", plan, "--json", "--workers", str(WORKERS)],
            cwd=project.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def play(self) -> None:
        """Raises MusterError where the plan does not get done."""
        for number in (signal.SIGKILL, signal.SIGSTOP):
            fault = self._hurt(number)
            self._recovered(fault)
            self._write_late(fault)
            if number == signal.SIGSTOP:
                self._wake(fault)
        self._until("the plan to be done", lambda: None if self._run.poll() is None else True)
        if self._run.returncode:
            raise MusterError("the plan did not get done", "muster demo --keep, then muster status there")

    def close(self) -> None:
        """Ends the run in the way of its third Ctrl-C."""
        deadline_s = time.monotonic() + END_S
        for _ in range(KILL):
            if self._run.poll() is None:
                self._run.terminate()
                time.sleep(LOOK_S)
        try:
            self._run.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._run.kill()
        if self._run.wait() < 0:  # it was killed, and has left its crew behind
            subprocess.run(
                [*MUSTER, "down", "--now"], cwd=self._project.root, capture_output=True, check=False
            )
        self._reader.join(END_S)
        self._api.close()

    def ledger(self) -> list[Line]:
        return read_ledger(self._project.root / NOTES_DIR / "ledger.jsonl")

    def _read(self) -> None:
        """What the run prints: events as JSON, and remarks."""
        assert self._run.stdout is not None
        for line in self._run.stdout:
            said = json.loads(line) if line.startswith("{") else {}
            if said.get("type") == "event":
                self.events.append(said)
                self._show.event(said)
            elif "error" in said:
                self._show.say(f"error: {said['error']['message']}")
            elif not said:
                self._show.say(line.rstrip())

    def _say(self, text: str, *more: str) -> None:
        self._show.say("\n".join([f"--- {text}", *(f"    {line}" for line in more)]))

    def _until(self, what: str, look: Callable[[], T | None]) -> T:
        while True:
            if self._interrupts.count:
                raise MusterError("interrupted")
            try:
                found = look()
            except Unavailable:
                found = None
            if found is not None:
                return found
            if time.monotonic() > self._until_s or self._run.poll() is not None:
                raise MusterError(
                    f"the demo waited for {what}, which did not happen",
                    "muster demo --keep, then read .muster/muster.log there",
                )
            time.sleep(LOOK_S)

    def _event(self, name: str, key: str, epoch: int) -> dict[str, Any] | None:
        for event in list(self.events):
            if (event["event"], event["key"], event["epoch"]) == (name, key, epoch):
                return event
        return None

    def _hurt(self, number: signal.Signals) -> Fault:
        """Sends the signal to a worker whose attempt has a checkpoint and fits."""

        def look() -> tuple[dict[str, Any], Line] | None:
            newest = {f"tally/{line.key}#{line.epoch}": line for line in self.ledger()}
            for worker in self._api.get("/api/v1/workers"):
                for ref in worker["holds"]:
                    line = newest.get(ref)
                    if line and _fits(line, number) and self._event("checkpoint", line.key, line.epoch):
                        return worker, line
            return None

        worker, line = self._until(f"a worker to send {number.name} to", look)
        at_ms = time.time_ns() // 1_000_000
        os.kill(worker["pid"], number)
        fault = Fault(number.name, worker["id"], worker["pid"], line.task_id, line.key, line.epoch, at_ms)
        self._say(
            f"{number.name} to {fault.worker} (pid {fault.pid})"
            + (": it lives, and is silent; its agent goes on" if number == signal.SIGSTOP else ""),
            f"it holds tally/{fault.ref}, {line.piece} of {line.of} pieces done",
        )
        self.faults.append(fault)
        return fault

    def _recovered(self, fault: Fault) -> None:
        """Waits for the next attempt, and says now and then what the silent one does."""
        told_s = time.monotonic()

        def look() -> dict[str, Any] | None:
            nonlocal told_s
            if time.monotonic() - told_s >= REMARK_EVERY_S:
                told_s = time.monotonic()
                last = self._last_line(fault)
                gone_s = time.time() - fault.at_ms / 1000
                self._say(f"{gone_s:.0f} s of silence; its agent has done piece {last.piece} of {last.of}")
            return self._event("started", fault.key, fault.epoch + 1)

        started = self._until(f"tally/{fault.key} to start elsewhere", look)
        lost = self._event("lost", fault.key, fault.epoch) or started
        last = self._last_line(fault)
        self._say(
            f"{fault.signal} noticed after {_since(fault, lost)}; tally/{fault.key}#{fault.epoch + 1} "
            f"started on {started['actor']} after {_since(fault, started)}",
            f"the lost attempt did {last.piece} of {last.of} pieces; "
            f"its agent {'is gone' if _identify(last.pid) is None else 'STILL RUNS'}",
        )

    def _last_line(self, fault: Fault) -> Line:
        return [line for line in self.ledger() if (line.key, line.epoch) == (fault.key, fault.epoch)][-1]

    def _write_late(self, fault: Fault) -> None:
        """Tries what a ghost would: a checkpoint with its own token, a completion in its worker's name."""
        writes = [self._late_checkpoint(fault), self._late_completion(fault)]
        told = [f"{w.what}: {'refused' if w.refused else 'ACCEPTED'}: {w.answer}" for w in writes]
        self._say(f"trying two late writes of tally/{fault.ref}", *told)
        self.late += writes

    def _late_checkpoint(self, fault: Fault) -> LateWrite:
        kept = self._project.root / NOTES_DIR / f"{fault.task_id}-{fault.epoch}.json"
        env = {**os.environ, **json.loads(kept.read_text("utf-8"))}
        argv = [*MUSTER, "report", "checkpoint", "--text", '{"done": 0}']
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=END_S)
        said = (done.stderr or done.stdout).strip().partition("\n")[0].removeprefix("error: ")
        answer = f"exit code {done.returncode}, {said}"
        return LateWrite(fault.ref, "muster report checkpoint", done.returncode == ATTEMPT_OVER, answer)

    def _late_completion(self, fault: Fault) -> LateWrite:
        what = "its worker's `complete`"
        body = {"taskId": fault.task_id, "epoch": fault.epoch, "exitCode": 0}
        try:
            answer = json.dumps(self._api.post("/worker/v1/complete", body))
        except MusterError as error:
            answer = error.message.partition(": ")[2] or error.message
            return LateWrite(fault.ref, what, isinstance(error, StaleEpoch), answer)
        return LateWrite(fault.ref, what, False, answer)

    def _wake(self, fault: Fault) -> None:
        """The stopped worker goes on where it stood, and learns that it was declared dead."""
        self._say(f"SIGCONT to {fault.worker} (pid {fault.pid})")
        os.kill(fault.pid, signal.SIGCONT)
        self._until(
            f"{fault.worker} to learn that it was declared dead",
            lambda: True if _identify(fault.pid) is None else None,
        )


def _fits(line: Line, number: signal.Signals) -> bool:
    if number == signal.SIGSTOP:
        return line.key == LONG_TASK
    return line.key != LONG_TASK and PIECES_AT_LEAST <= line.piece <= line.of - PIECES_AT_LEAST


def _since(fault: Fault, event: dict[str, Any]) -> str:
    return f"{(event['atMs'] - fault.at_ms) / 1000:.2f} s"


def _identify(pid: int) -> ProcessId | None:
    from muster.hosts.local_host import LocalHost

    return LocalHost().identify(pid)
