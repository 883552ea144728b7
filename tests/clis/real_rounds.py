"""A few rounds of what `./run agents` does for hours: kills, conflicts, and several CLIs at once."""

from __future__ import annotations

import one_file
import pytest
from kill_rounds import killed
from ten_clis import hour

pytestmark = pytest.mark.timeout(1200)  # a busy machine starts a CLI in half a minute


def say(line: str) -> None:
    print(line)


@pytest.mark.parametrize("kind", ["claude-code", "codex", "aider"])
def test_kills_lose_no_work_leave_no_process_and_hide_no_cost(kind: str) -> None:
    rounds = killed(kind, 4, seed=5, say=say)
    assert rounds.findings.violations == []
    assert rounds.findings.tasks["COMPLETED"] >= 4
    assert sum(rounds.faults.values()) == 4


@pytest.mark.parametrize(
    ("kind", "mode"), [(kind, mode) for kind, modes in one_file.MODES.items() for mode in modes]
)
def test_two_agents_that_edit_one_file_are_both_merged(kind: str, mode: str) -> None:
    merged = one_file.merged(kind, mode, 2, say)
    assert merged.violations == []
    assert merged.conflicts == 2


def test_several_clis_at_once_do_each_task_once() -> None:
    found = hour(0.3, 1, ("claude-code", "codex", "opencode"), 1, say)
    assert found.findings.violations == []
    assert found.findings.tasks["COMPLETED"] >= 3
