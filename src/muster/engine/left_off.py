"""When the crew of a store was last heard of, as far as the store tells."""

from __future__ import annotations

from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.runs import RUNS, runs_of
from muster.ports.store import Reads


async def left_off_ms(reads: Reads) -> int:
    """0: never.  To be asked before anything is written: that is no sign of a crew of before.

    A worker is a better witness than the newest event, which may be a person's word while no crew was up.
    """
    runs = runs_of(await reads.of(DEFAULT_WORKSPACE).meta(RUNS))
    worker = await reads.last_worker()
    if worker is not None and runs and worker.last_seen_at_ms >= runs[-1].started_at_ms:
        return worker.last_seen_at_ms
    last_id = await reads.last_event_id()
    newest = await reads.events(after_id=max(0, last_id - 1), task_id=None, limit=1)
    return newest[0].at_ms if newest else 0
