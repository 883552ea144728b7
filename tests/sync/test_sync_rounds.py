"""A few rounds of `./run sync`; more of them: `./run sync --rounds 200`."""

from __future__ import annotations

from pathlib import Path

from sync_rounds import run_rounds


def test_a_plan_and_its_file_stay_in_step_under_everybodys_hands(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    told: list[str] = []
    result = run_rounds(root, rounds=3, seed=7, say=told.append)
    assert result.good, "\n".join(told)
    assert result.in_step > 0
