"""Tasks that come in one list are as if each had come alone."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import Rig
from msgspec.structs import replace

from muster.model import commands as c
from muster.model.states import FailedDependency

LIST: tuple[dict[str, Any], ...] = (
    {"title": "one"},
    {"title": "two", "description": "other words"},
    {"title": "three", "depends_on": ("k1", "k0")},
    {"title": "four", "depends_on": ("k0",), "on_failed": FailedDependency.SKIP},
    {"title": "five", "metadata": {"n": 1}},
    {"title": "six", "metadata": {"n": True}},
    {"title": "seven", "metadata": {"n": 1.0}, "agent": "codex"},
    {"title": "eight", "agent": "codex", "input_context": {"a": 1}},
    {"title": "nine", "agent": "codex", "input_context": {"a": True}},
    {"title": "ten", "agent": "codex", "delay_s": 60, "tags": ("x",)},
    {"title": "eleven", "agent": "codex", "delay_s": 60, "tags": ("x",), "idempotency_key": "i"},
    {"title": "twelve", "done": True},
    {"title": "thirteen", "done": True},
    {"title": "fourteen", "is_group": True, "depends_on": ("k0",)},
    {"title": "fifteen", "is_group": True, "depends_on": ("k0", "k1")},
    {"title": "sixteen", "parent": "k13"},
    {"title": "seventeen", "parent": "k13", "expires_s": 600},
    {"title": "eighteen", "parent": "k14", "expires_s": 600},
)
_OWN = ("id", "parent_task_id")
_NUMBERED = ("plan_id", "lane_id")
"""Told by which of the list they are."""


def added(*transactions: tuple[c.Enqueue, ...]) -> list[dict[str, Any]]:
    """What stands in the table and the events then; tasks of the same plan are called by their keys."""
    rig = Rig()
    for commands in transactions:
        rig.apply(*commands)
    names = [row[1] for row in rig.sql("SELECT cid, name FROM pragma_table_xinfo('tasks')")]
    rows = [dict(zip(names, row, strict=True)) for row in rig.sql("SELECT * FROM tasks ORDER BY id")]
    for name in _NUMBERED:
        seen = list(dict.fromkeys(row[name] for row in rows))
        for row in rows:
            row[name] = seen.index(row[name])
    keys = {row["id"]: row["key"] for row in rows}
    edges = rig.sql("SELECT parent_id, child_id, met FROM dependencies")
    for row in rows:
        row["parent"] = keys.get(row["parent_task_id"])
        row["edges"] = sorted((keys[parent], met) for parent, child, met in edges if child == row["id"])
        row["told"] = rig.sql(
            "SELECT seq, at_ms, event, message, details, new_status, actor FROM events "
            f"WHERE task_id = {row['id']} ORDER BY seq"
        )
        for name in _OWN:
            row.pop(name)
    return rows


def first_seen(group: dict[str, Any]) -> dict[str, Any]:
    """As it was added: each task that is put below it later is an event of its own."""
    return group | {"told": group["told"][:1], "event_seq": 1}


SPECS = tuple(c.Spec(key=f"k{at}", **fields) for at, fields in enumerate(LIST))


def enqueue(*tasks: c.Spec, plan: str = "api", actor: str = "ada") -> c.Enqueue:
    return c.Enqueue(plan=plan, source=None, tasks=tasks, actor=actor)


def test_tasks_of_one_list_are_what_they_are_alone() -> None:
    together, alone = added((enqueue(*SPECS),)), added(*((enqueue(spec),) for spec in SPECS))
    assert len(together) == len(LIST)
    for one, other in zip(together, alone, strict=True):
        assert one == (first_seen(other) if other["is_group"] else other)
    assert [row["metadata"] for row in together[4:7]] == ['{"n":1}', '{"n":true}', '{"n":1.0}']


def test_tasks_of_several_people_and_plans_that_come_at_once_are_what_they_are_alone() -> None:
    plain = c.Spec(key="a", title="the same")
    asked = (
        enqueue(plain),
        enqueue(c.Spec(key="b", title="the same")),
        enqueue(c.Spec(key="c", title="the same"), actor="bob"),
        enqueue(plain, plan="web", actor="bob"),
        *(enqueue(spec) for spec in SPECS),
    )
    assert added(asked) == added(*((command,) for command in asked))


@pytest.mark.promise("S19")
def test_what_comes_with_a_file_is_told_from_what_comes_by_hand_at_once() -> None:
    with_file = replace(enqueue(c.Spec(key="f", title="the same")), source="/plan.md", whole=True)
    by_hand = enqueue(c.Spec(key="h", title="the same"))
    asked = (with_file, by_hand)
    assert [row["from_file"] for row in added(asked)] == [1, 0]
    asked = (enqueue(c.Spec(key="h", title="the same"), plan="web"), replace(with_file, plan="web"))
    assert added(asked) == added(*((command,) for command in asked))
