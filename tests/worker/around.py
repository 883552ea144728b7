"""What an attempt of a worker begins with: a claimed job, and what surrounds it."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from muster.hosts.process import LocalLauncher
from muster.model.answers import ClaimedJob
from muster.worker.context import WorkerContext

WORKER = f"worker-{secrets.token_hex(4)}"
"""No other test process's: whoever sweeps up after its worker kills all processes of that name."""


def claimed_job(agent: str, **changes: Any) -> ClaimedJob:
    job = ClaimedJob(
        task_id=7,
        epoch=1,
        plan="p",
        key="a",
        agent=agent,
        title="A",
        description="",
        note="",
        timeout_s=60,
        session_key=None,
        checkpoint=None,
    )
    return replace(job, **changes)


def worker_context(root: Path, **changes: Any) -> WorkerContext:
    plain = {
        "worker_id": WORKER,
        "root": root,
        "attempts_dir": root / "attempts",
        "reach": lambda: {"MUSTER_SOCKET": str(root / "socket")},
        "agents": {},
        "launcher": LocalLauncher(),
    }
    return WorkerContext(**(plain | changes))
