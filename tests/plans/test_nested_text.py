"""Whose text it is that stands between boxes in boxes."""

from __future__ import annotations

import pytest

from muster.plans.markdown import parse


@pytest.mark.parametrize(
    ("text", "parent_text", "child_text"),
    [
        ("- [ ] Parent\n  - [ ] Child\n  after\n", "after", ""),
        ("- [ ] Parent\n  - [ ] Child\n    inner\n  after\n  and more\n", "after\nand more", "inner"),
        ("- [ ] Parent\n  - [ ] Child\n   inner\n", "", "inner"),
        ("- [ ] Parent\n  before\n  - [ ] Child\n    - step\n  after\n", "before\n\nafter", "- step"),
        ("- [ ] Parent\n  1. [ ] Child\n     inner\n  after\n", "after", "inner"),
    ],
)
def test_text_after_a_nested_task_belongs_to_whom_it_is_indented_for(text, parent_text, child_text):
    parent, child = parse(text, "plan.md").tasks
    assert (parent.description, child.description) == (parent_text, child_text)


def test_text_that_no_other_task_can_have_goes_on_with_the_task_above():
    assert parse("- [ ] A\n  one\ntwo\n", "plan.md").tasks[0].description == "one\ntwo"
