"""The course of the demo: lets a real crew work, hurts two of its workers, and watches what Muster does.

Whom to hurt is found out by looking at who holds what; everything that is told was read from the events, the
ledger, the process table or the log.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from muster.app.crew import TICK_S, SupervisedCrew
from muster.app.interrupts import Interrupts
from muster.cli.demo.evidence import Fault, LateWrite, Line, read_ledger
from muster.cli.demo.project import LEDGER_FILE, NOTES_DIR
from muster.cli.feed import Feed
from muster.cli.printer import EventPrinter
from muster.config.project import Project
from muster.model.errors import MusterError, StaleEpoch, Unavailable
from muster.model.states import FINAL
from muster.worker.supervisor import DECLARED_DEAD

T = TypeVar("T")

REMARK_EVERY_S = 4.0
LOOK_S = 0.3
STALE_EXIT_CODE = 6
REPORT_S = 20.0
PIECES_AT_LEAST = 2
"""Pieces that a victim has done and still has to do, so that there is something to keep and to resume."""
SPARE_S = 3.0
LOG_LINES = 3


_LOG_LINE = re.compile(r"\S+ \S+ (\S+\[\d+\]) \w+ [\w.]+: (.*)")


class Interrupted(Exception):
    """Ctrl-C, or the time is over."""


class Holder(NamedTuple):
    """A worker with the attempt that it holds and what the ledger tells about that."""

    worker: str
    pid: int
    task_id: int
    key: str
    epoch: int
    last: Line
    pace_s: float

    @property
    def left(self) -> int:
        return self.last.of - self.last.piece


class Stage:
    """A crew at work on a plan, and what has been seen of it."""

    def __init__(
        self,
        project: Project,
        crew: SupervisedCrew,
        plan: str,
        show: EventPrinter,
        interrupts: Interrupts,
        *,
        hide: Collection[str],
    ) -> None:
        self.project = project
        self.crew = crew
        self.show = show
        self.events: list[Mapping[str, Any]] = []
        self._plan = plan
        self._hide = hide
        self._interrupts = interrupts
        self.waits_for = ""
        self._feed = Feed(project, 0, self._seen)

    def close(self) -> None:
        self._feed.close()

    def _seen(self, event: Mapping[str, Any]) -> None:
        # From the feed's thread; appending and iterating over a copy is safe.
        self.events.append(event)
        if event["event"] not in self._hide:
            self.show.event(event)

    def say(self, text: str) -> None:
        self.show.say(f"--- {text}")

    def more(self, text: str) -> None:
        self.show.say(f"    {text}")

    def until(self, what: str, look: Callable[[], T | None]) -> T:
        """Keeps the crew alive until `look` returns something.

        Raises Interrupted, or MusterError where it can return nothing any more.
        """
        self.waits_for = what
        looked_s = -math.inf
        while True:
            if self._interrupts.count:
                raise Interrupted
            self.crew.tick()
            now_s = time.monotonic()
            if now_s - looked_s >= LOOK_S:
                looked_s = now_s
                found = look()
                if found is not None:
                    return found
                self._refuse_end(what)
            time.sleep(TICK_S)

    def _refuse_end(self, what: str) -> None:
        failed = [e for e in list(self.events) if e["newStatus"] in FINAL - {"COMPLETED"}]
        if failed:
            ref = f"{failed[0]['plan']}/{failed[0]['key']}"
            raise MusterError(
                f"{ref} ended as {failed[0]['newStatus']}: {failed[0]['message']}",
                f"muster demo --keep, then muster logs {ref} there",
            )
        if what != SETTLED and self.settled():
            raise MusterError(f"the plan was done before this could be seen: {what}", "muster demo")

    def settled(self) -> bool | None:
        try:
            return bool(self.crew.api.get(f"/api/v1/plans/{self._plan}")["settled"]) or None
        except Unavailable:
            return None

    def ledger(self) -> tuple[Line, ...]:
        return read_ledger(self.project.root / LEDGER_FILE)

    def event(self, name: str, key: str, epoch: int) -> Mapping[str, Any] | None:
        for event in list(self.events):
            if (event["event"], event["key"], event["epoch"]) == (name, key, epoch):
                return event
        return None

    def holders(self) -> list[Holder]:
        """Workers whose attempt has saved at least one checkpoint."""
        try:
            workers = self.crew.api.get("/api/v1/status")["status"]["workers"]
        except Unavailable:
            return []
        ledger, found = self.ledger(), []
        for worker in workers:
            for reference in worker["holds"]:
                key, _, epoch = reference.partition("/")[2].rpartition("#")
                started = self.event("started", key, int(epoch))
                own = [line for line in ledger if (line.key, line.epoch) == (key, int(epoch))]
                if started is None or not own or not self.event("checkpoint", key, int(epoch)):
                    continue
                pace_s = (own[-1].at_ms - started["atMs"]) / len(own) / 1000
                found.append(
                    Holder(worker["id"], worker["pid"], own[-1].task_id, key, int(epoch), own[-1], pace_s)
                )
        return found


SETTLED = "the plan to be done"


def play(stage: Stage, lease_s: float) -> tuple[list[Fault], list[LateWrite]]:
    late: list[LateWrite] = []
    killed = _kill_one(stage, lease_s)
    _restarted(stage, killed)
    late += _write_late(stage, killed)
    stopped = _stop_one(stage, lease_s)
    log_from = stage.project.log_file.stat().st_size
    process = next(
        (child.process for child in stage.crew.supervisor.workers if child.pid == stopped.worker_pid), None
    )
    _watch_silence(stage, stopped, lease_s)
    _restarted(stage, stopped)
    late += _write_late(stage, stopped)
    _wake(stage, stopped, process, log_from)
    stage.until(SETTLED, stage.settled)
    return [killed, stopped], late


def _kill_one(stage: Stage, lease_s: float) -> Fault:
    def look() -> Holder | None:
        holders = stage.holders()
        short = [
            holder
            for holder in holders
            if holder.last.piece >= PIECES_AT_LEAST <= holder.left and holder.left * holder.pace_s < lease_s
        ]
        # Not before there is a crew to take over.
        return max(short, key=lambda h: h.left) if short and len(holders) > 1 else None

    victim = stage.until("a worker to kill: one whose task has a checkpoint", look)
    stage.show.say("")
    stage.say(f"killing {victim.worker} (pid {victim.pid}) with SIGKILL")
    fault = _hurt(victim, signal.SIGKILL)
    stage.more(
        f"it holds tally/{victim.key}#{victim.epoch}, {victim.last.piece} of {victim.last.of} pieces done"
    )
    return fault


def _stop_one(stage: Stage, lease_s: float) -> Fault:
    def look() -> Holder | None:
        fit = [h for h in stage.holders() if h.left * h.pace_s > lease_s + SPARE_S]
        return max(fit, key=lambda h: h.left * h.pace_s, default=None)

    what = "a worker to stop: one whose task has a checkpoint and takes longer than a lease"
    victim = stage.until(what, look)
    stage.show.say("")
    stage.say(f"stopping {victim.worker} (pid {victim.pid}) with SIGSTOP: it lives, and is silent")
    fault = _hurt(victim, signal.SIGSTOP)
    stage.more(
        f"it holds tally/{victim.key}#{victim.epoch}, {victim.last.piece} of {victim.last.of} pieces done"
    )
    stage.more(f"the lease of its task is {lease_s:g} s; its agent (pid {victim.last.pid}) goes on meanwhile")
    return fault


def _hurt(victim: Holder, number: signal.Signals) -> Fault:
    at_ms = time.time_ns() // 1_000_000
    os.kill(victim.pid, number)
    return Fault(number.name, victim.worker, victim.pid, victim.task_id, victim.key, victim.epoch, at_ms)


def _watch_silence(stage: Stage, fault: Fault, lease_s: float) -> None:
    """Says now and then what goes on while nobody can know yet that this worker is not just slow."""
    told_s = time.monotonic()

    def look() -> Mapping[str, Any] | None:
        nonlocal told_s
        if time.monotonic() - told_s >= REMARK_EVERY_S:
            told_s = time.monotonic()
            own = [line for line in stage.ledger() if (line.key, line.epoch) == (fault.key, fault.epoch)]
            gone_s = time.time() - fault.at_ms / 1000
            if _alive(own[-1].pid):
                stage.more(
                    f"{gone_s:.0f} s of silence; its agent has done piece {own[-1].piece} of {own[-1].of}"
                )
        return stage.event("lost", fault.key, fault.epoch)

    stage.until(f"the silence of {fault.worker} to be noticed within {lease_s:g} s", look)


def _restarted(stage: Stage, fault: Fault) -> None:
    epoch = fault.epoch + 1
    lost = stage.until(
        f"the loss of {fault.worker} to be noticed", lambda: stage.event("lost", fault.key, fault.epoch)
    )
    started = stage.until(
        f"tally/{fault.key} to start elsewhere", lambda: stage.event("started", fault.key, epoch)
    )
    old = [line for line in stage.ledger() if (line.key, line.epoch) == (fault.key, fault.epoch)]
    time.sleep(TICK_S)  # for the event lines, which come through the feed
    stage.say(
        f"{fault.signal} noticed after {_since(fault, lost)}; tally/{fault.key}#{epoch} started on "
        f"{started['actor']} after {_since(fault, started)}"
    )
    pid = old[-1].pid
    after = sum(line.at_ms > fault.at_ms for line in old)
    stage.more(
        f"the lost attempt did {old[-1].piece} of {old[-1].of} pieces, {after} of them after the signal; "
        f"its agent {'STILL RUNS' if _alive(pid) else 'is gone'}"
    )


def _since(fault: Fault, event: Mapping[str, Any]) -> str:
    return f"{(event['atMs'] - fault.at_ms) / 1000:.2f} s"


def _alive(pid: int) -> bool:
    from muster.hosts.local_host import LocalHost

    return LocalHost().identify(pid) is not None


def _write_late(stage: Stage, fault: Fault) -> list[LateWrite]:
    """Tries what a ghost would: a checkpoint with its own token, a completion in its worker's name."""
    stage.say(f"trying two late writes of tally/{fault.ref}")
    writes = [_late_checkpoint(stage, fault), _late_completion(stage, fault)]
    for write in writes:
        verdict = "refused" if write.refused else "ACCEPTED"
        stage.more(f"{write.what}: {verdict}: {write.answer}")
    return writes


def _late_checkpoint(stage: Stage, fault: Fault) -> LateWrite:
    kept = stage.project.root / NOTES_DIR / f"{fault.task_id}-{fault.epoch}.json"
    env = {**os.environ, **json.loads(kept.read_text("utf-8"))}
    argv = [sys.executable, "-m", "muster.cli.main", "report", "checkpoint", "--text", '{"done": 0}']
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, timeout=REPORT_S)
    said = (done.stderr or done.stdout).strip().partition("\n")[0].removeprefix("error: ")
    answer = f"exit code {done.returncode}, {said}"
    return LateWrite(fault.ref, "muster report checkpoint", done.returncode == STALE_EXIT_CODE, answer)


def _late_completion(stage: Stage, fault: Fault) -> LateWrite:
    what = "its worker's `complete`"
    body = {"taskId": fault.task_id, "epoch": fault.epoch, "exitCode": 0}
    try:
        answer = stage.crew.api.post("/worker/v1/complete", body)
    except StaleEpoch as error:
        return LateWrite(fault.ref, what, True, error.message.partition(": ")[2] or error.message)
    except MusterError as error:
        return LateWrite(fault.ref, what, False, f"{error.code}: {error.message}")
    return LateWrite(fault.ref, what, False, json.dumps(answer))


def _wake(stage: Stage, fault: Fault, process: subprocess.Popen[bytes] | None, log_from: int) -> None:
    """The stopped worker goes on where it stood, and learns that it was declared dead."""
    pid = fault.worker_pid
    stage.show.say("")
    stage.say(f"waking {fault.worker} (pid {pid}) with SIGCONT")
    os.kill(pid, signal.SIGCONT)

    def look() -> int | None:
        if process is not None:
            return process.poll()
        return None if _alive(pid) else 0

    code = stage.until(f"{fault.worker} to learn that it was declared dead", look)
    meaning = " (declared dead)" if code == DECLARED_DEAD else ""
    stage.more(f"it ended by itself with exit code {code}{meaning}; .muster/muster.log about it:")
    for line in _words_about(stage.project.log_file, fault, log_from)[-LOG_LINES:]:
        stage.more(f"  {line}")


def _words_about(log_file: Path, fault: Fault, start: int) -> list[str]:
    """What was logged after `start` by this worker or with its name, without time and module."""
    with log_file.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    parts = [match for line in lines if (match := _LOG_LINE.match(line))]
    mine = f"worker[{fault.worker_pid}]"
    return [f"{m[1]}: {m[2]}" for m in parts if m[1] == mine or fault.worker in m[2]]
