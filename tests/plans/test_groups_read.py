"""Boxes without text of their own that others stand below."""

from __future__ import annotations

import pytest

from muster.model.edits import PlanTask
from muster.model.errors import BadPlan
from muster.plans.markdown import parse
from muster.plans.problems import Problems


def read(text: str) -> dict[str, PlanTask]:
    return {task.key: task for task in parse(text, "plan.md").tasks}


def test_a_group_waits_for_its_tasks_and_a_task_with_a_text_does_not() -> None:
    found = read(
        "- [ ] Outer {#outer}\n  - [ ] Inner {#inner}\n    - [ ] A {#a}\n    - [ ] B {#b}\n  - [ ] C {#c}\n"
        "- [ ] With text {#text}\n  What it is about.\n  - [ ] D {#d}\n- [ ] Alone {#alone}\n"
    )
    groups = {key: task.depends_on for key, task in found.items() if task.is_group}
    assert groups == {"outer": ("inner", "c"), "inner": ("a", "b")}
    assert {
        key: task.depends_on for key, task in found.items() if not task.is_group and task.depends_on
    } == {}
    assert found["d"].parent == "text"


def test_what_a_group_says_holds_for_its_tasks() -> None:
    found = read(
        "---\ncheck: make all\n---\n- [ ] First {#first}\n"
        "- [ ] P1: API {#api after=first agent=claude timeout=5m tags=x}\n"
        "  - [ ] Keys {#keys timeout=1m}\n"
        "  - [ ] Inner {#inner retries=0}\n    - [ ] Users {#users after=keys}\n"
    )
    api, keys, users = found["api"], found["keys"], found["users"]
    assert (keys.agent, keys.timeout_s, keys.priority, keys.tags) == ("claude", 60, 7, ("x",))
    assert (users.agent, users.timeout_s, users.max_retries) == ("claude", 300, 0)
    assert (keys.depends_on, users.depends_on) == (("first",), ("keys", "first"))
    assert (api.depends_on, api.agent, api.timeout_s, api.tags) == (("keys", "inner"), None, None, ("x",))
    assert (api.check_command, keys.check_command) == ("", "make all")


def test_parent_alone_makes_no_group() -> None:
    found = read("- [ ] A {#a}\n- [ ] B {#b parent=a}\n- [ ] C {#c}\n  - [ ] D {#d parent=a}\n")
    assert not any(task.is_group for task in found.values())


@pytest.mark.parametrize(
    ("boxes", "told"), [("xxx", ""), (" xx", ""), ("x x", "a"), ("xx ", "b"), ("   ", "")]
)
def test_a_group_that_is_ticked_before_its_tasks_is_told(boxes: str, told: str) -> None:
    group, one, two = boxes
    doubts = Problems("plan.md")
    text = f"- [{group}] G {{#g}}\n  - [{one}] A {{#a}}\n  - [{two}] B {{#b}}\n"
    assert parse(text, "plan.md", doubts).tasks[0].done == (group == "x"), "a tick is a person's word"
    said = f"plan.md:1:3: this group is ticked, and {told} below it is not: it is done with the last one below it"
    assert doubts.told() == ([said] if told else [])


def test_a_task_that_waits_for_its_own_group_is_told() -> None:
    with pytest.raises(BadPlan, match="these tasks wait for each other: g -> a -> g"):
        read("- [ ] G {#g}\n  - [ ] A {#a after=g}\n")
