"""What looks like a box: what is clearly meant is one, and what is doubtful is text.  Both are told."""

from __future__ import annotations

import pytest

from muster.plans import markdown
from muster.plans.files import LocalPlanFiles
from muster.plans.markdown import parse, tick

TASKS = {
    "- [] title": (False, "'[]' is read as a task: write '- [ ] title'"),
    "- [-] title": (False, "'[-]' is read as a task that is not done"),
    "- [~] title": (False, "'[~]' is read as a task that is not done"),
    "- [/] title": (False, "'[/]' is read as a task that is not done"),
    "* [x]title": (True, "'[x]' is read as a task that is done: write '- [x] title'"),
    "- [ ]title": (False, "'[ ]' is read as a task: write '- [ ] title'"),
    "- [  ] title": (False, "'[  ]' is read as a task: write '- [ ] title'"),
    "- [ x] title": (True, "'[ x]' is read as a task that is done: write '- [x] title'"),
    "- [x ] title": (True, "'[x ]' is read as a task that is done: write '- [x] title'"),
    "- [ ]\u00a0title": (False, "'[ ]' is read as a task: write '- [ ] title'"),
    "-[ ] title": (False, "'-[ ]' is read as a task: write '- [ ] title'"),
    "1.[x] title": (True, "'1.[x]' is read as a task that is done: write '- [x] title'"),
    "\u2022 [ ] title": (False, "'\u2022 [ ]' is read as a task: write '- [ ] title'"),
    "\u2013 [ ] title": (False, "'\u2013 [ ]' is read as a task: write '- [ ] title'"),
}
TEXTS = {
    "- [!] title": "- [ ] title",
    "- [>] title": "- [ ] title",
    "- [✓] title": "- [x] title",
    "- \u2610 title": "- [ ] title",
    "[ ] title": "- [ ] title",
    "*[ ] title": "- [ ] title",
    "\u2611 title": "- [x] title",
}


@pytest.mark.parametrize("indent", ["", "  ", "    "])
@pytest.mark.parametrize("between", ["", "\n", "\n  Text.\n\n"])
@pytest.mark.parametrize("line", TASKS)
def test_what_is_clearly_meant_is_a_task_at_every_depth(line: str, between: str, indent: str) -> None:
    text = f"- [ ] a real one\n{'  - [ ] b' + chr(10) if indent == '    ' else ''}{between}{indent}{line}\n"
    document = parse(text, "plan.md")
    done, told = TASKS[line]
    found = document.tasks[-1]
    assert (found.title, found.done) == ("title", done)
    assert document.doubts == (f"plan.md:{text.count(chr(10))}:{_column(line, indent)}: {told}",)
    after, keys = tick(text.encode(), [found.key])
    assert keys == {found.key} and parse(after.decode(), "plan.md").tasks[-1].done
    assert len(after) - len(text.encode()) == (line == "- [] title"), "nothing else is another"


def _column(line: str, indent: str) -> int:
    """Of the box, or of a marker that is none."""
    marker = line.partition(" ")[0]
    return len(indent) + 1 + (0 if marker not in ("-", "*") else 2)


@pytest.mark.parametrize("line", TEXTS)
def test_what_is_doubtful_is_text(line: str) -> None:
    text = f"- [ ] a real one\n\nText.\n\n{line}\n"
    document = parse(text, "plan.md")
    assert [task.title for task in document.tasks] == ["a real one"]
    (told,) = document.doubts
    assert told.startswith("plan.md:5:") and "is read as text" in told and f"write '{TEXTS[line]}'" in told
    assert tick(text.encode(), ["a-real-one"])[1] == {"a-real-one"}, "the others are ticked all the same"


def test_a_box_without_a_marker_in_a_prompt_is_the_prompts() -> None:
    document = parse("- [ ] a\n  Done when:\n\n  [ ] it is green\n", "plan.md")
    assert "[ ] it is green" in document.tasks[0].description and document.doubts == ()


@pytest.mark.parametrize(
    "line", ["- [a link](x)", "- [x](link)", "- [x][reference]", "text [] here", "- []byte"]
)
def test_what_only_has_brackets_is_text(line: str) -> None:
    document = parse(f"- [ ] a real one\n\n{line}\n", "plan.md")
    assert len(document.tasks) == 1 and document.doubts == ()


def test_a_box_in_indented_code_is_text() -> None:
    prompt = "cat >list <<END\n    - [ ] one\n\n    - [ ] two\nEND"
    lines = "".join(f"      {line}\n" if line else "\n" for line in prompt.split("\n"))
    (task,) = parse(f"- [ ] a\n\n  Run this:\n\n{lines}", "plan.md").tasks
    assert task.description.replace("\n    ", "\n").endswith(prompt)


def test_boxes_that_are_aligned_with_the_title_count_with_their_siblings() -> None:
    text = "- [ ] a\n      - [ ] b\n\n      - [ ] c\n"
    assert [task.title for task in parse(text, "plan.md").tasks] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("opens", "what"), [("```sh", "fence"), ("<!-- later", "comment"), ("<pre>", "HTML block")]
)
def test_what_has_no_end_is_told_with_what_it_hides(opens: str, what: str) -> None:
    document = parse(f"- [ ] a\n\n{opens}\n\n- [ ] b\n- [x] c\n", "plan.md")
    assert [task.title for task in document.tasks] == ["a"]
    assert document.doubts == (f"plan.md:3:1: this {what} has no end: 2 boxes below it are read as text",)


def test_files_tick_boxes_with_nothing_between_their_brackets(tmp_path) -> None:
    plan = tmp_path / "plan.md"
    plan.write_bytes("- [] ä {#a}\n- [ ] b {#b}\n- [] c {#c}\n- [  ] d {#d}\n".encode())
    files = LocalPlanFiles()
    assert files.tick(str(plan), {"a", "b", "d"}) == {"a", "b", "d"}
    assert plan.read_text() == "- [x] ä {#a}\n- [x] b {#b}\n- [] c {#c}\n- [x ] d {#d}\n"
    assert files.tick(str(plan), {"c"}, {"a", "d"}) == {"a", "c", "d"}
    assert plan.read_text() == "- [ ] ä {#a}\n- [x] b {#b}\n- [x] c {#c}\n- [  ] d {#d}\n"
    assert markdown.boxes(plan.read_bytes(), "plan.md").keys() == {"a", "b", "c", "d"}
