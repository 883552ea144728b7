"""What is below an epic, a feature or a task is added up."""

from __future__ import annotations

from typing import Any

import pytest

from muster.model.edits import KeptTask
from muster.model.items import Effort, ItemView, items_of
from muster.model.progress import status_of
from muster.model.states import TaskStatus
from muster.model.usage import Usage

DONE, FAILED, RUNNING, PENDING = (
    TaskStatus.COMPLETED,
    TaskStatus.FAILED,
    TaskStatus.RUNNING,
    TaskStatus.PENDING,
)


def kept(number: int, path: str, status: TaskStatus = PENDING, **fields: Any) -> KeptTask:
    epic, feature, key = path.split("/")
    said = {"title": key.upper(), "status": status, "epic": epic, "feature": feature} | fields
    return KeptTask(id=number, key=key, box=key, created_at_ms=0, **said)


def shown(items: list[ItemView]) -> list[tuple[str, str | None, str, str]]:
    return [(item.id, item.parent, item.status, f"{item.completed}/{item.tasks}") for item in items]


def test_epics_and_features_hold_what_is_below_them() -> None:
    tasks = [
        kept(1, "Cart/Model/a", DONE),
        kept(2, "Pay//d", FAILED),
        kept(3, "Cart/Model/b", RUNNING, priority=9),
        kept(4, "Cart/Page/c", TaskStatus.CANCELLED, priority=10),
        kept(5, "Pay//e", parent="d"),
        kept(6, "//f", DONE),
    ]
    items = items_of(tasks, [])
    assert shown(items) == [
        ("E001", None, "in_progress", "1/2"),
        ("F001", "E001", "in_progress", "1/2"),
        ("a", "F001", "completed", "1/1"),
        ("b", "F001", "in_progress", "0/1"),
        ("F002", "E001", "cancelled", "0/0"),
        ("c", "F002", "cancelled", "0/0"),
        ("E002", None, "failed", "0/2"),
        ("d", "E002", "failed", "0/2"),
        ("e", "d", "pending", "0/1"),
        ("f", None, "completed", "1/1"),
    ]
    assert [item.priority for item in items[:2]] == [9, 9], "of what is still to be done"
    assert [item.percent for item in items[:3]] == [50, 50, 100]


def test_time_tokens_and_cost_are_added_up() -> None:
    tasks = [kept(1, "E/F/a"), kept(2, "E/F/b"), kept(3, "E//c")]
    efforts = [
        Effort(1, 1500, Usage(input_tokens=10, output_tokens=1, cost_microusd=5)),
        Effort(1, 2000, None),
        Effort(2, 600, Usage(input_tokens=7, output_tokens=2, cost_microusd=3, estimated=True)),
        Effort(3, 60_000, None),
        Effort(9, 1, Usage(input_tokens=99)),
    ]
    epic, feature, a, _, c = items_of(tasks, efforts)
    assert (epic.work_s, feature.work_s, a.work_s, c.work_s) == (64, 4, 3, 60)
    assert epic.usage == feature.usage
    assert feature.usage == Usage(input_tokens=17, output_tokens=3, cost_microusd=8, estimated=True)
    assert c.usage is None


def test_a_parent_below_another_heading_is_not_stood_under() -> None:
    tasks = [kept(1, "E//a"), kept(2, "G//b", parent="a"), kept(3, "G//c", parent="c")]
    assert [(item.id, item.parent) for item in items_of(tasks, [])] == [
        ("E001", None),
        ("a", "E001"),
        ("E002", None),
        ("b", "E002"),
        ("c", "E002"),
    ]


def test_parents_in_a_circle_end_nowhere() -> None:
    tasks = [kept(1, "//a", parent="b"), kept(2, "//b", parent="a")]
    assert {item.id for item in items_of(tasks, [])} == {"a", "b"}


def test_a_group_counts_what_is_below_it_and_what_stands_for_a_heading_is_no_item() -> None:
    heading: dict[str, Any] = {"title": "all", "epic": "E", "is_group": True, "status": PENDING}
    tasks = [
        kept(1, "E//g", is_group=True),
        kept(2, "E//a", DONE, parent="g"),
        kept(3, "E//b", parent="g"),
        KeptTask(id=4, key="e/*", box="e/*", created_at_ms=0, **heading),
    ]
    assert shown(items_of(tasks, []))[:2] == [
        ("E001", None, "in_progress", "1/2"),
        ("g", "E001", "in_progress", "1/2"),
    ]
    assert len(items_of(tasks, [])) == 4


def test_what_the_file_no_longer_has_is_left_out() -> None:
    gone = kept(1, "E//a", TaskStatus.CANCELLED, error="removed")
    assert items_of([gone, kept(2, "G//b", TaskStatus.ARCHIVED)], []) == []


@pytest.mark.parametrize(
    ("counts", "word"),
    [
        ({}, "cancelled"),
        ({DONE: 2}, "completed"),
        ({DONE: 2, TaskStatus.CANCELLED: 1}, "completed"),
        ({DONE: 1, PENDING: 1}, "in_progress"),
        ({PENDING: 1, TaskStatus.PAUSED: 1}, "pending"),
        ({FAILED: 1, DONE: 1}, "failed"),
        ({FAILED: 1, RUNNING: 1}, "in_progress"),
    ],
)
def test_one_word_for_many_tasks(counts: dict[str, int], word: str) -> None:
    assert status_of(counts) == word
