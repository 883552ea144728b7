"""Which tasks would change the same files."""

from __future__ import annotations

import pytest

from muster.model.touches import LIST_CHARS_MAX, PATTERNS_MAX, meeting, overlap, patterns_of


@pytest.mark.parametrize(
    ("one", "other", "meets"),
    [
        ("src/api/**", "src/web/**", False),
        ("src/api/**", "src/api/users.py", True),
        ("src/api", "src/api/users.py", True),
        ("src/api", "src/api2/users.py", False),
        ("src/a.py,docs/*", "src/b.py, docs/x.md", True),
        ("src/a.py", "src/a.py", True),
        ("./src/", "src/a.py", True),
        ("**/*.py", "docs/x.md", True),
        ("src/a*", "src/abc.py", True),
        ("", "src/a.py", False),
    ],
)
def test_two_lists_of_patterns_meet_where_they_may_name_one_file(one: str, other: str, meets: bool) -> None:
    assert overlap(one, other) is overlap(other, one) is meets


def test_what_meets_is_named_as_the_other_one_names_it() -> None:
    assert meeting("docs,src/**", "a.txt,src/x.py,src/y.py") == "src/x.py"
    assert meeting("docs", "src/x.py") == ""


def test_changed_files_stand_for_themselves_and_strange_names_for_all_that_they_might_be() -> None:
    assert patterns_of(["src/x.py", "a.txt"]) == "a.txt,src/x.py"
    assert patterns_of([]) == ""
    for name in ("one,two.txt", " first", "last ", "line\nbreak", "\udcff.txt", "what?.txt", "[a].txt"):
        assert overlap(patterns_of([name]), name.split(",")[0].strip()), name
        assert patterns_of([name]).encode() and "," not in patterns_of([name])


@pytest.mark.parametrize(
    ("paths", "folded"),
    [
        ([f"src/api/v{n}/x.py" for n in range(PATTERNS_MAX + 1)], "src/api"),
        ([f"{n}.txt" for n in range(PATTERNS_MAX + 1)], "*"),
        ([f"out/{n}/{'x' * LIST_CHARS_MAX}" for n in range(3)], "out/0,out/1,out/2"),
    ],
)
def test_many_changed_files_are_told_by_their_folders(paths: list[str], folded: str) -> None:
    assert patterns_of(paths) == folded
    assert all(overlap(folded, path) for path in paths)
