"""Which tasks would change the same files."""

from __future__ import annotations

import pytest

from muster.model.touches import overlap


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
