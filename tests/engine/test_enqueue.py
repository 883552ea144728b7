"""Plans taken in: whole, once, or not at all."""

from __future__ import annotations

import pytest
from engine_rig import LEASE_S, Rig, complete, enqueue, fail
from hypothesis import given
from hypothesis import strategies as st

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.edits import EditTask
from muster.model.errors import BadInput
from muster.model.numbers import Ids
from muster.model.states import ErrorKind
from searches import properties


def plans(rig: Rig) -> list[str]:
    return [plan.name for plan in drive(rig.reads.plans())]


def test_the_same_plan_twice_adds_nothing(rig: Rig) -> None:
    first = rig.enqueue({"a": [], "b": ["a"]}, source="/plan.md")
    events = len(rig.events())
    second = rig.enqueue({"a": [], "b": ["a"]}, source="/plan.md")
    assert (first.added, first.existing, second.added, second.existing) == (2, 0, 0, 2)
    assert (second.changed, second.completed, second.plan_id) == ((), (), first.plan_id)
    assert len(rig.events()) == events


@pytest.mark.parametrize("change", [{"title": "new"}, {"description": "new"}, {"agent": "codex"}])
def test_a_changed_text_is_told_and_the_task_is_kept(rig: Rig, change: dict[str, str]) -> None:
    rig.enqueue({"a": [], "b": []})
    before = rig.views()["a"]
    answer = rig.enqueue({"a": [], "b": []}, specs={"a": change})
    assert (answer.changed, answer.added) == (("a",), 0)
    assert rig.views()["a"] == before


def test_what_is_new_is_added_behind_what_is_there(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": []})
    a, _ = rig.started()
    rig.do(complete(a))
    answer = rig.enqueue({"c": ["a"], "d": ["b"], "e": ["c", "d"]})
    assert (answer.added, answer.existing) == (3, 0)
    unmet = {key: view.unmet for key, view in rig.views().items()}
    assert unmet == {"a": 0, "b": 0, "c": 0, "d": 1, "e": 2}


@pytest.mark.parametrize(
    ("tasks", "specs", "said"),
    [
        ({"a": ["nowhere"]}, {}, "a depends on nowhere"),
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, {}, "a -> b -> c -> a"),
        ({"a": ["a"]}, {}, "a -> a"),
        ({"a": [], "A": []}, {"A": {"key": "a"}}, "a is given twice"),
    ],
)
def test_a_plan_that_does_not_fit_is_refused_whole(
    rig: Rig, tasks: dict[str, list[str]], specs: dict[str, dict[str, str]], said: str
) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        rig.enqueue({"good": []} | tasks, plan="new", specs=specs)
    assert "nothing was added" in refused.value.message
    assert (plans(rig), rig.views(), rig.events()) == ([], {}, [])


def test_a_refused_addition_leaves_the_plan_as_it_was(rig: Rig) -> None:
    rig.enqueue({"a": []})
    before = rig.views()
    with pytest.raises(BadInput):
        rig.enqueue({"a": [], "b": [], "c": ["x"]}, specs={"a": {"done": True}})
    assert rig.views() == before


def test_ticked_boxes_complete_tasks_and_free_those_behind(rig: Rig) -> None:
    source = "/plan.md"
    rig.enqueue({"a": [], "b": ["a"], "c": ["b"]}, source=source)
    answer = rig.enqueue({"a": [], "b": ["a"], "c": ["b"]}, source=source, specs={"a": {"done": True}})
    assert (answer.completed, answer.unproved) == (("a",), ())
    assert rig.statuses() == {"a": "COMPLETED", "b": "PENDING", "c": "PENDING"}
    assert (rig.task("b").ready, rig.task("c").ready) == (True, False)
    assert rig.events("a")[-1].actor == "the file"
    again = rig.enqueue({"a": [], "b": ["a"], "c": ["b"]}, source=source, specs={"a": {"done": True}})
    assert again.completed == ()


def test_a_box_ticked_from_the_start_holds_nobody_up(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": ["a"], "c": ["b"]}, specs={"a": {"done": True}})
    assert rig.statuses()["a"] == "COMPLETED"
    assert (rig.task("b").ready, rig.task("c").unmet) == (True, 1)


def test_a_box_ticked_together_with_a_new_task_behind_it(rig: Rig) -> None:
    rig.enqueue({"a": []})
    rig.enqueue({"a": [], "b": ["a"]}, specs={"a": {"done": True}})
    assert rig.task("b").ready
    assert rig.names("b") == ["enqueued"]


def test_a_box_ticked_while_an_agent_works_is_left_to_the_agent(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": []})
    (job,) = rig.started()
    answer = rig.enqueue({"a": [], "b": ["a"]}, specs={"a": {"done": True}})
    assert (answer.completed, answer.unproved) == ((), ("a",))
    assert (rig.statuses()["a"], rig.task("b").unmet) == ("RUNNING", 1)
    rig.do(complete(job))
    assert rig.task("b").ready


@pytest.mark.parametrize("kind", [ErrorKind.INVALID, ErrorKind.REVIEW])
def test_a_tick_proves_nothing_where_an_agent_had_the_task(rig: Rig, kind: ErrorKind) -> None:
    """Its agent can tick as well as a person; a word in so many words settles it."""
    rig.register()
    rig.enqueue({"a": [], "b": ["a"]})
    (job,) = rig.started()
    rig.do(fail(job, kind))
    before = rig.statuses()
    answer = rig.enqueue({"a": [], "b": ["a"]}, specs={"a": {"done": True}})
    assert (answer.completed, answer.unproved, rig.statuses()) == ((), ("a",), before)
    rig.do(c.CompleteByPerson(task_id=job.task_id, actor="ada"))
    view = rig.views()["a"]
    assert (view.status, view.error, view.why) == ("COMPLETED", "", "done by a person")
    assert rig.task("b").ready


def test_a_tick_where_agents_can_write_the_file_proves_nothing(rig: Rig) -> None:
    def ticked(key: str, *, done: bool = True, in_reach: bool = True, actor: str = "ada") -> tuple[str, ...]:
        tasks = (c.Spec(title=key, key=key, done=done, depends_on=("b",) if key in "cd" else ()),)
        command = c.Enqueue(plan="p", source="/plan.md", actor=actor, tasks=tasks, in_reach=in_reach)
        unproved: tuple[str, ...] = rig.do(command).unproved
        return unproved

    rig.register()
    for key in "abcd":
        ticked(key, done=False)
    assert ticked("a") == () and rig.statuses()["a"] == "COMPLETED", "nobody was at work"
    rig.started()
    assert ticked("c") == ("c",) and rig.statuses()["c"] == "PENDING"
    assert ticked("d", in_reach=False, actor="attempt:p/b#1") == ("d",)
    assert rig.statuses()["d"] == "PENDING"
    assert ticked("d", in_reach=False) == () and rig.statuses()["d"] == "COMPLETED"
    rig.clock.advance(1)
    ticked("e", done=False)
    assert ticked("e") == () and rig.statuses()["e"] == "COMPLETED", "added since: no agent has begun"


def test_plans_from_other_files_get_names_of_their_own(rig: Rig) -> None:
    names = [rig.enqueue({f"a{i}": []}, source=f"/{i}/plan.md").plan for i in range(3)]
    assert names == ["api", "api-2", "api-3"]
    assert rig.enqueue({"a1": []}, source="/1/plan.md").plan == "api-2"
    assert len(rig.events()) == 3


def test_tasks_without_a_key_are_added_each_time(rig: Rig) -> None:
    spec = c.Spec(title="loose")
    for _ in range(2):
        rig.do(c.Enqueue(plan="api", source=None, tasks=(spec, spec), actor="ada"))
    assert len(rig.views()) == 4


def test_a_dependency_named_twice_counts_once(rig: Rig) -> None:
    rig.enqueue({"a": [], "b": ["a", "a"]})
    assert rig.task("b").unmet == 1


def test_an_empty_plan_is_a_plan(rig: Rig) -> None:
    assert rig.enqueue({}).added == 0
    assert plans(rig) == ["api"]
    assert rig.do(enqueue({"a": []})).added == 1


@given(jumps=st.lists(st.integers(-(10**6), 10**6), max_size=50), last=st.integers(0, 1 << 52))
@properties(100)
def test_ids_grow_whatever_the_clock_does(jumps: list[int], last: int) -> None:
    ids, wall_ms, given_out = Ids(0), 1_800_000_000_000, []
    ids.next_after(last)
    for jump in jumps:
        wall_ms += jump
        given_out.append(ids.next(wall_ms))
    assert given_out == sorted(set(given_out))
    assert all(last < i < 1 << 53 for i in given_out)


def test_a_new_owner_goes_on_with_numbers_above_the_old_ones(rig: Rig) -> None:
    from muster.engine.commands import Engine

    rig.enqueue({"a": []})
    rig.engine = Engine(rig.store, rig.engine.chance, rig.engine.policy)
    rig.clock.advance(-3600)
    rig.enqueue({"b": []})
    assert rig.id("b") > rig.id("a")


def test_a_title_is_not_run_as_a_script() -> None:
    """Every way in is one of these three."""
    rig = Rig(Policy(lease_s=LEASE_S, scripts=frozenset({"shell"}), usual_agent="shell"))
    title = "rm -rf build"
    for wanted in ({"agent": "shell"}, {}):
        with pytest.raises(BadInput, match=r"'rm -rf build' has no text, and agent shell runs"):
            rig.enqueue({title: []}, specs={title: wanted})
        with pytest.raises(BadInput, match="has no text"):
            rig.enqueue({title: []}, specs={title: wanted | {"description": " \n"}})
    assert rig.views() == {}
    rig.enqueue({title: []}, specs={title: {"description": "true"}})
    rig.enqueue({"other": [], "ticked": []}, specs={"other": {"agent": "claude"}, "ticked": {"done": True}})
    for edited in ({"description": ""}, {"agent": "shell", "description": ""}):
        with pytest.raises(BadInput, match="has no text"):
            rig.do(EditTask(task_id=rig.id(title), actor="ada", given=edited))
    with pytest.raises(BadInput, match="has no text"):
        rig.do(EditTask(task_id=rig.id("other"), actor="ada", given={"agent": "shell"}))


def test_tasks_without_a_key_are_called_by_their_title_and_numbered_where_that_is_taken(rig: Rig) -> None:
    def add(*titles: str) -> list[str]:
        tasks = tuple(c.Spec(title=title) for title in titles)
        added = rig.do(c.Enqueue(plan="p", source=None, tasks=tasks, actor="ada"))
        keys = {view.id: view.key for view in rig.views().values()}
        return [keys[number] for number in added.task_ids]

    assert add("Fix it", "Fix it", "Fix it 2") == ["fix-it", "fix-it-2", "fix-it-2-2"]
    assert add("Fix it", "Fix it 2", "Other", "Fix it") == ["fix-it-3", "fix-it-2-3", "other", "fix-it-4"]
    assert add(*["Fix it"] * 5) == [f"fix-it-{number}" for number in range(5, 10)]
    (tenth,) = add("Fix it")
    assert tenth.startswith("fix-it-")
    assert len(tenth) > len("fix-it-10")
