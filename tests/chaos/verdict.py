"""The promises, checked after a run."""

from __future__ import annotations

from rig import Rig

from muster.stores.sqlite.history import read_history
from muster.testing.promises import Deed, History, all_completed, check


def history_of(rig: Rig) -> History:
    rows = read_history(rig.project.store)
    deeds = [
        Deed(task_id=d["task"], epoch=d["epoch"], what=str(d["piece"]), at_ms=int(d["at"] * 1000))
        for d in rig.ledger()
    ]
    return History(
        tasks=rows.tasks,
        attempts=rows.attempts,
        events=rows.events,
        dependencies=rows.dependencies,
        deeds=deeds,
    )


def assert_promises(rig: Rig, *, pieces: int) -> History:
    """Every task done, every promise kept, every piece of work in the ledger."""
    history = history_of(rig)
    findings = [*check(history), all_completed(history)]
    broken = [finding for finding in findings if not finding.holds]
    assert not broken, "\n".join(f"{f.promise}: {f.looked_at} looked at, {f.violations[:5]}" for f in broken)
    done = {(deed.task_id, deed.what) for deed in history.deeds}
    wanted = {(task.id, str(piece)) for task in history.tasks for piece in range(1, pieces + 1)}
    assert done == wanted
    return history
