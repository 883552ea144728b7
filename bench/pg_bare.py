"""The bare loop on PostgreSQL: claim and end tasks by hand-written SQL, with the facts that Muster records.

It works on Muster's own tables with their indexes, set-wise and in as many transactions: one ends a batch and
claims the next.  It decides nothing, reads nothing but the tasks that it takes, checks nothing, and needs no rule
for rows.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, NamedTuple

import asyncpg

_AT_MS = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
_TAKE = """
SELECT id, title, description FROM tasks WHERE workspace_id = 1 AND ready = 1
 ORDER BY workspace_id, lane_id, half_done DESC, priority DESC, sort_key, id LIMIT $1 FOR UPDATE SKIP LOCKED"""
_START = f"""
UPDATE tasks SET status = 'RUNNING', epoch = epoch + 1, event_seq = event_seq + 2, version = version + 1,
       updated_at_ms = {_AT_MS}, started_at_ms = {_AT_MS}
 WHERE id = ANY($1::bigint[])"""
_OPEN = f"""
INSERT INTO attempts (task_id, epoch, generation, status, worker_id, agent, request_id, boot_id, lease_ms,
       lease_until_ms, assigned_at_ms, started_at_ms, error, tree_killed, checkpoints, log_bytes, notice,
       checkpoint_taken, intent, refused, live_diff, remark, summary, holder, workspace_id)
SELECT id, 1, 1, 'running', $2, 'bench', $3, 'database', 15000, {_AT_MS} + 15000, {_AT_MS}, {_AT_MS}, '', 0, 0, 0,
       '', '', '', '', '', '', '', '', 1
  FROM unnest($1::bigint[]) id"""
_NOTE = f"""
INSERT INTO events (workspace_id, task_id, seq, at_ms, level, event, message, details, previous_status,
       new_status, generation, epoch, actor, subject)
SELECT 1, id, e.seq, {_AT_MS}, 'INFO', e.event, e.message, e.details, e.previous, e.new, 1, 1, $2, ''
  FROM unnest($1::bigint[]) id CROSS JOIN """
_STARTED = f"""{_NOTE} (VALUES
       (2, 'claimed', 'attempt 1 given to ' || $2 || ' with agent bench',
        '{{"agent":"bench","worker":"' || $2 || '"}}', 'PENDING', 'ASSIGNED'),
       (3, 'started', 'attempt 1 runs on ' || $2 || ' with agent bench', '{{}}', 'ASSIGNED', 'RUNNING'))
       e (seq, event, message, details, previous, new)"""
_ENDED = f"""{_NOTE} (VALUES
       (4, 'completed', 'attempt 1 completed', '{{"exitCode":0}}', 'RUNNING', 'COMPLETED'))
       e (seq, event, message, details, previous, new)"""
_COMPLETE = f"""
UPDATE tasks SET status = 'COMPLETED', event_seq = event_seq + 1, version = version + 1, percent = 100,
       updated_at_ms = {_AT_MS}, ended_at_ms = {_AT_MS}
 WHERE id = ANY($1::bigint[])"""
_CLOSE = f"""
UPDATE attempts SET status = 'completed', ended_at_ms = {_AT_MS}, exit_code = 0
 WHERE task_id = ANY($1::bigint[]) AND epoch = 1"""
FACTS = """
SELECT (SELECT count(*) FROM muster.tasks
         WHERE status = 'COMPLETED' AND epoch = 1 AND event_seq = 4 AND percent = 100),
       (SELECT count(*) FROM muster.attempts WHERE status = 'completed' AND exit_code = 0),
       (SELECT count(*) FROM muster.events WHERE subject = '')"""
"""What both are to leave: tasks that were completed, attempts, and the events of tasks."""


class Drained(NamedTuple):
    tasks: int
    seconds: float


async def drain_bare(url: str, batch: int, hands: int) -> Drained:
    """All that is ready, by that many connections at once."""
    settings = {"search_path": "muster", "synchronous_commit": "on", "jit": "off"}
    every = [await asyncpg.connect(url, server_settings=settings) for _ in range(hands)]
    try:
        started_s = time.perf_counter()
        done = await asyncio.gather(
            *(_drain(connection, f"worker-bench{n:03}", batch) for n, connection in enumerate(every))
        )
        return Drained(sum(done), time.perf_counter() - started_s)
    finally:
        for connection in every:
            await connection.close()


async def _drain(db: asyncpg.Connection, worker: str, batch: int) -> int:
    done, held, turn = 0, list[int](), 0
    while True:
        async with db.transaction():
            if held:
                await _end(db, held, worker)
                done += len(held)
            turn += 1
            held = await _claim(db, batch, worker, f"request-{turn:08}")
        if not held:
            return done


async def _claim(db: asyncpg.Connection, batch: int, worker: str, request: str) -> list[int]:
    jobs: list[Any] = await db.fetch(_TAKE, batch)
    ids = [job[0] for job in jobs]
    if ids:
        await db.execute(_START, ids)
        await db.execute(_OPEN, ids, worker, request)
        await db.execute(_STARTED, ids, worker)
    return ids


async def _end(db: asyncpg.Connection, ids: list[int], worker: str) -> None:
    await db.execute(_COMPLETE, ids)
    await db.execute(_CLOSE, ids)
    await db.execute(_ENDED, ids, worker)
