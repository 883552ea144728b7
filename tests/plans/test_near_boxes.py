"""What looks like a box and is none."""

from __future__ import annotations

import pytest

from muster.model.errors import BadPlan
from muster.plans.markdown import parse, tick

NEAR_BOXES = {
    "- [] title": "- [ ] title",
    "- [-] title": "- [ ] title",
    "* [x]title": "- [x] title",
    "- [  ] title": "- [ ] title",
    "- [x ] title": "- [x] title",
    "- [ ]\u00a0title": "- [ ] title",
    "-[ ] title": "- [ ] title",
    "1.[x] title": "- [x] title",
    "[ ] title": "- [ ] title",
    "\u2022 [ ] title": "- [ ] title",
    "\u2013 [ ] title": "- [ ] title",
    "- \u2610 title": "- [ ] title",
    "\u2611 title": "- [x] title",
    "  - [  ] title": "- [ ] title",
    "  -[ ] title": "- [ ] title",
}


@pytest.mark.parametrize("between", ["", "\n", "\nText.\n\n"])
@pytest.mark.parametrize("line", NEAR_BOXES)
def test_what_looks_like_a_box_and_is_none_is_told(line: str, between: str) -> None:
    text = f"- [ ] a real one\n{between}{line}\n"
    with pytest.raises(BadPlan) as told:
        parse(text, "plan.md")
    number = text.count("\n")
    assert f"plan.md:{number}: this looks like a box" in told.value.message
    assert f"write '{NEAR_BOXES[line]}'" in told.value.message
    assert tick(text.encode(), ["a-real-one"])[1] == {"a-real-one"}, "the others are ticked all the same"


def test_a_box_without_a_marker_in_a_prompt_is_the_prompts() -> None:
    (task,) = parse("- [ ] a\n  Done when:\n\n  [ ] it is green\n", "plan.md").tasks
    assert "[ ] it is green" in task.description


@pytest.mark.parametrize("line", ["- [a link](x)", "- [x](link)", "- [x][reference]", "text [] here"])
def test_what_only_has_brackets_is_text(line: str) -> None:
    assert len(parse(f"- [ ] a real one\n\n{line}\n", "plan.md").tasks) == 1
