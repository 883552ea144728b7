"""What other tools keep, read into plan files: each source beside the plan that is expected of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.errors import BadInput, BadPlan
from muster.plans import importers
from muster.plans.importers.source import Item, Reading, ToolFiles
from muster.plans.importers.writing import written
from muster.plans.markdown import parse
from muster.plans.problems import Problems

SOURCES = Path(__file__).parent / "sources"
FORMS = {"task-master": "task-master", "backlog": "backlog.md", "beads": "beads"}
FORMS |= {"github": "github", "items": "items"}
CASES = sorted(path for path in SOURCES.iterdir() if path.suffix != ".md")
LOST = "\n===== not carried over\n"


def source_of(path: Path) -> ToolFiles:
    files = sorted(path.rglob("*.md")) if path.is_dir() else [path]
    return ToolFiles(path.name, {str(file.relative_to(path.parent)): file.read_bytes() for file in files})


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_a_source_becomes_the_plan_that_is_expected(path: Path) -> None:
    source = source_of(path)
    form, _ = importers.recognised(source)
    assert form == next(form for start, form in FORMS.items() if path.stem.startswith(start))
    imported = importers.read(source, form)
    expected = SOURCES / f"{path.stem}.md"
    told = imported.text + LOST + "".join(f"{line}\n" for line in imported.lost)
    assert told == expected.read_text()
    assert len(parse(imported.text, "plan.md").tasks) == imported.tasks


def test_each_form_has_three_sources() -> None:
    for name in FORMS:
        assert sum(path.stem.startswith(name) for path in CASES) >= 3


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", "# Plan\n- [ ] a\n", '{"name": "package"}', "[1, 2]", "[" * 10_000]
)
def test_what_is_no_source_is_refused(text: str) -> None:
    with pytest.raises(BadPlan, match="not a source that Muster knows"):
        importers.recognised(ToolFiles("x.json", {"x.json": text.encode()}))


def test_a_line_that_is_no_json_is_named() -> None:
    good = '{"id": "a-1", "title": "x", "issue_type": "task"}'
    with pytest.raises(BadPlan, match=r"issues\.jsonl:3: not a JSON object"):
        importers.recognised(
            ToolFiles("issues.jsonl", {"issues.jsonl": f"{good}\n\n<<<<<<< HEAD\n".encode()})
        )


def test_a_tag_of_task_master_is_chosen_and_a_wrong_one_named() -> None:
    data = (SOURCES / "task-master-tagged.json").read_bytes()
    chosen = importers.read(ToolFiles("tasks.json", {"tasks.json": data}, "sync"), "task-master")
    assert (chosen.name, chosen.tasks) == ("sync-tasks", 1)
    with pytest.raises(BadInput, match="no tag 'nope'"):
        importers.read(ToolFiles("tasks.json", {"tasks.json": data}, "nope"), "task-master")


def test_nothing_to_do_says_what_was_left_out() -> None:
    with pytest.raises(BadPlan, match="a-1 x is left out: it is deferred"):
        importers.read(
            ToolFiles("x", {"x": b'{"id": "a-1", "title": "x", "issue_type": "task", "status": "deferred"}'}),
            "beads",
        )


NASTY = st.text(
    alphabet=st.sampled_from("ab -[]x{}#=`~<>!*\n\t\"'\\|:()1.P0é\x00\u2028☐"), max_size=40
) | st.sampled_from(
    [
        "- [ ] box",
        "```\nopen",
        "<!-- open",
        "<pre>\nopen",
        "# head",
        "- [-] near",
        "1. [ ] n",
        "> q\n\n- [ ] x",
        "---",
    ]
)
NAMES = st.sampled_from(["1", "1.1", "2", "é", "", "a b", "T1", "#9"])
ITEMS = st.builds(
    Item,
    id=NAMES,
    title=NASTY,
    text=NASTY,
    done=st.booleans(),
    after=st.lists(NAMES, max_size=2),
    parent=NAMES,
    group=st.booleans(),
    epic=NASTY,
    feature=NASTY,
    fields=st.fixed_dictionaries(
        {}, optional={"tags": st.lists(NASTY.filter(str.strip), max_size=2).map(tuple)}
    ),
)


@given(st.lists(ITEMS, min_size=1, max_size=5))
def test_whatever_a_source_holds_its_plan_has_all_of_its_tasks(items: list[Item]) -> None:
    """No title or text of one opens, hides or becomes another."""
    wanted = [(item.done, bool(item.title.strip())) for item in items]
    imported = written(Reading("A plan", items))
    read = parse(imported.text, "plan.md", Problems("plan.md")).tasks
    assert len(read) == len(wanted) == imported.tasks
    assert sorted(task.key for task in read) == sorted(item.id for item in items)
    assert sorted(task.done for task in read) == sorted(done for done, _ in wanted)
