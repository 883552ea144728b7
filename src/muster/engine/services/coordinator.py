"""The loops of the coordinator, all of them: whoever leads runs these."""

from __future__ import annotations

from collections.abc import Callable

from muster.engine.service import Service
from muster.engine.services.pruner import Pruner
from muster.engine.services.reaper import Reaper
from muster.engine.services.scheduler import Scheduler
from muster.engine.services.sealer import Sealer
from muster.model.retention import Retention
from muster.model.seals import Signer
from muster.ports.engine import ExecuteForAll
from muster.ports.files import Folders
from muster.ports.runtime import Clock
from muster.ports.store import Reads


def coordinator(
    clock: Clock,
    reads: Reads,
    engine: ExecuteForAll,
    *,
    term: int,
    reaper: Reaper,
    signer: Signer,
    elapsed_ms: Callable[[], int],
    folders: Folders,
    retention: Retention,
) -> list[Service]:
    return [
        reaper,
        Scheduler(clock, reads, engine, term=term, interval_s=reaper.interval_s, elapsed_ms=elapsed_ms),
        Sealer(clock, reads, engine, signer, term=term),
        Pruner(
            clock,
            reads,
            engine,
            signer,
            folders=folders,
            retention=retention,
            term=term,
            elapsed_ms=elapsed_ms,
        ),
    ]
