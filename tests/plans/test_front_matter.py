"""What a plan says of all its tasks, in its front matter."""

from __future__ import annotations

import pytest

from muster.model.errors import BadPlan
from muster.plans.markdown import parse, tick


def fields(matter: str) -> list[tuple[str, str]]:
    text = f'---\n{matter}\n---\n# P\n- [ ] One\n- [ ] Two {{check="make two"}}\n'
    return [(task.check_command, task.review) for task in parse(text, "p.md").tasks]


def test_a_check_and_a_review_hold_for_tasks_that_say_nothing_else() -> None:
    assert fields('title: x\ncheck: make test\nreview: "person"') == [
        ("make test", "person"),
        ("make two", "person"),
    ]


def test_the_rest_is_for_other_programs() -> None:
    assert fields("tags: [a, b]\norder: 3") == [("", ""), ("make two", "")]


@pytest.mark.parametrize(
    ("matter", "says"),
    [
        ("check: [make]", "put it in quotes"),
        ("check: 3", "not a text"),
        ("check: {", "no YAML"),
        ("date: 2026-13-45", "no YAML.*month must be in"),
        ("date: !!timestamp soon", "no YAML"),
        ("size: 0x_", "no YAML"),
        ("x: " + "[" * 5000, "no YAML.*recursion"),
    ],
)
def test_what_is_not_understood_is_said(matter: str, says: str) -> None:
    with pytest.raises(BadPlan, match=says):
        fields(matter)


def test_boxes_are_ticked_whatever_the_front_matter_says() -> None:
    data = b"---\ncheck: {\n---\n- [ ] One {#one}\n"
    assert tick(data, ["one"])[0] == data.replace(b"[ ]", b"[x]")
