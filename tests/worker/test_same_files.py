"""Tasks that would change the same files, by what they declare and by what they have changed so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from around import claimed_job
from real_crew import crew
from repositories import git, make_repository, publish, tree
from test_review_rounds import CONFIG

from muster.worker import tree_looks
from muster.worker.git import GitFailed
from muster.worker.tree_looks import TreeLooks, changed_files
from muster.worker.worktree import Worktree
from patience import HOURS_S, until

EDITS = """\
echo {key} > shared.txt
while ! test -e {folder}/done; do echo at work; sleep 0.05; done
"""
Told = Callable[[], dict[str, dict[str, Any]]]
Add = Callable[..., object]


@contextmanager
def running(tmp_path: Path, *tasks: dict[str, Any]) -> Iterator[tuple[Told, Add]]:
    """A crew of three at these tasks; yields what is told of each, and how to add more."""
    root = make_repository(tmp_path / "home")
    (root / "muster.toml").write_text(CONFIG.format(task=""))
    with crew(root, "owner", "worker", "worker", "worker") as (api, _):

        def add(*tasks: dict[str, Any]) -> object:
            made = [{"title": "t", "agent": "writer"} | task for task in tasks]
            return api.post("/api/v1/plans", {"plan": "p", "source": None, "actor": "test", "tasks": made})

        add(*tasks)
        yield lambda: {task["key"]: task for task in api.get("/api/v1/agent-tasks")}, add


def all_done(told: Told) -> None:
    until(lambda: all(task["status"] == "COMPLETED" for task in told().values()), "all are done")


def test_tasks_that_change_the_same_files_run_one_after_the_other(tmp_path: Path) -> None:
    script = f"mkdir {tmp_path}/at-work; sleep 0.3; echo $0 >> shared.txt; rmdir {tmp_path}/at-work"
    files = ("shared.txt", "*.txt", "./shared.txt")
    tasks = [{"key": f"t{n}", "description": script, "touches": name} for n, name in enumerate(files)]
    with running(tmp_path, *tasks) as (told, _):
        until(lambda: any("changes the same files" in task["why"] for task in told().values()), "one waits")
        all_done(told)
        assert all(task["epoch"] == 1 for task in told().values()), (
            "no conflict, and no folder that was there already"
        )


def test_who_changes_the_same_file_unsaid_is_shown_and_waited_for(tmp_path: Path) -> None:
    tasks = [{"key": key, "description": EDITS.format(key=key, folder=tmp_path)} for key in ("a", "b")]
    with running(tmp_path, *tasks) as (told, add):
        until(
            lambda: (
                told()["a"]["why"].endswith("; also changes shared.txt, which p/b is changing")
                and told()["b"]["why"].endswith("; also changes shared.txt, which p/a is changing")
            ),
            "people see the conflict that is to come",
        )
        add({"key": "late", "description": "cat shared.txt > seen.txt", "touches": "*.txt"})
        add({"key": "other", "description": "echo x > x.md", "touches": "x.md"})
        until(lambda: told()["other"]["status"] == "COMPLETED", "others go on")
        assert told()["late"]["why"] == "waits for p/a, which has changed shared.txt"
        (tmp_path / "done").touch()
        all_done(told)
    assert git(tmp_path / "home", "show", "muster/plan/p:seen.txt") in ("a", "b")


def test_only_the_tasks_own_changes_count(repository: Any, home: Path) -> None:
    """Not what others have published and were merged into its tree, with or without a conflict."""
    one, other = tree(repository, "x"), tree(repository, "y")
    for each in (one, other):
        each.prepare()
        (each.cwd / "a.txt").write_text(f"{each.key}\n")
        (each.cwd / f"{each.key}.new").write_text("new")
        (each.cwd / "ignored.log").write_text("ignored")
    git(other.cwd, "add", ".")
    git(other.cwd, "commit", "--quiet", "-m", "the agent's own")
    assert changed_files(other, HOURS_S) == {"a.txt", "y.new"}
    publish(one)
    assert "conflicts in a.txt" in tree(repository, "y", epoch=2).prepare()
    assert changed_files(tree(repository, "y", epoch=2), HOURS_S) == {"a.txt", "y.new"}
    assert (other.cwd / "x.new").exists()


def test_a_filter_that_hangs_holds_nobody_up(repository: Any, home: Path) -> None:
    made: Worktree = tree(repository)
    made.prepare()
    git(home, "config", "filter.slow.clean", "while kill -0 $PPID; do sleep 0.05; done")
    (made.cwd / ".gitattributes").write_text("a.txt filter=slow\n")
    (made.cwd / "a.txt").write_text("b\n")
    with pytest.raises(GitFailed, match=r"took more than 0\.2 s"):
        changed_files(made, 0.2)


def test_a_look_takes_its_part_of_the_time_and_tells_what_is_new(
    repository: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, told = tree(repository), list[Any]()
    made.prepare()
    looks = TreeLooks(made, 0.0)

    def look_after(name: str, part: float) -> list[str]:
        monkeypatch.setattr(tree_looks, "LOOK_PART", part)
        (made.cwd / name).touch()
        looks.tell(claimed_job("writer"), told.append)
        return [command.files for command in told]

    at_once, never_again = float("inf"), 1e-9
    assert look_after("b.txt", at_once) == ["b.txt"]
    assert look_after("b.txt", at_once) == ["b.txt"]
    assert look_after("c.txt", never_again) == ["b.txt", "b.txt,c.txt"]
    assert look_after("d.txt", never_again) == ["b.txt", "b.txt,c.txt"]
