"""What `muster pr` pushes of a task: its work as people were shown it, once it is done, and nothing beside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from forge_stub import StubForge
from git_projects import git
from test_pr import forge, project, remote, repository  # noqa: F401

from muster_command import run_muster as muster

BRANCH = "muster/task/site/page"
NAMED = "-c user.name=x -c user.email=x@y"
CHECK = f"printf key=hunter2 > .env.ci && git add -f .env.ci && git {NAMED} commit -qm ci-snapshot"


def planned(repository: Path, box: str) -> None:  # noqa: F811
    (repository / "site.md").write_text(f"# Site\n- [ ] Page {{#page {box}}}\n  echo hello > page.txt\n")


def pushed(repository: Path) -> set[str]:  # noqa: F811
    return set(remote(repository, "ls-tree", "--name-only", BRANCH).split()) - {
        ".gitignore",
        "muster.toml",
        "plan.md",
    }


def test_a_checks_own_commits_are_no_part_of_it(repository: Path, forge: StubForge) -> None:  # noqa: F811
    planned(repository, f'check="{CHECK}"')
    done = muster(repository, "run", "site.md")
    assert done.returncode == 0, done.stdout + done.stderr
    beside = git(repository, "for-each-ref", "--format=%(refname)", "refs/muster/site/page")
    assert "refs/muster/site/page/1-check" in beside, "the check has committed something"
    assert git(repository, "branch", "--list", BRANCH) == "", "the plan's branch has its work"
    opened = muster(repository, "pr", "site/page")
    assert opened.returncode == 0, opened.stderr
    assert pushed(repository) == {"page.txt"}
    assert "hunter2" not in remote(repository, "log", "-p", BRANCH)


def test_what_stands_beside_its_work_is_not_taken_for_an_attempt(repository: Path, forge: StubForge) -> None:  # noqa: F811
    planned(repository, "check=none")
    assert muster(repository, "run", "site.md").returncode == 0
    work, secret = git(repository, "rev-parse", "refs/muster/site/page/1"), leak(repository)
    for name in ("1-check", "1-changed", "1-was-0123456789ab", "1-check-was-0123456789ab", "2", "7"):
        git(repository, "update-ref", f"refs/muster/site/page/{name}", secret)
    assert muster(repository, "pr", "site/page").returncode == 0
    assert remote(repository, "rev-parse", BRANCH) == work, "nor for an attempt that there never was"


def leak(repository: Path) -> str:  # noqa: F811
    return git(repository, "commit-tree", "main^{tree}", "-p", "main", "-m", "key=hunter2")


def test_its_work_is_what_people_were_shown(repository: Path, forge: StubForge) -> None:  # noqa: F811
    planned(repository, "check=none")
    assert muster(repository, "run", "site.md").returncode == 0
    shown = git(repository, "rev-parse", "refs/muster/site/page/1")
    git(repository, "update-ref", "refs/muster/site/page/1-shown", shown)
    git(repository, "update-ref", "refs/muster/site/page/1", leak(repository))
    assert muster(repository, "pr", "site/page").returncode == 0
    assert remote(repository, "rev-parse", BRANCH) == shown


def test_what_a_person_adds_on_its_branch_is_pushed(repository: Path, forge: StubForge) -> None:  # noqa: F811
    planned(repository, "check=none")
    assert muster(repository, "run", "site.md").returncode == 0
    work = git(repository, "rev-parse", "refs/muster/site/page/1")
    own = git(repository, "commit-tree", f"{work}^{{tree}}", "-p", work, "-m", "by hand")
    git(repository, "branch", BRANCH, own)
    assert muster(repository, "pr", "site/page").returncode == 0
    assert remote(repository, "rev-parse", BRANCH) == own


@pytest.mark.promise("S18")
def test_what_waits_for_its_review_is_not_published(repository: Path, forge: StubForge) -> None:  # noqa: F811
    planned(repository, "check=none review=person")
    assert muster(repository, "run", "site.md").returncode == 5
    refused = muster(repository, "pr", "site/page")
    assert refused.returncode == 6 and not forge.asked
    assert (
        "site/page is to be reviewed before anything of it is published; nothing was pushed" in refused.stderr
    )
    assert "muster task accept site/page" in refused.stderr
    assert remote(repository, "branch", "--list", "muster/*") == ""
    assert muster(repository, "task", "accept", "site/page").returncode == 0
    early = muster(repository, "pr", "site/page")
    assert early.returncode == 6 and "is not done, so nothing of it was pushed" in early.stderr
    assert muster(repository, "run", "site.md").returncode == 0
    opened = muster(repository, "pr", "site/page", "--json")
    assert opened.returncode == 0 and json.loads(opened.stdout)["new"], opened.stderr
    assert pushed(repository) == {"page.txt"}


def test_a_task_that_has_left_nothing_pushes_nothing(project: Path, forge: StubForge) -> None:  # noqa: F811
    refused = muster(project, "pr", "site/page")
    assert (
        refused.returncode == 3
        and "has left no work in this repository; nothing was pushed" in refused.stderr
    )
