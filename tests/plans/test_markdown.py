"""What counts as a task, what it is called, and what is wrong with it."""

from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from muster.model.edits import PlanTask
from muster.model.errors import BadPlan
from muster.plans.markdown import parse


def tasks(text: str) -> list[PlanTask]:
    return list(parse(text, "plan.md").tasks)


def titles(text: str) -> list[str]:
    return [task.title for task in tasks(text)]


def only(text: str) -> PlanTask:
    (task,) = tasks(text)
    return task


def problems(text: str) -> list[str]:
    with pytest.raises(BadPlan) as caught:
        parse(text, "plan.md")
    assert caught.value.hint
    return caught.value.message.split("\n")


# Headings and names


def test_the_only_h1_is_the_title_and_the_next_two_levels_are_epic_and_feature():
    document = parse("# Billing v2\n## API\n### Keys\n- [ ] A\n### Rest\n- [ ] B\n## Docs\n- [ ] C\n", "x.md")
    assert (document.title, document.name) == ("Billing v2", "billing-v2")
    assert [(task.epic, task.feature) for task in document.tasks] == [
        ("API", "Keys"),
        ("API", "Rest"),
        ("Docs", ""),
    ]


def test_a_skipped_level_does_not_hide_epics():
    assert only("# T\n### Epic\n##### Feature\n- [ ] A").epic == "Epic"
    assert only("# T\n### Epic\n##### Feature\n- [ ] A").feature == "Feature"


def test_several_h1_are_epics_and_the_plan_has_no_title():
    document = parse("# One\n## F\n- [ ] A\n# Two\n- [ ] B\n", "docs/My Plan.md")
    assert (document.title, document.name) == ("", "my-plan")
    assert [(task.epic, task.feature) for task in document.tasks] == [("One", "F"), ("Two", "")]


@pytest.mark.parametrize(
    ("text", "file", "name"),
    [
        ("# Größe & Ärger!\n- [ ] a", "x.md", "größe-ärger"),
        ("# 🚀\n- [ ] a", "next steps.md", "next-steps"),
        ("- [ ] a", "🚀.md", "plan"),
        ("- [ ] a", "", "plan"),
    ],
)
def test_a_plan_always_has_a_name(text, file, name):
    assert parse(text, file).name == name


def test_underlined_headings_count_and_yaml_at_the_top_does_not():
    text = "---\ntags: x\n---\nThe\nPlan\n===\n\nEpic\n---\n- [ ] A\n---\n"
    document = parse(text, "p.md")
    assert document.title == "The Plan"
    assert document.tasks[0].epic == "Epic"


def test_closing_marks_of_a_heading_are_not_its_text():
    assert only("# T\n## C# ##\n- [ ] A").epic == "C#"


def test_no_heading_inside_code_or_an_item():
    document = parse("# T\n```\n# no\n```\n- [ ] A\n\n  # not either\n", "p.md")
    assert document.title == "T"
    assert document.tasks[0].description == "# not either"


# What is a box


@pytest.mark.parametrize("bullet", ["-", "*", "+", "1.", "12)"])
@pytest.mark.parametrize(("mark", "done"), [(" ", False), ("x", True), ("X", True)])
def test_every_bullet_and_mark(bullet, mark, done):
    task = only(f"intro\n{bullet} [{mark}] Title\n")
    assert (task.title, task.done, task.line) == ("Title", done, 2)


@pytest.mark.parametrize(
    "text",
    [
        "```\n- [ ] no\n```",
        "~~~~ md\n- [ ] no\n~~~\n- [ ] no\n~~~~~",
        "```\n- [ ] no\n~~~\n``` x\n- [ ] no\n```",
        "````\n```\n- [ ] no\n```\n````",
        "   ```\n- [ ] no\n   ```",
        "```\n- [ ] no\n    ```\n- [ ] no\n```",
        "- plain\n  ```\n  - [ ] no\n  ```",
        "- ```\n  - [ ] no\n  ```",
        "1. plain\n\n   ~~~\n   - [ ] no\n\n   - [ ] no\n   ~~~",
        "    - [ ] no",
        "\t- [ ] no",
        "text\n    - [ ] no",
        "-     [ ] no",
        "<!--\n- [ ] no\n\n- [ ] no\n-->",
        "<!-- - [ ] no -->",
        "- plain\n\n  <!--\n  - [ ] no\n  -->",
        "<pre>\n- [ ] no\n</pre>",
        "> - [ ] no\n\n| a | b |\n|---|---|\n| - [ ] no | [ ] no |",
        "- [y] no\n\\- [ ] no\n- \\[ ] no\n- []byte\n`[ ]` no\n\n[1] no [ ]",
    ],
)
def test_boxes_that_are_text(text):
    assert titles(text + "\n\n- [ ] Yes\n") == ["Yes"]


@pytest.mark.parametrize(
    "text",
    [
        "``` a`b\n- [ ] Yes",  # an info string with a backtick opens no fence
        "``\n- [ ] Yes",
        "```\ncode\n```\n- [ ] Yes",
        "- plain\n  ```\n  code\n- [ ] Yes",  # the fence ends with its item
        "- plain\n\n  <!-- open\n- [ ] Yes",
        "<!-- one line -->\n- [ ] Yes",
        "- plain\n  - deeper\n    - [ ] Yes",
        "- - [ ] Yes",
        "- plain\n      - [ ] Yes",
        "text\n2. [ ] Yes",
        "> quote\n- [ ] Yes",
        "   - [ ] Yes",
        "-\t[ ] Yes",
        "- [ ]\tYes",
        "---\n- [ ] Yes\n---",
        "* * *\n- [ ] Yes",
        "\ufeff- [ ] Yes",
        "a\r- [ ] Yes\r",
        "a\u2028b\n- [ ] Yes",
    ],
)
def test_boxes_that_count(text):
    assert titles(text) == ["Yes"]


def test_lines_are_counted_with_every_line_end():
    assert [task.line for task in tasks("# T\r\n\r- [ ] A\n- [ ] B\r\n- [ ] C")] == [3, 4, 5]


# Body


def test_the_body_is_dedented_and_keeps_its_inner_blank_lines_and_fences():
    text = "- [ ] A\n\n  One\n\n  ```py\n  def f():\n\n      - [ ] text\n  ```\n  - nested\n    - more\n"
    first, second = tasks(f"{text}\n\n- [ ] B\n")
    assert first.description == "One\n\n```py\ndef f():\n\n    - [ ] text\n```\n- nested\n  - more"
    assert second.description == ""


def test_lazy_lines_join_the_body_and_later_ones_do_not():
    assert only("- [ ] A\n  one\nlazy\n\nnot mine\n").description == "one\nlazy"


def test_a_nested_task_is_its_own_and_not_part_of_its_parent():
    text = "- [ ] Parent\n  before\n  - [ ] Child\n    inner\n    - [x] Grandchild\n\n  after\n- [ ] Next\n"
    found = {task.title: task.description for task in tasks(text)}
    assert found == {"Parent": "before\n\nafter", "Child": "inner", "Grandchild": "", "Next": ""}


def test_a_task_beneath_a_plain_item_of_a_body_is_a_task():
    parent, child = tasks("- [ ] Parent\n  - steps\n    - [ ] Child\n      inner\n    tail\n\n    more\n")
    assert (parent.description, child.description) == ("- steps\n\n  tail\n\n  more", "inner")


def test_the_body_of_a_numbered_task_stands_further_in():
    assert only("10. [ ] A\n\n    body\n      code\n\n  not mine").description == "body\n  code"


def test_a_body_that_is_aligned_with_the_title_is_dedented():
    assert only("- [ ] A\n      ```\n      - [ ] text\n      ```\n      more").description == (
        "```\n- [ ] text\n```\nmore"
    )


def test_tabs_in_a_body_stay_tabs():
    assert only("- [ ] A\n\t```\n\tall:\n\t\tmake\n\t```\n").description == "```\nall:\n\tmake\n```"


def test_a_heading_or_a_fence_at_the_margin_ends_the_body():
    assert only("- [ ] A\n  b\n```\nnot mine\n```").description == "b"
    assert only("- [ ] A\n  b\n# H\n  not mine").description == "b"


# Attributes


def test_all_attributes():
    first, _ = tasks(
        '- [ ] Ship it {#ship after=a agent="claude" priority=P1 timeout=2h retries=0}  \n- [ ] A {#a}\n'
    )
    assert (first.key, first.title, first.depends_on, first.agent) == ("ship", "Ship it", ("a",), "claude")
    assert (first.priority, first.timeout_s, first.max_retries) == (7, 7200, 0)


def test_without_attributes_the_defaults_stand():
    task = only("- [ ] A")
    assert (task.agent, task.priority, task.depends_on) == (None, 5, ())
    assert (task.timeout_s, task.max_retries) == (None, None)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("365d", 31536000)],
)
def test_timeouts(value, seconds):
    assert only(f"- [ ] A {{timeout={value}}}").timeout_s == seconds


@pytest.mark.parametrize(("value", "number"), [("1", 1), ("10", 10), ("P0", 10), ("p1", 7), ("P2", 4)])
def test_priorities(value, number):
    assert only(f"- [ ] A {{priority={value}}}").priority == number


@pytest.mark.parametrize(("token", "number"), [("[P0]", 10), ("(P1)", 7), ("P2:", 4)])
def test_a_leading_priority_is_not_part_of_the_title(token, number):
    task = only(f"- [ ] {token} Fix it")
    assert (task.title, task.priority, task.key) == ("Fix it", number, "fix-it")
    task = only(f"- [ ] T1: {token} Fix it")
    assert (task.title, task.priority, task.key) == ("Fix it", number, "T1")


@pytest.mark.parametrize(
    "title",
    [
        "Drop {foo}",
        'Send {"a": 1}',
        'Send {"a=b": 1}',
        "Use {x} twice",
        "Test {a == b}",
        "Test {a==b}",
        "Write `{#id}`",
        "Write \\{#id}",
        "Set {#a} here",
        "f({a=1}) works",
        "Close }",
        "{}",
        "Fix P0 bug",
        "Fix [P0](link)",
        "Bug in P0",
    ],
)
def test_what_looks_like_attributes_and_is_not(title):
    assert only(f"- [ ] {title}").title == title


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        ("{#a colour=red}", "unknown attribute 'colour'"),
        ("{prioirty=3}", "unknown attribute 'prioirty'; did you mean 'priority'?"),
        ("{#a agent=x agent=y}", "attribute 'agent' is given twice"),
        ("{#a #b}", "attribute '#' is given twice"),
        ("{#-a}", "{#-a} is no id"),
        ("{#}", "{#} is no id"),
        ("{#a b}", "'b' is no attribute"),
        ("{after=a, b}", "after=a, is wrong"),
        ("{agent=}", "agent= is wrong: a name of 1 to 200"),
        ('{agent=""}', "agent= is wrong"),
        ("{priority=0}", "priority=0 is wrong: a number from 1 to 10"),
        ("{priority=11}", "priority=11 is wrong"),
        ("{priority=P3}", "priority=P3 is wrong"),
        ("{priority=٣}", "priority=٣ is wrong"),
        ("{timeout=0}", "timeout=0 is wrong: a duration"),
        ("{timeout=2w}", "timeout=2w is wrong"),
        ("{timeout=367d}", "timeout=367d is wrong"),
        ("{retries=-1}", "retries=-1 is wrong: a number from 0"),
        ("{retries=many}", "retries=many is wrong"),
        ('{agent="x}', 'agent="x is wrong'),
    ],
)
def test_wrong_attributes_are_named_with_their_line(group, problem):
    found = problems(f"# T\n\n- [ ] A {group}\n- [ ] B {{#known}}\n")
    assert found[0].startswith("plan.md:3: ")
    assert problem in found[0]


def test_a_priority_given_in_two_ways_is_a_problem():
    assert problems("- [ ] P0: A {priority=3}") == ["plan.md:1: the priority is given twice"]


@pytest.mark.parametrize("text", ["- [ ]", "- [ ] {#a}", "- [ ] T1:", "- [ ] P0:"])
def test_a_task_needs_a_title(text):
    assert problems(text) == ["plan.md:1: the task has no title"]


# Dependencies


def test_after_names_ids_codes_and_derived_keys():
    text = (
        "# T\n## S\n- [ ] A {#a}\n- [ ] T1: B\n- [ ] See me\n- [ ] T2: C {#c}\n"
        '- [ ] All {after=a,T1,s/see-me,T2,s/a,a}\n- [ ] Quoted {after="a, T1"}\n'
    )
    *_, every, in_quotes = tasks(text)
    assert every.depends_on == ("a", "T1", "s/see-me", "c")
    assert in_quotes.depends_on == ("a", "T1")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("modle", "; did you mean 'model'?"), ("rest-api", "; did you mean 's/rest-api'?"), ("qqq", "")],
)
def test_an_unknown_dependency_is_a_problem(name, hint):
    text = f"# T\n## S\n- [ ] A {{#model}}\n- [ ] Rest API\n- [ ] B {{#b after={name}}}\n"
    assert problems(text) == [f"plan.md:5: after={name}: no such task in this plan{hint}"]


def test_a_dependency_that_may_be_either_of_two_tasks_is_a_problem():
    (problem,) = problems("- [ ] T1: A {#a}\n- [ ] T1: B {#b}\n- [ ] C {after=T1}\n")
    assert problem == "plan.md:3: after=T1 may be any of lines 1 and 2: name one by its {#id}"


def test_a_task_cannot_wait_for_itself():
    assert problems("- [ ] A {#a after=a}") == ["plan.md:1: the task waits for itself: a -> a"]


def test_cycles_are_named():
    text = "- [ ] R {#r after=c}\n- [ ] A {#a after=b}\n- [ ] B {#b after=c}\n- [ ] C {#c after=a}\n"
    assert problems(text) == ["plan.md:2: these tasks wait for each other: a -> b -> c -> a"]


def test_two_cycles_are_both_named_and_a_diamond_is_none():
    text = "- [ ] A {#a after=b}\n- [ ] B {#b after=a}\n- [ ] C {#c after=d,a}\n- [ ] D {#d after=c}\n"
    assert [problem.split(": ")[-1] for problem in problems(text)] == ["a -> b -> a", "c -> d -> c"]
    diamond = "- [ ] A {#a after=b,c}\n- [ ] B {#b after=d}\n- [ ] C {#c after=d}\n- [ ] D {#d}\n"
    assert len(tasks(diamond)) == 4


def test_a_long_cycle_is_cut_in_the_middle():
    count = 5000
    text = "".join(f"- [ ] T {{#t{n} after=t{(n + 1) % count}}}\n" for n in range(count))
    (problem,) = problems(text)
    assert problem.startswith("plan.md:1: these tasks wait for each other: t0 -> t1 -> ")
    assert problem.endswith("-> t4999 -> t0")
    assert len(problem) < 300


# Errors


def test_all_problems_of_a_file_are_told_at_once_in_order():
    text = "- [ ] A {#a after=none}\n- [ ] B {#b oops=1}\n- [ ] A2 {#a}\n"
    assert [problem.split(": ")[0] for problem in problems(text)] == ["plan.md:1", "plan.md:2", "plan.md:3"]


def test_twenty_problems_are_shown_and_the_rest_counted():
    found = problems("".join(f"- [ ] T{n} {{after=none{n}}}\n" for n in range(25)))
    assert len(found) == 21
    assert found[-1] == "and 5 more"


@pytest.mark.parametrize("text", ["", "\ufeff", "# Title\n", "- plain\n", "    - [ ] code"])
def test_an_empty_plan_shows_what_a_task_looks_like(text):
    with pytest.raises(BadPlan, match="the plan has no tasks") as caught:
        parse(text, "plan.md")
    assert "- [ ] " in caught.value.hint


@pytest.mark.parametrize("char", ["\0", "\x0b", "\x1b", "\x7f", "\x85", "\ud800"])
def test_control_characters_are_refused_with_their_line(char):
    (problem,) = problems(f"- [ ] A\r\n\r\n  ab{char}\n")
    assert problem.startswith(f"plan.md:3: control character U+{ord(char):04X} at column 5")


BLOCK_MARKS = ["- [ ] ", "- ", "1. ", "[x] ", "```", "~~~", "# ", "## ", "---", "===", "<!--", "-->", "> "]
INLINE_MARKS = ["{#a", "}", " after=", "a", "b,", "T1: ", "P0: ", '"', "=", "`", "\ufeff", "é", "\0"]
FRAGMENTS = st.sampled_from([*BLOCK_MARKS, *INLINE_MARKS, "\n", "\r\n", "\r", "  ", "    ", "\t"])


@settings(deadline=None)
@given(st.one_of(st.text(), st.lists(FRAGMENTS, max_size=40).map("".join)))
@example("- [ ] \ud800")
@example("+ " * 40 + "[ ] a")
def test_any_text_is_a_plan_or_a_bad_plan(text):
    try:
        document = parse(text, "plan.md")
    except BadPlan as error:
        assert error.message.startswith("plan.md:")
        assert error.hint
    else:
        assert document.name
        assert len({task.key for task in document.tasks}) == len(document.tasks) > 0


# Size

CPU_S_MAX = 30
"""Where each of the 400,000 characters were looked at from each other, it would be hours."""


def cpu_s(text: str) -> float:
    start_s = time.process_time()
    with suppress(BadPlan):
        parse(text, "plan.md")
    return time.process_time() - start_s


def test_ten_thousand_tasks_are_read():
    text = (
        "# Big\n"
        + "".join(
            (f"## Epic {number // 100}\n" if number % 100 == 0 else "")
            + f"- [ ] Task number {number} {{#t{number} after=t{max(0, number - 1)} agent=claude}}\n"
            + f"  Do part {number}:\n\n  ```sh\n  make part\n  ```\n\n"
            for number in range(1, 10_000)
        )
        + "- [ ] Root {#t0}\n"
    )
    assert len(tasks(text)) == 10_000


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"- [ ] T{n} {{after=none{n}}}\n" for n in range(10_000)),
        "- [ ] same\n" * 10_000,
        "+ " * 200_000 + "x",
        "- " * 200_000 + "x",
        "- [ ] " + "{#a=" * 100_000,
        "- [ ] " + "{#" + " a=1" * 100_000 + "}",
        "- [ ] " + " " * 400_000 + "x",
        "# " + "# " * 200_000 + "x",
        "`" * 400_000,
        "<!--" * 100_000,
        "- [ ] a\n" + "  x\n" * 100_000,
        "".join(" " * 2 * n + "- [ ] a\n" for n in range(600)),
        "\0\n" * 100_000,
    ],
    ids=range(13),
)
def test_hostile_text_costs_no_more_than_its_size(text):
    assert cpu_s(text) < CPU_S_MAX
