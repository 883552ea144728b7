"""S18 over real processes: what nobody decides on comes to a person, who has all of it, whatever he says."""

from __future__ import annotations

import pytest
from repositories import git
from test_review_rounds import Crew, run  # noqa: F401

from muster.model.refs import kept_ref, plan_branch
from patience import until

BRANCH = plan_branch("p")
LAZY = """\
test "$MUSTER_EPOCH" = 1 || exit 0
until git rev-parse --quiet --verify {branch}; do sleep 0.05; done
printf '\\0mine' > bin
"""
FILTERED = "printf '*.bin filter=gone\\n' > .gitattributes; echo x > a.bin; echo y > y.txt"


@pytest.mark.promise("S18")
def test_a_binary_that_no_round_decides_on_is_for_a_person(run: Crew) -> None:  # noqa: F811
    run.add(LAZY.format(branch=BRANCH))
    until(lambda: run.task()["status"] == "RUNNING", "it has begun")
    other = run.root.parent / "other"
    git(run.root, "worktree", "add", "--quiet", "-b", BRANCH, str(other))
    (other / "bin").write_bytes(b"\0theirs")
    git(other, "add", "bin")
    git(other, "commit", "--quiet", "-m", "theirs")
    theirs = git(other, "rev-parse", "HEAD")
    git(other, "switch", "--quiet", "--detach")
    assert "nobody has decided on both sides of bin: binary" in run.comes_to("PAUSED")["why"]
    assert git(run.root, "rev-parse", BRANCH) == theirs
    run.post("accept")
    run.comes_to("COMPLETED")
    assert git(run.root, "show", f"{BRANCH}:bin") == "\0mine"
    assert git(run.root, "log", "-1", "--format=%P", BRANCH).startswith(theirs)


@pytest.mark.promise("S18")
def test_what_a_filter_refuses_stays_behind_its_ref_after_a_cancel(run: Crew) -> None:  # noqa: F811
    git(run.root, "config", "filter.gone.clean", "no-such-program")
    git(run.root, "config", "filter.gone.required", "true")
    run.add(FILTERED)
    assert "clean filter 'gone' failed" in run.comes_to("PAUSED")["why"]
    run.post("cancel")
    run.comes_to("CANCELLED")
    kept = git(run.root, "ls-tree", "--name-only", kept_ref("p", "t", 1)).split()
    assert {".gitattributes", "a.bin", "y.txt"} <= set(kept)
