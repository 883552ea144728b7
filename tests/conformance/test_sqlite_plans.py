"""Which index a hot statement walks: with another one, its cost grows with the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.stores.sqlite.known_rows import SQL as WRITES
from muster.stores.sqlite.reads import SQL as READS
from muster.stores.sqlite.reads import SQL_OF_ONE
from muster.stores.sqlite.store import SqliteStore


@pytest.mark.parametrize(
    ("name", "index", "bindings"),
    [
        ("due", "tasks_due", 2),
        ("expired", "tasks_expiry", 2),
        ("stale_pins", "tasks_aim", 2),
        ("overdue", "tasks_overdue", 2),
        ("open_attempts", "attempts_open", 3),
        ("ready", "tasks_ready", 3),
        ("open_lanes", "tasks_ready", 1),
        ("ready_lane", "tasks_ready", 2),
        ("taken_keys", "COVERING INDEX tasks_key", 2),
        ("held", "attempts_held", 2),
        ("waiting", "tasks_counts", 1),
        ("plans", "tasks_counts", 0),
        ("completed_since", "SEARCH e USING INTEGER PRIMARY KEY (rowid>?)", 1),
        ("existing", "tasks_key", 2),
        ("boxes_named", "tasks_key", 2),
        ("outlines", "SEARCH t USING INTEGER PRIMARY KEY (rowid=?)", 3),
        ("outlines", "COVERING INDEX tasks_key", 3),
        ("outlines", "COVERING INDEX tasks_counts", 3),
        ("happened_since", "SEARCH e USING INTEGER PRIMARY KEY (rowid>?)", 2),
        ("more_to_end", "SEARCH e USING INDEX events_task (task_id=?)", 3),
        ("steered_since", "SEARCH events USING INDEX events_task (task_id=?)", 2),
        ("place", "SEARCH n USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)", 1),
    ],
)
def test_the_index_of_what_is_looked_for(tmp_path: Path, name: str, index: str, bindings: int) -> None:
    used = plan_of(tmp_path, ({**READS, **WRITES})[name], bindings)
    assert index in used
    assert "SCAN tasks" not in used.replace("SCAN tasks USING COVERING INDEX", "")
    assert "TEMP B-TREE" not in used or name in ("plans", "boxes_named", "outlines"), "sorted by the index"


@pytest.mark.parametrize(
    ("name", "index", "bindings"),
    [
        ("calling", "SEARCH tasks USING INDEX tasks_calling (workspace_id=? AND status=?)", 4),
        ("stranded", "SEARCH p USING INDEX tasks_dead", 3),
        ("lane_tops", "SEARCH t USING INDEX tasks_ready (workspace_id=? AND lane_id=?)", 3),
        ("ready_of_lanes", "SEARCH t USING INDEX tasks_ready (workspace_id=? AND lane_id=?)", 3),
    ],
)
def test_what_needs_a_person_is_looked_for_by_an_index(
    tmp_path: Path, name: str, index: str, bindings: int
) -> None:
    used = plan_of(tmp_path, SQL_OF_ONE[name], bindings)
    assert index in used
    assert "SCAN tasks" not in used


def plan_of(folder: Path, statement: str, bindings: int) -> str:
    store = SqliteStore.open(folder / "muster.db")
    plan = store._writer.execute(f"EXPLAIN QUERY PLAN {statement}", (1,) * bindings).fetchall()
    store.close()
    return " ".join(row[3] for row in plan)
