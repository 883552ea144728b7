"""S18: what a person or an agent has told git of its taste bends nothing that is published or removed."""

from __future__ import annotations

import pytest
from repositories import git, publish, tree

from muster.model.refs import plan_branch
from muster.worker.publishing import SentBack

BRANCH = plan_branch("plan")


def test_a_tree_stays_for_files_that_a_person_does_not_list(made, repository, home):
    git(home, "config", "status.showUntrackedFiles", "no")
    git(made.cwd, "init", "--quiet", "nested")
    (made.cwd / "nested" / "x").write_text("only here")
    assert "files that git does not take in" in made.put_away(lambda: "")
    assert (made.cwd / "nested" / "x").exists()


def test_changes_are_seen_where_git_is_to_pass_over_what_it_has_checked_out(repository, home):
    git(home, "config", "core.ignoreStat", "true")
    made = tree(repository)
    made.prepare()
    (made.cwd / "a.txt").write_text("changed\n")
    publish(made)
    assert git(home, "show", f"{BRANCH}:a.txt") == "changed"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("diff.orderFile", "/no/such/file"),
        ("trailer.separators", "="),
        ("i18n.commitEncoding", "ISO-8859-1"),
        ("i18n.logOutputEncoding", "ISO-8859-1"),
        ("merge.verifySignatures", "true"),
    ],
)
def test_others_work_is_merged_and_named_whatever_a_person_has_set(repository, home, key, value):
    git(home, "config", key, value)
    first, second = tree(repository, "x", title="Größe"), tree(repository, "y", title="Größer")
    for each in (first, second):
        each.prepare()
        (each.cwd / f"{each.key}.txt").write_text("x")
    publish(first)
    assert git(home, "rev-list", "--count", f"main..{BRANCH}") == "1", "it knows its own commit again"
    second.keep()
    again = tree(repository, "y", 2, title="Größer")
    assert "is merged into it" in again.prepare()
    publish(again)
    assert git(home, "log", "-1", "--encoding=UTF-8", "--format=%s", BRANCH) == "Größer"


def test_a_recorded_resolution_decides_nothing_for_an_agent(repository, home):
    git(home, "config", "rerere.enabled", "true")
    git(home, "config", "rerere.autoupdate", "true")
    git(home, "commit", "--quiet", "--all", "-m", "now")
    for name, text in (("one", "one\n"), ("two", "two\n")):
        git(home, "switch", "--quiet", "-c", name, "main")
        (home / "a.txt").write_text(text)
        git(home, "commit", "--quiet", "--all", "-m", name)
    with pytest.raises(AssertionError):
        git(home, "merge", "one")
    (home / "a.txt").write_text("what a person took then\n")
    git(home, "commit", "--quiet", "--all", "-m", "both")
    git(home, "switch", "--quiet", "main")
    first, second = tree(repository, "x"), tree(repository, "y")
    for each, text in ((first, "one\n"), (second, "two\n")):
        each.prepare()
        (each.cwd / "a.txt").write_text(text)
    publish(first)
    second.keep()
    again = tree(repository, "y", 2)
    assert "conflicts in a.txt" in again.prepare()
    with pytest.raises(SentBack):
        publish(again)
