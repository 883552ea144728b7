"""What a plan's tasks are called: ids, codes, headings and titles."""

from __future__ import annotations

import pytest

from muster.model.edits import PlanTask
from muster.model.errors import BadPlan
from muster.plans.markdown import parse


def tasks(text: str) -> list[PlanTask]:
    return list(parse(text, "plan.md").tasks)


def only(text: str) -> PlanTask:
    (task,) = tasks(text)
    return task


def problems(text: str) -> list[str]:
    with pytest.raises(BadPlan) as caught:
        parse(text, "plan.md")
    return caught.value.message.split("\n")


def test_keys_are_the_id_else_the_code_else_the_headings_and_title():
    text = (
        "# Plan\n- [ ] Top Level\n## The API\n### v2\n#### Deep\n"
        "- [ ] Add `x`, y!\n- [ ] T001.002: Code\n- [ ] T9: Id wins {#my/id-1.2_3}\n- [ ] ABC-12: Jira\n"
    )
    assert [(task.key, task.title) for task in tasks(text)] == [
        ("top-level", "Top Level"),
        ("the-api/v2/deep/add-x-y", "Add `x`, y!"),
        ("T001.002", "Code"),
        ("my/id-1.2_3", "T9: Id wins"),
        ("ABC-12", "Jira"),
    ]


def test_ticking_and_unicode_composition_do_not_change_a_key():
    assert only("- [ ] Ca\u0301fe").key == only("- [x] C\u00e1fe").key


def keys(text: str) -> list[str]:
    return [task.key for task in tasks(text)]


def test_equal_titles_get_a_number_in_the_files_order():
    assert keys("# T\n## A\n- [ ] Test\n## B\n- [ ] Test\n") == ["a/test", "b/test"]
    assert keys("## A\n- [ ] Test\n\n- [x] test!\n- [ ] Test 2\n- [ ] TEST\n") == [
        "a/test",
        "a/test-2",
        "a/test-2-2",
        "a/test-3",
    ]
    assert keys("- [ ] Test\n- [ ] Test\n- [ ] Other {#test-2}\n- [ ] X {#test}\n") == [
        "test-3",
        "test-4",
        "test-2",
        "test",
    ]


def test_boxes_above_are_part_of_a_key():
    text = "## S\n- [ ] API\n  - [ ] Write tests\n- [ ] UI {#ui}\n  - [ ] Write tests\n    - [ ] Deep\n"
    assert keys(f"{text}- [ ] Top\n") == [
        "s/api",
        "s/api/write-tests",
        "ui",
        "ui/write-tests",
        "ui/write-tests/deep",
        "s/top",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [("C", "C++"), ("C", "C#"), ("🚀", "🎉"), ("परीक्षण लिखें", "परीक्षा लिखो"), ("ทดสอบ", "ทดสุบ"), ("นำ", "นา")],
)
def test_titles_that_differ_in_signs_and_marks_have_different_keys(one, other):
    assert len({key.rpartition("-2")[0] or key for key in keys(f"- [ ] {one}\n- [ ] {other}\n")}) == 2


def test_equal_ids_are_a_problem_that_names_both_lines():
    assert problems("- [ ] A {#x}\n- [ ] B\n- [ ] C {#x}\n") == [
        "plan.md:3: 'x' is also the id of line 1: rename one of them"
    ]


def test_equal_codes_get_a_number_too():
    assert keys("- [ ] T1: A\n- [ ] T1: B\n") == ["T1", "T1-2"]


@pytest.mark.parametrize(
    "code", ["HTTP2", "Step1", "P3", "S3", "v1.2", "Python3.11", "SHA-256", "Phase-2", "IPv6"]
)
def test_what_looks_like_a_code_is_a_word_unless_it_is_used_as_an_id(code):
    assert only(f"- [ ] {code}: Push it").title == f"{code}: Push it"
    task, _ = tasks(f"- [ ] {code}: Push it\n- [ ] Then {{after={code}}}\n")
    assert (task.key, task.title) == (code, "Push it")


@pytest.mark.parametrize("code", ["T001", "T001.002", "T1", "ABC-12", "E1.F2.T3", "US-01", "req007"])
def test_codes_that_are_ids_by_their_look(code):
    assert (only(f"- [ ] {code}: Do it").key, only(f"- [ ] {code}: Do it").title) == (code, "Do it")


def test_a_name_that_two_equal_titles_have_is_ambiguous():
    (problem,) = problems("- [ ] Test\n- [ ] Test\n- [ ] All {after=test}\n")
    assert problem == "plan.md:3: after=test may be any of lines 1 and 2: name one by its {#id}"
    assert tasks("- [ ] Test\n- [ ] Test\n- [ ] All {after=test-2}\n")[2].depends_on == ("test-2",)
