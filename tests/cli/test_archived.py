"""Tasks that retention has archived, and the boxes of their plan's file."""

from __future__ import annotations

from pathlib import Path

from test_run import folder, started

from muster_command import run_muster as muster
from patience import PATIENCE_S, until

__all__ = ["folder"]


def test_the_boxes_of_archived_tasks_do_not_come_back_to_life(folder: Path) -> None:
    plan = folder / "plan.md"
    plan.write_text("# Plan\n\n- [ ] One {#a}\n  echo ran >> a.txt\n")
    assert muster(folder, "run", "plan.md").returncode == 0
    with (folder / "muster.toml").open("a") as settings:
        settings.write('[retention]\ntasks = "1s"\n')

    def archived(key: str) -> bool:
        """False as well while the owner begins."""
        return '"status":"ARCHIVED"' in muster(
            folder, "task", "show", f"plan/{key}", "--json"
        ).stdout.replace(" ", "")

    with started(folder, "up", "--workers", "1") as crew:
        until(lambda: archived("a"), "it is archived")
        assert muster(folder, "down").returncode == 0
        assert crew.wait(PATIENCE_S) == 0
    plan.write_text(plan.read_text() + "- [ ] Two {#b after=a}\n  echo ran >> b.txt\n")
    done = muster(folder, "run", "plan.md")
    assert done.returncode == 0, done.stdout + done.stderr
    assert plan.read_text().count("[x]") == 2
    assert [(folder / name).read_text() for name in ("a.txt", "b.txt")] == ["ran\n", "ran\n"]
    plan.write_text(plan.read_text().replace("[x] One", "[ ] One"))
    update = muster(folder, "plan", "add", "plan.md", "--update")
    assert "it is archived, and done: tick its box" in update.stdout + update.stderr
    done = muster(folder, "run", "plan.md")
    assert done.returncode == 5 and "plan/a  is archived, and its box is open" in done.stdout
    assert archived("a") and (folder / "a.txt").read_text() == "ran\n"
