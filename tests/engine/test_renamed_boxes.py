"""S19: boxes that are called otherwise after an edit are still the same tasks."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import Rig, complete, fail

from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.edits import KeptTask, PlanAdded, PlanDiff, PlanUpdated, UpdatePlan
from muster.model.errors import BadInput
from muster.model.states import ErrorKind
from muster.plans.markdown import parse

FILE = "plan.md"
PLAN = """\
# Plan

## Model
- [ ] Add the invoice model
- [ ] Write tests

## API
- [ ] REST endpoints
  Four of them.
- [ ] Write tests
- [ ] Tell the team
"""


def command(text: str, kind: type[Any] = c.Enqueue, **said: Any) -> Any:
    tasks = []
    for task in parse(text, FILE).tasks:
        fields = {name: getattr(task, name) for name in c.Spec.__struct_fields__}
        tasks.append(c.Spec(**fields))
    return kind(plan="plan", source=FILE, tasks=tuple(tasks), actor="ada", **said)


def add(rig: Rig, text: str, **said: Any) -> PlanAdded:
    answer: PlanAdded = rig.do(command(text, **said))
    return answer


def update(rig: Rig, text: str, **said: Any) -> PlanUpdated:
    answer: PlanUpdated = rig.do(command(text, UpdatePlan, **said))
    return answer


def boxes(rig: Rig) -> dict[str, KeptTask]:
    (plan,) = drive(rig.reads.plans())
    return {task.box: task for task in drive(rig.reads.kept_tasks(plan.id))}


def do_first(rig: Rig, count: int) -> list[str]:
    """Completes so many; their keys."""
    jobs = rig.started(slots=count)
    for job in jobs:
        rig.do(complete(job))
    return [job.key for job in jobs]


@pytest.fixture
def done(rig: Rig) -> Rig:
    """All of PLAN is done but its last task, which runs."""
    rig.register()
    add(rig, PLAN)
    assert len(do_first(rig, 4)) == 4
    assert len(rig.started()) == 1
    return rig


@pytest.mark.promise("S19")
@pytest.mark.parametrize(
    ("before", "after", "renamed"),
    [
        ("## Model", "## Data model", 2),
        ("# Plan\n", "# Plan\n\n# Notes\n", 5),
        ("# Plan\n", "# Another\n", 0),
        ("Add the invoice model", "Add the invoce model", 1),
        ("Tell the team", "Tell team", 1),
        ("- [ ] Tell the team\n", "- [ ] Release\n  Now.\n  - [ ] Tell the team\n", 1),
        ("- [ ] REST endpoints\n  Four of them.\n", "", 0),
        ("REST endpoints", "The HTTP interface", 1),
        ("- [ ] REST endpoints", "- [ ] REST endpoints {#rest}", 1),
    ],
)
def test_what_is_certain_is_recognised(done: Rig, before: str, after: str, renamed: int) -> None:
    tasks = {task.id for task in boxes(done).values()}
    answer = add(done, PLAN.replace(before, after, 1))
    assert answer.added == ("Release" in after)
    assert len(answer.diff.renamed) == renamed
    statuses = {task.key: task.status for task in boxes(done).values() if task.id in tasks}
    assert sorted(statuses.values()) == ["COMPLETED"] * 4 + ["RUNNING"]
    assert len(boxes(done)) == len(tasks) + answer.added
    again = add(done, PLAN.replace(before, after, 1))
    assert (again.added, again.diff.renamed) == (0, ())
    back = add(done, PLAN)
    assert (back.added, len(back.diff.renamed)) == (0, renamed), "its former name is known"


def test_two_sections_that_change_places_and_names(done: Rig) -> None:
    before = boxes(done)
    text = PLAN.replace("## Model", "## Data").replace("## API", "## HTTP")
    add(done, text)
    after = boxes(done)
    assert {name: task.id for name, task in after.items()} == {
        name.replace("model/", "data/", name.startswith("model/")).replace("api/", "http/"): task.id
        for name, task in before.items()
    }


def test_a_person_is_asked_where_it_is_not_certain(done: Rig) -> None:
    events = done.events()
    text = PLAN.replace("- [ ] Tell the team", "- [ ] Announce it to the team")
    with pytest.raises(BadInput) as refused:
        add(done, text)
    assert "api/announce-it-to-the-team ('Announce it to the team') may be api/tell-the-team" in (
        refused.value.message
    )
    assert "--same api/tell-the-team=api/announce-it-to-the-team" in refused.value.hint
    assert "--new-task api/announce-it-to-the-team" in refused.value.hint
    assert done.events() == events
    (doubt,) = diff(done, text).doubts
    assert [one.key for one in doubt.may_be] == ["api/tell-the-team"]


def test_a_copied_box_is_not_taken_for_one_that_was_called_nearly_so(rig: Rig) -> None:
    """`Updaate the docs` was done and is taken out; the other is copied to where it must be done again."""
    text = """\
## Later
- [ ] Update the docs
  Those of the server, in two pages.
## Texts
- [ ] Updaate the docs
  Those of the client, in three.
"""
    rig.register()
    add(rig, text)
    assert len(do_first(rig, 2)) == 2
    copied = (
        text.partition("- [ ] Updaate")[0] + "- [ ] Update the docs\n  Those of the server, in two pages.\n"
    )
    (doubt,) = diff(rig, copied).doubts
    assert (doubt.box, [one.title for one in doubt.may_be]) == ("texts/update-the-docs", ["Updaate the docs"])
    assert add(rig, copied, new_tasks=(doubt.box,)).added == 1


def diff(rig: Rig, text: str, **said: Any) -> PlanDiff:
    return drive(rig.queries.diff(command(text, UpdatePlan, **said)))


def test_what_a_person_says_is_done(done: Rig) -> None:
    text = PLAN.replace("- [ ] Tell the team", "- [ ] Announce it to the team")
    name = "api/announce-it-to-the-team"
    answer = add(done, text, same={name: "api/tell-the-team"})
    assert (answer.added, boxes(done)[name].key) == (0, "api/tell-the-team")
    assert done.names("api/tell-the-team")[-1] == "renamed"
    assert done.events("api/tell-the-team")[-1].message == f"its box is {name} now, and was api/tell-the-team"
    assert add(done, text).diff.renamed == (), "it is asked once"


def test_new_work_is_new(done: Rig) -> None:
    text = PLAN.replace("- [ ] Tell the team", "- [ ] Announce it to the team")
    answer = add(done, text, new_tasks=("api/announce-it-to-the-team",))
    assert (answer.added, [one.key for one in answer.diff.removed]) == (1, ["api/tell-the-team"])


def test_what_has_not_begun_is_what_the_file_says(rig: Rig) -> None:
    rig.register()
    add(rig, PLAN)
    text = PLAN.replace("Tell the team", "Tell everybody in the team {priority=9}")
    (renamed,) = add(rig, text).diff.renamed
    assert (renamed.key, renamed.anew) == ("api/tell-the-team", True)
    task = boxes(rig)["api/tell-everybody-in-the-team"]
    assert (task.title, task.priority) == ("Tell everybody in the team", 9)
    assert len(rig.started()) == 5


def test_of_equal_titles_the_one_that_is_not_done_is_left(rig: Rig) -> None:
    rig.register()
    text = "- [ ] Deploy\n- [ ] Deploy\n- [ ] Deploy\n"
    add(rig, text)
    do_first(rig, 1)
    assert [task.key for task in boxes(rig).values() if task.status == "COMPLETED"] == ["deploy"]
    answer = add(rig, "- [ ] Deploy\n- [ ] Deploy\n")
    assert answer.added == 0
    (lost,) = answer.diff.removed
    assert lost.key == "deploy"
    assert [job.key for job in rig.started()] == ["deploy-2", "deploy-3"]


def test_equal_titles_that_are_moved_take_their_ticks_and_prompts_with_them(rig: Rig) -> None:
    rig.register()
    add(rig, "- [ ] Deploy\n  to staging\n- [ ] Deploy\n  to production\n")
    do_first(rig, 1)
    answer = add(rig, "- [ ] Deploy\n  to production\n- [x] Deploy\n  to staging\n")
    assert (answer.added, answer.completed, answer.diff.changed) == (0, (), ())
    (job,) = rig.started()
    assert job.description == "to production"


def test_a_new_box_gets_a_key_that_is_free(done: Rig) -> None:
    renamed = PLAN.replace("## API", "## HTTP")
    add(done, renamed)
    answer = add(done, renamed + "\n## API\n- [ ] Tell the team\n  of the new thing\n")
    assert answer.added == 1
    assert boxes(done)["api/tell-the-team"].key == "api/tell-the-team-2"
    assert boxes(done)["http/tell-the-team"].key == "api/tell-the-team"


def test_dependencies_are_those_of_the_file_under_any_name(rig: Rig) -> None:
    rig.register()
    plan = "## A\n- [ ] One of them\n- [ ] Two of them {after=a/one-of-them}\n"
    add(rig, plan)
    text = (
        plan.replace("## A", "## B").replace("after=a/", "after=b/") + "- [ ] Three {after=b/two-of-them}\n"
    )
    answer = update(rig, text)
    assert (answer.added, len(answer.diff.renamed)) == (1, 2)
    assert [one.fields for one in answer.diff.changed] == [("epic",), ("epic",)]
    assert [rig.task(task.id).unmet for task in boxes(rig).values()] == [0, 1, 1]


def test_numbers_that_moved_on_are_not_the_tasks(rig: Rig) -> None:
    rig.register()
    add(rig, "- [ ] T1: Lay the table\n- [ ] T2: Cook the soup\n")
    do_first(rig, 1)
    answer = add(rig, "- [ ] T1: Buy vegetables\n- [x] T2: Lay the table\n- [ ] T3: Cook the soup\n")
    assert answer.added == 1
    assert {task.title for task in boxes(rig).values() if task.status != "COMPLETED"} == {
        "Buy vegetables",
        "Cook the soup",
    }
    assert [job.title for job in rig.started()] == ["Cook the soup", "Buy vegetables"]


def test_what_was_done_and_taken_out_is_not_done_again_elsewhere(done: Rig) -> None:
    update(done, PLAN.replace("- [ ] Add the invoice model\n", ""))
    text = PLAN.replace("- [ ] Add the invoice model\n", "") + "- [ ] Add the invoice model\n"
    with pytest.raises(BadInput, match="may be model/add-the-invoice-model"):
        update(done, text)
    update(done, text, same={"api/add-the-invoice-model": "model/add-the-invoice-model"})
    assert done.started() == ()


def test_failed_work_keeps_its_attempts(rig: Rig) -> None:
    rig.register()
    add(rig, PLAN)
    (job, *_) = rig.started(slots=1)
    rig.do(fail(job, ErrorKind.INVALID))
    add(rig, PLAN.replace("## Model", "## Store"))
    task = boxes(rig)["store/add-the-invoice-model"]
    assert (task.status, task.epoch) == ("FAILED", 1)


def test_ten_thousand_equal_titles_below_a_renamed_heading(rig: Rig) -> None:
    """Each compared with each other one would take longer than the test may."""
    boxes = "- [ ] Write the tests\n" * 10_000
    add(rig, f"# P\n\n## A\n\n{boxes}")
    found = drive(rig.queries.diff(command(f"# P\n\n## B\n\n{boxes}", UpdatePlan)))
    assert (len(found.renamed), found.added, found.removed) == (10_000, (), ())
    assert all(one.was.removeprefix("a/") == one.box.removeprefix("b/") for one in found.renamed)


def test_a_group_is_not_the_task_of_its_title_below_it(rig: Rig) -> None:
    add(rig, "# P\n\n- [ ] Add the size field\n  - [ ] Add the size field\n")
    before = {task.key: task.id for task in boxes(rig).values()}
    added = add(rig, "# P\n\n- [ ] Add the sizze field\n  - [ ] Add the size field\n")
    assert (added.added, added.diff.removed) == (0, ())
    now = boxes(rig)
    assert now["add-the-sizze-field"].id == before["add-the-size-field"]
    assert now["add-the-sizze-field/add-the-size-field"].id == before["add-the-size-field/add-the-size-field"]


def test_of_equal_titles_the_one_below_the_renamed_heading_is_meant(rig: Rig) -> None:
    """The other one, in another place, is no longer in the file, and its work goes on."""
    first, last = "- [ ] Write the guide\n", "- [ ] Check the links of all pages\n"
    middle = "- [ ] Design the pages {#pages}\n  Light ones.\n"
    add(rig, f"# P\n\n## Docs\n\n{first}{middle}  {first}{last}")
    rig.register(slots=9)
    jobs = {job.key: job for job in rig.started(slots=9)}
    rig.do(complete(jobs["docs/write-the-guide"]))
    added = add(rig, f"# P\n\n## The docs\n\n{first}{middle}{last}")
    assert (added.added, boxes(rig)["the-docs/write-the-guide"].key) == (0, "docs/write-the-guide")
