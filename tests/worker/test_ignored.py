"""S18: what git ignores is in no commit, so it is named and kept, unless nobody misses it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from real_crew import crew
from repositories import git, make_repository, publish, tree
from test_review_rounds import CONFIG, Crew

from muster.worker.git import find_repository
from muster.worker.publishing import ForReview, SentBack
from muster.worker.worktree import Worktree

DROPPED = [
    "node_modules/x/index.js",
    "sub/__pycache__/a.pyc",
    ".venv/bin/python",
    "debug.log",
    "build/.cache/x",
]


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


@pytest.fixture
def made(tmp_path: Path) -> Worktree:
    home = make_repository(tmp_path / "home")
    ignored = "node_modules\n__pycache__\n.venv\n*.log\n.cache\ndist\ngen.py\nready\n"
    (home / ".gitignore").write_text(ignored)
    git(home, "commit", "--quiet", "--all", "-m", "ignore")
    repository = find_repository(home)
    assert repository is not None
    begun = tree(repository)
    begun.prepare()
    return begun


@pytest.mark.promise("S18")
def test_ignored_files_are_named_but_for_what_tools_make_again(made: Worktree) -> None:
    write(made.cwd, *DROPPED, "out.txt")
    assert publish(made).left_out == ""
    write(made.cwd, "gen.py", "dist/a.js", "dist/b.js", "dist/b.log")
    assert publish(made).left_out == f"dist/ (2 files), gen.py; it is kept in {made.path}"
    assert made.ignored(("dist", "gen.*")) == [], "a project knows more such names"


def test_what_the_setup_has_made_is_no_work(made: Worktree) -> None:
    write(made.cwd, "ready")
    made.was_set_up()
    write(made.cwd, "gen.py")
    assert made.ignored(()) == ["gen.py"]


def test_what_a_check_has_made_is_no_work_of_the_next_round(made: Worktree) -> None:
    write(made.cwd, "out.txt", "gen.py")

    def check() -> str:
        write(made.cwd, "dist/a.js")
        return "it has not passed"

    with pytest.raises(SentBack):
        publish(made, check=check)
    assert (made.cwd / "dist" / "a.js").exists() and made.ignored(()) == ["gen.py"]


@pytest.mark.promise("S18")
def test_a_pattern_that_an_agent_adds_for_the_whole_repository_is_named(made: Worktree) -> None:
    exclude = made.repository.common / "info" / "exclude"
    exclude.parent.mkdir(exist_ok=True)
    exclude.write_text("mine.txt\n")
    write(made.cwd, "mine.txt", "gen.py")
    assert made.ignored(()) == ["gen.py", f"mine.txt by {exclude}"]


@pytest.mark.promise("S18")
@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_change_that_git_was_told_to_pass_over_is_for_a_person(made: Worktree, flag: str) -> None:
    git(made.cwd, "update-index", flag, "a.txt")
    (made.cwd / "a.txt").write_text("hidden\n")
    with pytest.raises(ForReview, match=r"does not take in all of its work: M a\.txt") as told:
        publish(made)
    look, _, more = told.value.hint.removeprefix("look at it: git ").partition("; ")
    assert "+hidden" in git(made.path.parent, *look.split()) and "ls-files -v" in more
    assert publish(made).changed, "as after `muster task accept`"


@pytest.mark.promise("S18")
def test_a_tree_whose_work_lacks_ignored_files_is_kept_and_people_are_told(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "home")
    (root / "muster.toml").write_text(CONFIG.format(task="").replace("writes = true\n", ""))
    (root / ".gitignore").write_text(".muster\ndist\n")
    git(root, "commit", "--quiet", "-m", "dist", "--", ".gitignore")
    with crew(root, "owner", "worker") as (api, _):
        run: Any = Crew(api, root)
        run.add("mkdir dist; echo precious > dist/a.js")
        kept = root / ".muster" / "worktrees" / str(run.id)
        why = run.comes_to("COMPLETED")["why"]
        told = f"it changed nothing; left out, because git ignores it: dist/ (1 file); it is kept in {kept}"
        assert why.endswith(told), why
        assert (kept / "dist" / "a.js").read_text() == "precious\n"
