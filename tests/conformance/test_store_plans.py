"""What the store keeps of a plan, in the words of its file, and how it is changed."""

from __future__ import annotations

from store_rows import PLAN_ID, Subject, new_task

from muster.model import commands as c
from muster.model.edits import Edit, KeptTask, task_fields_of
from muster.model.states import TaskStatus


def kept(subject: Subject) -> dict[str, KeptTask]:
    return {task.key: task for task in subject.read("kept_tasks", PLAN_ID)}


def test_a_kept_task_names_what_it_waits_for(subject: Subject) -> None:
    subject.add_plan()
    subject.add_plan("other", PLAN_ID + 1)
    subject.add(new_task(4, "x", plan_id=PLAN_ID + 1), new_task(5, "a"), new_task(6))
    subject.add(new_task(7, "b", after=((4, False), (5, True), (6, False))))
    found = kept(subject)
    assert list(found) == ["a", "6", "b"]
    assert found["b"].dependencies == ((4, "4", False), (5, "a", True), (6, "6", False))
    assert found["b"].depends_on == ("4", "a", "6")
    assert subject.tx("kept_task", 7) == found["b"] == subject.tx("kept_tasks", PLAN_ID)[2]
    assert subject.tx("kept_task", 99) is None
    assert sorted(subject.tx("dependencies", [5, 7])) == [(4, 7), (5, 7), (6, 7)]


def test_what_came_with_a_file_is_known(subject: Subject) -> None:
    subject.add_plan()
    subject.add(new_task(5, "a", from_file=True), new_task(6, "b"))
    assert {key: task.from_file for key, task in kept(subject).items()} == {"a": True, "b": False}


def test_an_edit_replaces_the_texts(subject: Subject) -> None:
    subject.add_plan()
    subject.add(new_task(5, "a"), new_task(6, "b"))
    task_fields = task_fields_of(
        c.Spec(title="New", description="d", agent="x", capabilities=("r",), profile="p", tags=("t",))
    )
    edit = Edit(
        task_id=6, actor="ada", task_fields=task_fields, changed={}, lane_id=1, unmet=0, parent_task_id=5
    )
    subject.write(edits=[edit])
    task = kept(subject)["b"]
    assert (task.title, task.description, task.agent, task.capabilities) == ("New", "d", "x", ("r",))
    assert (task.profile, task.tags, task.parent) == ("p", ("t",), "a")
    assert kept(subject)["a"].title == "a title"


def test_dependencies_are_replaced_whole(subject: Subject) -> None:
    subject.add_plan()
    subject.add(new_task(5, "a"), new_task(6, "b"), new_task(7, "c", after=((5, False),)))
    subject.tx("set_dependencies", 7, {6: True})
    assert kept(subject)["c"].dependencies == ((6, "b", True),)
    subject.tx("set_dependencies", 7, {})
    assert kept(subject)["c"].dependencies == ()


def test_unfinished_tasks_are_paged_from_the_newest(subject: Subject) -> None:
    subject.add_plan()
    subject.add_plan("other", PLAN_ID + 1)
    statuses = list(TaskStatus)
    subject.add(*[new_task(n, status=status) for n, status in enumerate(statuses, 1)])
    subject.add(new_task(50, plan_id=PLAN_ID + 1))
    ended = {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.ARCHIVED}
    open_ids = [n for n, status in enumerate(statuses, 1) if status not in ended]
    assert subject.tx("unfinished", PLAN_ID, None, 100) == open_ids[::-1]
    first = subject.tx("unfinished", PLAN_ID, None, 2)
    assert first + subject.tx("unfinished", PLAN_ID, first[-1], 100) == open_ids[::-1]
