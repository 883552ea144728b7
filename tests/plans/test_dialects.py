"""Plans as other tools write them: each file beside what it is read as."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.model.edits import PlanDocument, PlanTask
from muster.model.errors import BadPlan
from muster.plans.dialects import DIALECTS
from muster.plans.dialects.base import Dialect
from muster.plans.dialects.top import FileTop
from muster.plans.dialects.words import Waits
from muster.plans.importers import IMPORTERS
from muster.plans.markdown import parse, tick
from muster.plans.problems import Problems

FOLDER = Path(__file__).parent / "dialects"
PLANS = sorted(FOLDER.glob("*.md"))
READ = [dialect.name for dialect in DIALECTS if not dialect.refusal]


def told(document: PlanDocument, doubts: Problems) -> str:
    """A row a task, as the files beside the plans have them."""
    rows = [("dialect", document.dialect or "none", document.dialect_order or "-")]
    rows += [
        (
            task.key,
            task.title,
            task.parent or "-",
            ",".join(task.depends_on) or "-",
            " ".join(_more(task)) or "-",
        )
        for task in document.tasks
    ]
    rows += [("!", line) for line in doubts.told()]
    return "".join("\t".join(row) + "\n" for row in rows)


def _more(task: PlanTask) -> list[str]:
    flags = [name for name in ("done", "beside", "is_group") if getattr(task, name, False)]
    flags += ["text"] if task.description else []
    fields = {"priority": 5, "tags": (), "metadata": {}, "not_before_ms": None}
    values = {name: getattr(task, name) for name, usual in fields.items() if getattr(task, name) != usual}
    return flags + [f"{name}={_short(value)}" for name, value in values.items()]


def _short(value: object) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}:{one}" for name, one in value.items())
    return ",".join(value) if isinstance(value, tuple) else str(value)


def dialect_of(path: Path) -> str:
    return next((name for name in READ if path.stem.startswith(name)), "")


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dates without a zone are local."""
    monkeypatch.setenv("TZ", "UTC")


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_plan_is_read_as_its_tool_means_it(path: Path) -> None:
    doubts = Problems(path.name)
    document = parse(path.read_text("utf-8"), path.name, doubts)
    assert told(document, doubts) == path.with_suffix(".tsv").read_text("utf-8")


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_plan_is_recognised_as_its_own_dialect_and_no_other(path: Path) -> None:
    look = FileTop(path.read_text("utf-8"), path.name)
    found = [dialect.name for dialect in DIALECTS if dialect.recognise(look)]
    assert found == ([dialect_of(path)] if not path.stem.startswith("none") else [])


def test_each_dialect_has_three_plans() -> None:
    assert READ
    for name in (*READ, "none"):
        assert sum(path.stem.startswith(name) for path in PLANS) >= 3, name


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_ticking_changes_one_byte_a_box(path: Path) -> None:
    data = path.read_bytes()
    tasks = parse(data.decode(), path.name, Problems(path.name)).tasks
    for task in tasks:
        new, ticked = tick(data, {task.key})
        assert ticked == {task.key}
        changed = [(old, now) for old, now in zip(data, new, strict=True) if old != now]
        assert changed == [] if task.done else [now for _, now in changed] == [ord("x")]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("Build it (depends on T012, T013 and T015)", "T012 T013 T015"),
        ("Build it; **Depends on**: T012-T014", "T012 T013 T014"),
        ("Blocked by T012 to T013", "T012 T013"),
        ("after tasks T001 & T002", "T001 T002"),
        ("requires T012", "T012"),
        ("depends on T001-T900", "T001 T900"),
        ("Everything that T012 depends on", ""),
        ("depends on the model of T012", ""),
        ("hereafter T012", ""),
    ],
)
def test_words_say_what_a_task_waits_for(text: str, ids: str) -> None:
    assert " ".join(Waits(r"\bT\d{3}\b").read(text)) == ids


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "task-3 - Media.md",
            "---\nid: task-3\ntitle: Media\nstatus: To Do\n---\n## Description\n- [ ] #1 Plain logs\n",
            "muster plan import backlog",
        ),
        ("plan.org", "* TODO Write\n- [ ] a\n", "pandoc"),
        ("tasks.json", "- [ ] a", "muster plan import FILE"),
    ],
)
def test_what_is_no_plan_is_refused_with_what_to_do(name: str, text: str, said: str) -> None:
    with pytest.raises(BadPlan) as refused:
        parse(text, name)
    assert said in refused.value.hint
    head, _, rest = text.rpartition("---\n") if "---" in text else ("---\n", "", text)
    assert parse(f"{head}dialect: none\n---\n{rest}", name, Problems(name)).tasks


def test_a_dialect_costs_little_in_a_long_plan() -> None:
    """What it is recognised by stands at the top."""
    text = "- [ ] T001 [P] Do it\n" * 20_000
    assert len(FileTop(text, "tasks.md").titles) == 300


SIGNS = st.text(st.sampled_from("ab T01.)(*~#-_[]P:,🆔⛔📅⏫ \n\t1/+&–é"), max_size=30) | st.sampled_from(
    [
        "T001 ",
        "[P] ",
        "(depends on T001, T002-T005)",
        "1.1 ",
        "_Requirements: 1.1_",
        "blocked_by: T001.002",
        "(P0)",
    ]
)


@given(st.lists(SIGNS, max_size=6).map("".join), st.sampled_from(DIALECTS))
def test_any_text_is_read_by_any_dialect(text: str, dialect: Dialect) -> None:
    """Whatever it says: no dialect raises, and what it says of one box is no mistake in the file."""
    assert dialect.recognise(FileTop(text, "plan.md")) is not None
    line = " ".join(text.split()) or "x"
    parts = dialect.read_title(line)
    dialect.read_body(text, parts)
    plan = f"---\ndialect: {dialect.name}\n---\n- [ ] other\n- [ ] a{line}\n"
    if not dialect.refusal:
        tick(plan.encode(), {"other"})


def test_the_docs_name_every_dialect_and_every_source() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "plans-you-have.md").read_text("utf-8")
    for dialect in DIALECTS:
        if not dialect.refusal:
            assert f"| `{dialect.name}` |" in page
    for name in IMPORTERS:
        assert name in page.lower(), name
