"""The crash proof, and proof that it would see harm.  `./run chaos --rounds 500` is the long one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from client import Operation
from figures import table
from rig import Rig
from rounds import chosen, random_plan, run
from verdict import Line, _allowed, nobody_at_once, nothing_again

from faults import FAULTS
from muster.app.settings import load_config

ROUNDS = 40
POINTS = Path(__file__).parents[1] / "crash_points"
SEED = 40


@pytest.mark.promise("S1", "S3", "S4", "S6", "S7", "S8", "L4")
def test_forty_faults_lose_nothing_and_do_nothing_twice(tmp_path: Path) -> None:
    report = run(tmp_path, ROUNDS, SEED)
    assert not report.broken, (
        "\n".join(
            f"{finding.promise}: {finding.looked_at} looked at, {finding.violations[:5]}"
            for finding in report.broken
        )
        + f"\n{table(report.figures)}"
    )
    assert sum(row.count for row in report.figures.rows if not row.kind.startswith("**")) == ROUNDS
    assert {by for told in report.figures.operations.values() for by, n in told.items() if n} >= {"ok"}


def test_every_kind_of_fault_comes_and_a_seed_is_an_order() -> None:
    assert set(chosen(SEED, ROUNDS)) == set(FAULTS)
    assert chosen(7, 100) == chosen(7, 100) != chosen(8, 100)


def test_random_plans_differ_and_have_edges() -> None:
    chance = random.Random(1)
    first, second = random_plan(chance), random_plan(chance)
    assert first != second
    assert any(task["dependsOn"] for task in first)


def _deed(epoch: int, piece: int, began: float, at: float) -> Line:
    return {"task": 1, "epoch": epoch, "piece": piece, "began": began, "at": at}


def test_two_attempts_at_one_time_are_seen() -> None:
    one_after_the_other = [_deed(1, 1, 0.0, 0.1), _deed(2, 1, 0.2, 0.3)]
    assert nobody_at_once(one_after_the_other).holds
    assert not nobody_at_once([*one_after_the_other, _deed(1, 2, 0.1, 0.25)]).holds
    assert not nobody_at_once([]).holds, "a check that looked at nothing proves nothing"


def test_work_that_was_saved_and_is_done_again_is_seen() -> None:
    saved = [{"task": 1, "epoch": 1, "piece": 2}]
    assert nothing_again([_deed(1, 2, 0, 1), _deed(2, 3, 1, 2)], saved).holds
    assert not nothing_again([_deed(1, 2, 0, 1), _deed(2, 2, 1, 2)], saved).holds


@pytest.mark.parametrize(
    ("outcome", "seen", "right"),
    [
        ("ok", {"enqueued": 2}, True),
        ("ok", {}, False),
        ("ok", {"enqueued": 4}, False),
        ("failed", {}, True),
        ("failed", {"enqueued": 2}, False),
        ("unknown", {}, True),
        ("unknown", {"enqueued": 2}, True),
        ("unknown", {"enqueued": 1}, False),
    ],
)
def test_what_a_client_was_told_is_held_against_the_audit(
    outcome: str, seen: dict[str, int], right: bool
) -> None:
    operation = Operation("op1", "enqueue", outcome, plan="op1", tasks=2)  # type: ignore[arg-type]
    assert (Counter(seen) in _allowed(operation, was_cancelled=False)) is right


# -- the failpoint


def _hits(folder: Path, order: str | None, *points: str) -> tuple[int, int]:
    """(signal that ended it, points passed alive) of a process that passes these points."""
    script = (
        "import sys\nfrom pathlib import Path\nfrom failpoint import Failpoint\n"
        "failpoint = Failpoint(Path(sys.argv[1]))\n"
        "for point in sys.argv[2:]:\n"
        "    failpoint.at(point, ['Claim'])\n    print(point, flush=True)\n"
    )
    path = folder / "failpoint"
    if order is not None:
        path.write_text(order)
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), *points],
        env={**os.environ, "PYTHONPATH": str(POINTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return -done.returncode, len(done.stdout.splitlines())


@pytest.mark.parametrize(
    ("order", "alive"),
    [
        (None, 4),
        ("after_commit:2", 2),
        ("after_commit:2:Claim", 2),
        ("after_commit:1:Complete", 4),
        ("before_commit:1", 1),
        ("after_commit:3", 4),
    ],
)
def test_a_failpoint_strikes_where_and_when_it_is_told(tmp_path: Path, order: str | None, alive: int) -> None:
    points = ("after_commit", "before_commit", "after_commit", "after_answer")
    dies = alive < len(points)
    assert _hits(tmp_path, order, *points) == (signal.SIGKILL if dies else 0, alive)
    assert (tmp_path / "failpoint").exists() is (order is not None and not dies), "it strikes once"


def test_a_crew_under_test_has_no_settings_of_who_tests_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = tmp_path / "mine"
    (mine / "muster").mkdir(parents=True)
    (mine / "muster" / "muster.toml").write_text("[broken", "utf-8")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(mine))
    monkeypatch.setenv("MUSTER_TASK_RETRIES", "many")
    root = tmp_path / "project"
    root.mkdir()
    rig = Rig(root)
    assert load_config(root, rig.environment()).task.retries == 50
