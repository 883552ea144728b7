"""A few rounds of `./run sync`; more of them: `./run sync --rounds 200`."""

from __future__ import annotations

from pathlib import Path

from deciding_rounds import run_decisions
from moving_rounds import run_moves
from sync_rounds import run_rounds


def test_a_plan_and_its_file_stay_in_step_under_everybodys_hands(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    told: list[str] = []
    result = run_rounds(root, rounds=3, seed=7, say=told.append)
    assert not result.wrong, "\n".join(told)
    assert result.in_step > 0


def test_boxes_that_are_moved_between_two_files_are_done_once(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    result = run_moves(root, rounds=1, seed=3)
    assert not result.wrong, "\n".join(result.wrong)
    assert result.moved > result.copies


def test_an_answer_that_is_killed_midway_is_given_again(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    result = run_decisions(root, rounds=2, seed=3)
    assert not result.wrong, "\n".join(result.wrong)
