"""Rows and jobs to which nothing has happened yet; each field may be given another value by its name."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from muster.model.states import AttemptStatus, FailedDependency, TaskStatus
from muster.model.task import Attempt, Now, Task
from muster.ports.agent import Job

NOW = Now(1_800_000_000_000, 50_000, "boot-a")
LEASE_MS = 15_000


def plain_task(**changes: Any) -> Task:
    task = Task(
        id=7,
        workspace_id=1,
        plan_id=3,
        lane_id=5,
        status=TaskStatus.PENDING,
        generation=1,
        epoch=0,
        event_seq=1,
        priority=5,
        sort_key=0,
        unmet=0,
        next_attempt_at_ms=None,
        timeout_s=7200,
        timeout_factor=1,
        max_retries=3,
        retries=0,
        losses=0,
        percent=0,
        step="",
        error_kind=None,
        error="",
        note="",
        paused_reason=None,
        question="",
        pinned_agent=None,
        pinned_until_ms=None,
        expires_at_ms=None,
        overdue_at_ms=None,
        fresh_after_epoch=0,
        on_failed=FailedDependency.BLOCK,
        limit_key=None,
        updated_at_ms=NOW.wall_ms,
        started_at_ms=None,
        ended_at_ms=None,
    )
    return replace(task, **changes)


def plain_attempt(**changes: Any) -> Attempt:
    attempt = Attempt(
        task_id=7,
        epoch=1,
        generation=1,
        status=AttemptStatus.RUNNING,
        worker_id="worker-aaaaaaaa",
        agent="claude",
        request_id="r1",
        boot_id=NOW.boot_id,
        lease_ms=LEASE_MS,
        lease_until_ms=NOW.mono_ms + LEASE_MS,
        assigned_at_ms=NOW.wall_ms,
        started_at_ms=None,
        ended_at_ms=None,
        session_key=None,
        token_hash=None,
        stop_action=None,
        stop_by_ms=None,
        error_kind=None,
        error="",
        tree_killed=False,
        exit_code=None,
        declared_kind=None,
        declared=None,
        checkpoints=0,
        log_bytes=0,
    )
    return replace(attempt, **changes)


def plain_job(**changes: Any) -> Job:
    fields: dict[str, Any] = {
        "task_id": 7,
        "epoch": 3,
        "ref": "billing/api",
        "title": "Write the API",
        "prompt": "Write it.",
        "session_key": None,
        "checkpoint": None,
        "timeout_s": 60.0,
    }
    return Job(**(fields | changes))
