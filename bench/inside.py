"""Muster in this process: an engine on a store, without server and loops."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from msgspec.structs import replace

from muster.engine.batch import drive
from muster.engine.commands import Engine
from muster.engine.policy import Policy
from muster.hosts.local_host import LocalHost
from muster.model import commands as c
from muster.model.errors import MusterError
from muster.model.rows import DEFAULT_WORKSPACE
from muster.ports.engine import Asked
from muster.runtimes.chance import SystemChance
from muster.runtimes.local import SystemClock
from muster.stores.sqlite.store import SqliteStore
from muster.stores.sqlite.witness import witness_of

AGENT = "bench"
WORKER = "worker-benchmrk"
TOKEN_HASH = "0" * 64
PLAN = "bench"


class Inside:
    """Use as a context manager: the store is closed at the end."""

    def __init__(
        self, path: Path, kind: type[SqliteStore] = SqliteStore, *, policy: Policy | None = None
    ) -> None:
        self.store: Any = kind.open(path)
        self.clock = SystemClock("bench")
        self.chance = SystemChance()
        self.engine = Engine(self.store, self.chance, policy or Policy())
        self.apply([registration(WORKER)])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    def apply(self, commands: Sequence[c.Command]) -> list[Any]:
        """One transaction.  Raises the first refusal."""
        outcomes = drive(
            self.engine.apply([Asked(command, DEFAULT_WORKSPACE) for command in commands], self.clock.now())
        ).outcomes
        for outcome in outcomes:
            if isinstance(outcome, MusterError):
                raise outcome
        return outcomes

    def drain(self, batch: int, *, as_agents: bool = False) -> int:
        """All that is ready, `batch` tasks in a transaction: what ends claims and starts what is next.

        `as_agents`: the start is a write of its own, for then a process is to begin.
        """
        done = 0
        jobs = self.apply([self.claim(batch, start=not as_agents)])[0].jobs
        while jobs:
            if as_agents:
                self.apply([start(job) for job in jobs])
            done += len(jobs)
            words = [complete(job) for job in jobs]
            words[-1] = replace(words[-1], then=self.claim(batch, start=not as_agents))
            jobs = self.apply(words)[-1].next.jobs
        return done

    def claim(self, slots: int, *, start: bool) -> c.Claim:
        return c.Claim(worker_id=WORKER, request_id=self.chance.name(16), slots=slots, start=start)


def start(job: Any) -> c.Start:
    return c.Start(task_id=job.task_id, epoch=job.epoch, token_hash=TOKEN_HASH)


def complete(job: Any) -> c.Complete:
    return c.Complete(task_id=job.task_id, epoch=job.epoch, exit_code=0)


def registration(worker_id: str, slots: int = 1000) -> c.Register:
    """A worker that lives as long as this process does."""
    host = LocalHost()
    process = host.identify(os.getpid())
    assert process is not None
    return c.Register(
        worker_id=worker_id,
        hostname=host.hostname,
        pid=process.pid,
        pid_start=process.start,
        boot_id=host.boot_id,
        slots=slots,
        agents=(AGENT,),
        general=(AGENT,),
    )


def specs(number: int, *, first: int = 0, keyed: bool = True) -> tuple[c.Spec, ...]:
    return tuple(
        c.Spec(title=f"task {i}", key=f"t{i}" if keyed else None, agent=AGENT)
        for i in range(first, first + number)
    )


def enqueue(tasks: tuple[c.Spec, ...], plan: str = PLAN) -> c.Enqueue:
    return c.Enqueue(plan=plan, source=None, tasks=tasks, actor="bench")


def template(path: Path, number: int) -> Path:
    """A closed store with that many ready tasks."""
    with Inside(path) as inside:
        inside.apply([enqueue(specs(number))])
    return path


def copy(source: Path, target: Path) -> Path:
    remove(target)
    shutil.copyfile(source, target)
    shutil.copyfile(witness_of(source), witness_of(target))
    return target


def remove(store: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        store.with_name(store.name + suffix).unlink(missing_ok=True)
    witness_of(store).unlink(missing_ok=True)
