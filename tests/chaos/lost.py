"""A worker whose answers get lost: every request is sent, not listened to, and sent again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import subprocess
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

from rig import Rig, spec
from wire import NoAnswer, NotSent, send

from muster.hosts.local_host import LocalHost
from patience import until

AGENT = "rig"
"""An agent that no worker of the crew offers: its tasks are ours."""
HANG_UP_S = 0.015


class LostWord(AssertionError):
    """A repeated request did more, or less, than one."""


def _expect(holds: bool, what: str, seen: object) -> None:
    if not holds:
        raise LostWord(f"{what}: {seen}")


class DeafWorker:
    """Speaks the worker protocol and hears each second answer only."""

    def __init__(self, rig: Rig, chance: random.Random) -> None:
        self._rig = rig
        self._chance = chance
        self.id = "worker-" + "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=8))

    def twice(self, target: str, content: Any) -> Any:
        """The second answer.  The first request may have been carried out or not."""
        with contextlib.suppress(NoAnswer, NotSent):
            send(self._place(), target, content, hang_up_s=self._chance.random() * HANG_UP_S)
        return self.once(target, content)

    def once(self, target: str, content: Any) -> Any:
        def attempt() -> tuple[int, Any] | None:
            try:
                status, answer = send(self._place(), target, content)
            except (NoAnswer, NotSent):
                return None
            return None if status == 503 else (status, answer)

        status, answer = until(attempt, "the owner answers")
        _expect(status < 300, f"{target} {content} was refused", answer)
        return answer

    def _place(self) -> Path:
        return self._rig.backend.place(self._chance)

    def tell(self, verb: str, content: dict[str, Any]) -> Any:
        return self.twice(f"/worker/v1/{verb}", content)

    def register(self, body: subprocess.Popen[bytes]) -> None:
        """As process `body`: what the rig's other clients ask must not be taken for a worker's word."""
        host = LocalHost()
        process = host.identify(body.pid)
        assert process is not None
        self.tell(
            "register",
            {
                "workerId": self.id,
                "hostname": host.hostname,
                "pid": process.pid,
                "pidStart": process.start,
                "bootId": host.boot_id,
                "agents": [AGENT],
            },
        )

    def heartbeat(self, task_id: int, epoch: int) -> None:
        content = {"workerId": self.id, "attempts": [[task_id, epoch]]}
        self.once("/worker/v1/heartbeat", content)

    def claim(self) -> dict[str, Any]:
        """The job, by a request that is repeated under its id."""
        content = {"workerId": self.id, "requestId": f"{self.id}-1"}
        first, second = (self.tell("claim", content)["jobs"] for _ in range(2))
        _expect(len(first) == 1, "one task is ready and is to be given once", first)
        _expect(first == second, "a repeated claim gives the same attempts", (first, second))
        job: dict[str, Any] = first[0]
        return job


def lose_answers(rig: Rig, chance: random.Random, pieces: int) -> None:
    """A task's whole life, every request of it repeated.  Raises LostWord."""
    worker = DeafWorker(rig, chance)
    plan = {"plan": worker.id, "source": None, "tasks": [spec("t") | {"agent": AGENT}], "actor": "rig"}
    answer = worker.twice("/api/v1/plans", plan)
    _expect(answer["added"] + answer["existing"] == 1, "one task is added", answer)
    again = worker.twice("/api/v1/plans", plan)
    _expect(again["added"] == 0, "a repeated plan adds nothing", again)
    with subprocess.Popen(["sleep", "infinity"]) as body:
        try:
            worker.register(body)
            job = worker.claim()
            _work(rig, worker, job, pieces)
        finally:
            worker.tell("deregister", {"workerId": worker.id})
            body.kill()
    _check(rig, worker, job)


def _work(rig: Rig, worker: DeafWorker, job: dict[str, Any], pieces: int) -> None:
    attempt = {"taskId": job["taskId"], "epoch": job["epoch"]}
    began_s = time.monotonic()
    worker.tell("start", attempt | {"tokenHash": hashlib.sha256(worker.id.encode()).hexdigest()})
    for piece in range(1, pieces + 1):
        if time.monotonic() - began_s > rig.backend.lease_s / 4:
            worker.heartbeat(job["taskId"], job["epoch"])
            began_s = time.monotonic()
        now = time.time()
        rig.note(task=job["taskId"], epoch=job["epoch"], piece=piece, pid=os.getpid(), at=now, began=now)
    worker.tell("progress", attempt | {"percent": 50, "step": "half"})
    worker.tell("log", attempt | {"stream": "stdout", "offset": 0, "data": b64encode(b"said once").decode()})
    worker.tell("checkpoint", attempt | {"data": b64encode(b'{"done": %d}' % pieces).decode()})
    worker.tell("complete", attempt | {"result": '"first"', "exitCode": 0})
    worker.tell("complete", attempt | {"result": '"second"', "exitCode": 0})


def _check(rig: Rig, worker: DeafWorker, job: dict[str, Any]) -> None:
    detail = rig.task(job["taskId"])
    names = [event["event"] for event in detail["events"]]
    for name in ("enqueued", "claimed", "started", "progress", "completed"):
        _expect(names.count(name) == 1, f"one {name} of {worker.id}", names)
    _expect(len(detail["attempts"]) == 1, "one attempt", detail["attempts"])
    _expect(detail["result"] == '"first"', "the first result stands", detail["result"])
    _expect(detail["logTail"] == "said once", "the log is kept once", detail["logTail"])
    there = [w["id"] for w in rig.status()["status"]["workers"] if w["status"] != "dead"]
    _expect(worker.id not in there, "nothing is stranded", there)
