"""`muster plan ids`: ids are written, and nothing else changes."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.errors import BadPlan
from muster.plans.ids import with_ids
from muster.plans.markdown import parse

PLAN = (
    "\ufeff# Plan\r\n## API\r\n- [ ] REST endpoints  \r\n  prompt\r\n  - [x] Write tests\r\n- [ ] Write tests"
    " {after=api/rest-endpoints/write-tests}\r\n- [ ] T001: Coded\r\n- [ ] Named {#own}\r\n- [ ] परीक्षण लिखें\r\n"
    "- [ ] 🚀\r\n- [ ] Use ${VAR}"
)


def test_ids_are_written_and_every_other_byte_stays():
    written, new = with_ids(PLAN.encode(), "plan.md")
    text = written.decode()
    assert [(one.line, one.id) for one in new] == [
        (3, "rest-endpoints"),
        (5, "write-tests"),
        (6, "write-tests-2"),
        (9, "परीक्षण-लिखें"),
        (10, "task"),
        (11, "use-var"),
    ]
    assert re.sub(r" ?\{#(?!own)[^ }]+\}|#write-tests-2 ", "", text) == PLAN
    assert "- [ ] REST endpoints {#rest-endpoints}  \r\n" in text
    assert "- [ ] Write tests {#write-tests-2 after=api/rest-endpoints/write-tests}" in text
    tasks = parse(text, "plan.md").tasks
    assert [task.key for task in tasks] == [
        "rest-endpoints",
        "write-tests",
        "write-tests-2",
        "T001",
        "own",
        "परीक्षण-लिखें",
        "task",
        "use-var",
    ]
    assert tasks[2].depends_on == ("write-tests",)
    assert with_ids(written, "plan.md") == (written, [])


def test_an_id_is_no_word_of_a_page_template():
    written, _ = with_ids(b"# P\n\n- [ ] Unless\n- [ ] If\n- [ ] Else\n", "plan.md")
    assert written.decode() == "# P\n\n- [ ] Unless {#unless-2}\n- [ ] If {#if-2}\n- [ ] Else {#else}\n"
    assert [task.key for task in parse(written.decode(), "plan.md").tasks] == ["unless-2", "if-2", "else"]


def test_ten_thousand_ids_are_written():
    text = "# Big\n" + "".join(f"- [ ] Task number {number}\n" for number in range(10_000))
    began = time.process_time()
    assert len(with_ids(text.encode(), "plan.md")[1]) == 10_000
    assert time.process_time() - began < 5, "about 0.2 s on an idle core"


TITLES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=12)


@given(
    st.lists(st.tuples(TITLES, st.booleans(), st.sampled_from(["", " {priority=3}", " {#own}"])), max_size=6)
)
def test_whatever_the_titles_are_the_tasks_stay_the_same(boxes):
    lines = [f"{'  ' * inner * bool(at)}- [ ] {title}{end}" for at, (title, inner, end) in enumerate(boxes)]
    text = "# T\n\n" + "\n".join(lines) + "\n"
    try:
        before = parse(text, "p.md").tasks
    except BadPlan:
        return
    written, new = with_ids(text.encode(), "p.md")
    after = parse(written.decode(), "p.md").tasks
    assert [(task.title, task.priority, task.line) for task in after] == [
        (task.title, task.priority, task.line) for task in before
    ]
    assert {one.id for one in new} <= {task.key for task in after}
    assert with_ids(written, "p.md")[1] == []


def test_a_plan_that_cannot_be_read_is_left_alone():
    with pytest.raises(BadPlan, match="unknown attribute"):
        with_ids(b"- [ ] A {#a oops=1}\n", "plan.md")
