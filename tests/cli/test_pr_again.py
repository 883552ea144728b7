"""`muster pr` once more, after the earlier request was merged or closed, and where another one is in the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forge_stub import OWN, StubForge
from git_projects import git, publish
from test_pr import BRANCH, CONFIG, forge, project, remote, repository  # noqa: F401

from muster_command import run_muster as muster


def squash_merged(project: Path, forge: StubForge) -> None:  # noqa: F811
    """At the forge, which deletes the branch; nothing of it is fetched."""
    squashed = git(project, "commit-tree", f"{BRANCH}^{{tree}}", "-p", "main", "-m", "Site (#7)")
    git(project, "push", "-q", "origin", f"{squashed}:main", f":{BRANCH}")
    git(project, "update-ref", "refs/remotes/origin/main", "main")
    forge.pulls[-1].update(state="closed", merged=True)


def opened(project: Path, forge: StubForge) -> None:  # noqa: F811
    assert muster(project, "pr", "site").returncode == 0
    forge.pulls[-1]["head"]["sha"] = git(project, "rev-parse", BRANCH)


def branches(project: Path) -> str:  # noqa: F811
    return remote(project, "branch", "--list", "muster/*")


def test_what_was_merged_is_not_pushed_again(project: Path, forge: StubForge) -> None:  # noqa: F811
    opened(project, forge)
    squash_merged(project, forge)
    again = muster(project, "pr", "site")
    assert again.returncode == 6, again.stdout
    assert (
        "pull/7 was merged into main, with all that muster/plan/site has; nothing was pushed" in again.stderr
    )
    assert branches(project) == "" and len(forge.pulls) == 1
    assert "no pull request is open" in muster(project, "pr", "status").stdout


def test_what_was_added_at_the_forge_before_a_merge_is_no_news(project: Path, forge: StubForge) -> None:  # noqa: F811
    opened(project, forge)
    squash_merged(project, forge)
    forge.pulls[-1]["head"]["sha"] = "5" * 40
    again = muster(project, "pr", "site")
    assert again.returncode == 6 and "nothing was pushed" in again.stderr and branches(project) == ""


def test_work_after_a_merge_goes_into_a_new_request(project: Path, forge: StubForge) -> None:  # noqa: F811
    opened(project, forge)
    squash_merged(project, forge)
    publish(project, "site/index", {"more.txt": "more\n"})
    again = muster(project, "pr", "site")
    assert again.returncode == 0, again.stderr
    assert "opened   https://forge.example/acme/site/pull/8" in again.stdout
    assert "note     the one before, https://forge.example/acme/site/pull/7, was merged" in again.stdout
    assert "muster/plan/site" in branches(project) and len(forge.pulls) == 2


def test_what_was_squashed_is_known_by_what_it_changes(project: Path, forge: StubForge) -> None:  # noqa: F811
    """Also where nobody here has opened it."""
    opened(project, forge)
    squash_merged(project, forge)
    (project / ".muster" / "pull_requests.json").unlink()
    squashed = remote(project, "rev-parse", "main")
    git(project, "fetch", "-q", str(project.parent / "remote.git"), squashed)
    git(project, "update-ref", "refs/remotes/origin/main", squashed)
    again = muster(project, "pr", "site")
    assert again.returncode == 6 and "main of origin has all of muster/plan/site" in again.stderr
    assert branches(project) == "" and len(forge.pulls) == 1


def test_what_was_closed_is_opened_anew_into_the_branch_one_is_on(project: Path, forge: StubForge) -> None:  # noqa: F811
    opened(project, forge)
    forge.pulls[0]["state"] = "closed"
    git(project, "switch", "-q", "-c", "release")
    again = muster(project, "pr", "site", "--json")
    assert again.returncode == 0, again.stderr
    told = json.loads(again.stdout)
    assert (told["number"], told["new"], told["base"]) == (8, True, "release")
    assert told["remarks"] == ["the one before, https://forge.example/acme/site/pull/7, was closed"]


def test_what_was_merged_into_one_branch_may_go_into_another(project: Path, forge: StubForge) -> None:  # noqa: F811
    opened(project, forge)
    forge.pulls[0].update(state="closed", merged=True)
    again = muster(project, "pr", "site", "--base", "release")
    assert again.returncode == 0 and "pull/8 into release" in again.stdout, again.stderr


def test_an_open_one_stays_where_it_goes_and_says_so(project: Path, forge: StubForge) -> None:  # noqa: F811
    opened(project, forge)
    git(project, "switch", "-q", "-c", "release")
    again = muster(project, "pr", "site")
    assert (
        again.returncode == 0 and "updated  https://forge.example/acme/site/pull/7 into main" in again.stdout
    )
    assert "note     it goes into main, as it was opened: --base release changes that" in again.stdout
    assert "note" not in muster(project, "pr", "site", "--base", "release").stdout
    assert forge.pulls[0]["base"]["ref"] == "release" and len(forge.pulls) == 1
    git(project, "switch", "-q", "--detach")
    assert muster(project, "pr", "site").returncode == 0, "nothing is to be chosen"


def test_what_another_command_opens_meanwhile_is_brought_up_to_date(project: Path, forge: StubForge) -> None:  # noqa: F811
    """Both have found none; the forge takes one of a branch."""
    answer = forge.answer

    def raced(method: str, path: str, query: Any, given: Any, headers: Any) -> tuple[int, Any]:
        if method == "POST" and path.endswith("pulls"):
            answer(method, path, query, given, headers)
            return 422, {
                "message": "Validation Failed",
                "errors": [{"message": "A pull request already exists"}],
            }
        return answer(method, path, query, given, headers)

    forge.answer = raced  # type: ignore[method-assign]
    done = muster(project, "pr", "site")
    assert done.returncode == 0 and "updated  https://forge.example/acme/site/pull/7" in done.stdout, (
        done.stderr
    )
    assert len(forge.pulls) == 1


HUBS = {"number": 7, "html_url": "https://forge.example/7", "state": "open", "body": "by mallory"}
FORK, SHA = {"id": 666, "full_name": "mallory/site", "owner": {"login": "acme"}}, "f" * 40
STRANGERS = {
    "a fork": {
        **HUBS,
        "head": {"ref": BRANCH, "sha": SHA, "repo": FORK},
        "base": {"ref": "main", "repo": OWN},
    },
    "a fork that is gone": {
        **HUBS,
        "head": {"ref": BRANCH, "sha": SHA, "repo": None},
        "base": {"ref": "main", "repo": OWN},
    },
    "no head": {**HUBS, "head": None, "base": {"ref": "main", "repo": OWN}},
    "ids at the sides": {
        **HUBS,
        "head": {"ref": BRANCH, "sha": SHA, "repo_id": 666, "repo": FORK},
        "base": {"ref": "main", "repo_id": 1, "repo": OWN},
    },
    "names alone": {
        **HUBS,
        "head": {"ref": BRANCH, "sha": SHA, "repo": {"full_name": "mallory/site"}},
        "base": {"ref": "main", "repo": {"full_name": "acme/site"}},
    },
}
LABS = {
    "iid": 7,
    "web_url": "https://forge.example/7",
    "state": "opened",
    "sha": SHA,
    "description": "by mallory",
}
OF_LAB = {"source_branch": BRANCH, "target_branch": "main", "target_project_id": 1}


@pytest.mark.parametrize(
    ("path", "pull"),
    [
        *(
            pytest.param(path, pull, id=f"{path[-2:]} {name}")
            for path in ("/api/v1", "/api/v3")
            for name, pull in STRANGERS.items()
        ),
        pytest.param("/api/v4", {**LABS, **OF_LAB, "source_project_id": 666}, id="v4 a fork"),
        pytest.param("/api/v4", {**LABS, **OF_LAB, "source_project_id": None}, id="v4 a fork that is gone"),
    ],
)
def test_a_request_from_a_fork_is_not_ours(
    project: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    pull: dict[str, Any],
) -> None:
    stub = StubForge(path)
    try:
        for name in ("GITEA_TOKEN", "GITLAB_TOKEN", "GITHUB_TOKEN"):
            monkeypatch.setenv(name, stub.token)
        (project / "muster.toml").write_text(CONFIG.format(api=stub.api))
        stub.pulls.append(json.loads(json.dumps(pull)))
        done = muster(project, "pr", "site", "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["number"] == 8 and len(stub.pulls) == 2
        assert stub.pulls[0] == pull, "that one is as it was"
        assert not any(method in ("PATCH", "PUT") for method, *_ in stub.asked)
        hijack(project)
        shown = muster(project, "pr", "status", "site")
        assert shown.returncode == 6 and "is from another repository" in shown.stderr
        again = muster(project, "pr", "site", "--json")
        assert again.returncode == 0 and json.loads(again.stdout)["number"] == 8, again.stderr
    finally:
        stub.close()


def hijack(project: Path) -> None:  # noqa: F811
    """As an earlier version may have noted it."""
    kept = project / ".muster" / "pull_requests.json"
    kept.write_text(kept.read_text().replace('"number":8', '"number":7'))
