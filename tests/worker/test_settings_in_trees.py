"""What an agent sets by `git config` in its tree counts in the user's folder too, so people are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from real_crew import crew
from repositories import git, make_repository, tree
from test_review_rounds import CONFIG, Crew

from muster.worker.git import Repository
from muster.worker.shared_settings import changed_since, shared_settings
from muster.worker.workdir import Tree, Trees


def test_settings_that_an_agent_has_changed_are_named_with_its_work(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "home")
    (root / "muster.toml").write_text(CONFIG.format(task=""))
    with crew(root, "owner", "worker") as (api, _):
        run: Any = Crew(api, root)
        run.add("git config user.name Robot; git config core.editor s3cret; echo x > x.txt")
        run.comes_to("COMPLETED")
        found = api.get(f"/api/v1/agent-tasks/{run.id}/artifacts")
    assert len(found) == 1 and "shares: core.editor, user.name; look at them" in found[0]["location"], found
    assert "s3cret" not in found[0]["location"]
    assert git(root, "config", "user.name") == "Robot", "nobody has set it back"


def test_what_git_notes_by_itself_and_setup_changes_is_not_named(repository: Repository) -> None:
    before = shared_settings(repository)
    git(repository.top, "config", "branch.main.remote", "origin")
    git(repository.top, "config", "submodule.sm.active", "true")
    git(repository.top, "config", "lfs.repositoryformatversion", "0")
    git(repository.top, "config", "lfs.https://host/a.git/info/lfs.access", "basic")
    git(repository.top, "config", "lfs.https://host/a.git/info/lfs.locksverify", "false")
    assert changed_since(repository, before) == ""
    rules = Trees(repository=repository, folder=repository.top / ".muster" / "worktrees")
    workdir = Tree(rules, tree(repository))
    workdir.begin()
    git(repository.top, "config", "filter.lfs.clean", "git-lfs clean")
    workdir.was_set_up()
    work = workdir.keep()
    assert work is not None and work.besides == ""


@pytest.mark.parametrize("name", ["lfs.url", "lfs.customtransfer.a.path", "filter.lfs.clean"])
def test_where_git_lfs_gets_files_and_what_it_runs_is_named(repository: Repository, name: str) -> None:
    before = shared_settings(repository)
    git(repository.top, "config", name, "x")
    assert f"shares: {name}; look" in changed_since(repository, before)


def test_the_login_in_an_address_that_is_a_part_of_a_name_is_left_out(repository: Repository) -> None:
    before = shared_settings(repository)
    git(repository.top, "config", "url.https://x:s3cret@host/.insteadOf", "https://host/")
    told = changed_since(repository, before)
    assert "shares: url.https://host/.insteadof; look" in told
