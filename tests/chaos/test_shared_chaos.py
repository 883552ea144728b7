"""Two servers on PostgreSQL and Valkey, and workers that know both.

`./run chaos --backend postgres --rounds 300` is the long one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from figures import table
from rounds import FAULTS_OF, chosen, run
from shared_backend import under_old_terms
from verdict import Line, counted, granted_once

from muster.model.events import Event, Level
from muster.model.states import TaskStatus
from muster.testing.promises import History

SEED = 6
STRUCK = ["follower-killed", "after-commit", "valkey-flushed", "lines-cut", "postmaster-killed"]


@pytest.mark.timeout(900)  # so many processes are started anew that a busy machine takes minutes
@pytest.mark.promise("S1", "S3", "S4", "S6", "S7", "S10", "S14", "L4")
def test_faults_of_servers_database_and_valkey_lose_nothing(tmp_path: Path) -> None:
    report = run(tmp_path, len(STRUCK), SEED, backend="postgres", faults_named=STRUCK)
    assert not report.broken, (
        "\n".join(f"{finding.promise}: {finding.violations[:5]}" for finding in report.broken)
        + f"\n{table(report.figures)}"
    )


def test_every_kind_comes_where_there_is_room() -> None:
    kinds = FAULTS_OF["postgres"]
    assert set(chosen(SEED, 300, "postgres")) == kinds.keys()
    assert set(STRUCK) <= kinds.keys()
    assert "owner" not in kinds, "no supervisor would start it again"
    assert set(chosen(SEED, 5, "postgres")) != set(chosen(SEED + 1, 5, "postgres"))


def test_a_leader_that_writes_when_its_term_is_over_is_seen() -> None:
    in_turn = [(1, "a"), (1, "a"), (2, "b"), (3, "a"), (3, "a")]
    assert under_old_terms(in_turn) == []
    assert len(under_old_terms([*in_turn, (3, "b")])) == 1
    assert len(under_old_terms([*in_turn, (2, "b")])) == 1


def _deed(epoch: int, at_s: float, pid: int = 1) -> Line:
    return {"task": 1, "epoch": epoch, "piece": 1, "began": at_s - 0.1, "at": at_s, "pid": pid}


def _claimed(epoch: int, at_ms: int) -> Event:
    moved = {"previous_status": TaskStatus.PENDING, "new_status": TaskStatus.ASSIGNED, "generation": 1}
    told = {"level": Level.INFO, "event": "claimed", "message": "", "details": "{}", "actor": "worker-a"}
    return Event(task_id=1, seq=epoch, at_ms=at_ms, epoch=epoch, **moved, **told)  # type: ignore[arg-type]


def test_only_what_nobody_could_stop_is_left_out() -> None:
    """A worker stood still on another host: its agent's deeds do not count once the next attempt is granted."""
    ledger = [_deed(1, 1.0), _deed(1, 3.0), _deed(2, 3.1)]
    events = [_claimed(1, 500), _claimed(2, 2_000)]
    assert counted(ledger, events, {(1, 1)}) == [ledger[0], ledger[2]]
    assert counted(ledger, events, ()) == ledger
    assert counted(ledger, events[:1], {(1, 1)}) == ledger


def test_an_epoch_that_two_processes_had_is_seen() -> None:
    history = History(tasks=[], attempts=[], events=[], dependencies=[])
    found = granted_once(history, [_deed(1, 1.0), _deed(1, 2.0, pid=2)]).violations
    assert found == ["task 1: 2 processes had epoch 1", "task 1: attempt 1 has worked, and is not there"]
