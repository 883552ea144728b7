"""A task's fields are declared once: everything that knows them follows from two tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import NODEFAULT
from msgspec.structs import fields

from muster.model.commands import Spec
from muster.model.fields import ATTRIBUTES, FIELDS, OPTIONS, camel
from muster.model.kinds import SECONDS_MAX, TITLE_CHARS_MAX
from muster.model.task import TaskFields

SRC = Path(__file__).parents[2] / "src" / "muster"
HEADINGS = {"epic", "feature", "is_group"}
"""Headings and boxes of a plan say these, people do not write them."""


def test_the_table_and_the_class_have_the_same_fields() -> None:
    named = {field.name for field in FIELDS}
    assert set(TaskFields.__struct_fields__) - named == HEADINGS
    assert named - set(TaskFields.__struct_fields__) == {"delay_s"}
    for field in FIELDS:
        assert camel(field.name) == dict(
            zip(Spec.__struct_fields__, Spec.__struct_encode_fields__, strict=True)
        ).get(field.name, "")


def test_what_holds_without_a_field_is_the_same_in_both() -> None:
    usual = {field.name: field.usual for field in FIELDS if field.name != "title"}
    declared = {}
    for field in fields(Spec):
        made = field.default_factory() if field.default_factory is not NODEFAULT else field.default
        declared[field.name] = made
    assert usual == {name: declared[name] for name in usual}


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_a_field_can_be_written_and_read_again(field) -> None:
    examples = {
        "priority": 7,
        "sort_key": -3,
        "max_retries": 2,
        "on_failed": "skip",
        "changes": "none",
        "timeout_s": 90,
        "estimated_s": SECONDS_MAX,
        "delay_s": 60,
        "metadata": {"team": "a = b"},
        "input_context": {"branch": "main", "n": [1, None]},
        "retry_backoff_s": 300,
        "not_before_ms": 1_801_418_400_250,
        "expires_at_ms": 1_801_418_400_000,
        "depends_on": ("a", "b/c"),
        "capabilities": ("x",),
        "tags": ("x", "y"),
    }
    value = examples.get(field.name, "x" * (TITLE_CHARS_MAX if field.name == "title" else 20))
    assert field.read(field.kind.write(value)) == {field.name: value}


def test_a_field_stands_in_two_files_beside_the_schema_and_what_it_does() -> None:
    """A new one touches `model/task.py`, `model/fields.py`, a migration and the two reference pages that are made
    from the table; whatever it is for comes on top."""
    places = {
        path.relative_to(SRC).as_posix()
        for path in SRC.rglob("*")
        if path.suffix in {".py", ".sql"} and {"estimated_s", "estimatedS"} & set(words(path))
    }
    # Old builds had it as well; their schema is what it was, and what is made of it as well.
    schema = {place for place in places if "/migrations/" in place or "/upgrades/" in place}
    uses = {
        "model/moves/working.py",
        "cli/plan_items.py",
        "plans/importers/beads.py",
        "plans/importers/items.py",
        "web/task_words.py",
    }
    assert places - schema == {"model/fields.py", "model/task.py"} | uses


def words(path: Path) -> list[str]:
    return "".join(char if char.isalnum() or char == "_" else " " for char in path.read_text("utf-8")).split()


def test_every_field_has_a_way_in() -> None:
    assert {field.name for field in FIELDS} == {field.name for field in (*ATTRIBUTES.values(), *OPTIONS)}
