"""Editing what was taken in, and plans that follow their files."""

from __future__ import annotations

from typing import Any

import pytest
from engine_rig import LEASE_S, Rig, cancel, complete, enqueue, event_of, fail
from hypothesis import given
from hypothesis import strategies as st

from muster.engine.batch import drive
from muster.engine.policy import Policy
from muster.model import commands as c
from muster.model.edits import (
    EditTask,
    KeptTask,
    PlanUpdated,
    UpdatePlan,
    compare,
    task_fields_of,
)
from muster.model.errors import BadInput, IllegalMove, NotFound
from muster.model.states import ErrorKind, FailedDependency, TaskStatus
from muster.testing.promises import History, check
from searches import properties

FILE = "/project/plan.md"


def update(rig: Rig, tasks: dict[str, Any], **specs: dict[str, Any]) -> PlanUpdated:
    plain = enqueue(tasks, source=FILE, specs=specs)
    answer: PlanUpdated = rig.do(UpdatePlan(plan="api", source=FILE, tasks=plain.tasks, actor="ada"))
    return answer


def kept(rig: Rig) -> dict[str, KeptTask]:
    (plan,) = drive(rig.reads.plans())
    return {task.key: task for task in drive(rig.reads.kept_tasks(plan.id))}


def edit(rig: Rig, key: str, **fields: Any) -> None:
    rig.do(EditTask(task_id=rig.id(key), actor="ada", given=fields))


# -- one task


def test_an_edit_changes_the_task_and_leaves_one_event_with_what_was(rig: Rig) -> None:
    rig.enqueue({"a": []}, specs={"a": {"description": "x" * 3000}})
    edit(rig, "a", title="New", description="short", priority=9, agent="codex", tags=("t",), timeout_s=60)
    task, event = kept(rig)["a"], rig.events("a")[-1]
    assert (task.title, task.description, task.priority, task.agent) == ("New", "short", 9, "codex")
    assert (task.tags, task.timeout_s) == (("t",), 60)
    assert (event.event, event.actor) == ("edited", "ada")
    assert event.message == "title, description, agent, priority, timeout_s, tags edited by ada"
    (row,) = rig.sql("SELECT details FROM events WHERE event = 'edited'")
    assert '"title":"a"' in row[0] and "(3000 characters)" in row[0] and len(row[0]) < 2500


def test_an_edit_that_changes_nothing_leaves_no_event(rig: Rig) -> None:
    rig.enqueue({"a": []})
    edit(rig, "a", title="a", priority=5)
    assert rig.names("a") == ["enqueued"]


def test_the_agent_that_is_wanted_now_gets_it(rig: Rig) -> None:
    rig.register(agents=("claude", "codex"))
    rig.enqueue({"a": []})
    edit(rig, "a", agent="codex")
    assert [(job.agent, job.title) for job in rig.claim()] == [("codex", "a")]


def test_what_runs_or_is_done_cannot_be_edited(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": []})
    a, b = rig.started()
    rig.do(complete(b))
    for key in ("a", "b"):
        with pytest.raises(IllegalMove, match="nothing was changed"):
            edit(rig, key, title="New")
    assert {view.title for view in rig.views().values()} == {"a", "b"}
    rig.do(fail(a, ErrorKind.INVALID))
    edit(rig, "a", title="Better")
    rig.do(c.Retry(task_id=a.task_id, actor="ada"))
    assert [job.title for job in rig.claim()] == ["Better"]


def test_edges_come_and_go(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": [], "c": ["a"]})
    rig.enqueue({"other": []}, plan="second")
    other = str(rig.id("other"))
    edit(rig, "b", depends_on=("a", other))
    assert rig.task("b").unmet == 2
    rig.audit()
    edit(rig, "c", depends_on=())
    assert [job.key for job in rig.claim()] == ["a", "c", "other"]
    edit(rig, "b", depends_on=(str(rig.id("a")), other))
    assert rig.names("b") == ["enqueued", "edited"], "the same tasks by another name are no change"
    edit(rig, "b", depends_on=(other,))
    assert rig.task("b").unmet == 1


def test_an_edge_to_what_is_done_is_met_and_to_what_failed_does_what_the_task_wants(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"done": [], "bad": [], "a": [], "b": []}, specs={"bad": {"max_retries": 0, "priority": 9}})
    bad, done, *_ = rig.started(slots=2)
    rig.do(complete(done))
    rig.do(fail(bad))
    edit(rig, "a", depends_on=("done", "bad"))
    assert rig.views()["a"].why == "waits for bad (FAILED)"
    edit(rig, "a", on_failed=FailedDependency.RUN)
    assert rig.task("a").ready
    edit(rig, "b", depends_on=("bad",), on_failed=FailedDependency.SKIP)
    assert rig.views()["b"].why.startswith("skipped by coordinator: ")


def test_a_neighbour_that_completes_the_new_dependency_in_the_same_batch_is_seen(rig: Rig) -> None:
    rig.register()
    rig.enqueue({"a": [], "b": ["a"], "c": []})
    a, job = rig.started()
    rig.do(fail(job))
    edges = EditTask(task_id=rig.id("c"), actor="ada", given={"depends_on": ("a", "b")})
    same = EditTask(task_id=rig.id("b"), actor="ada", given={"depends_on": ("a",), "title": "B"})
    assert rig.batch(complete(a), edges, same) == ["Moved"] * 3
    assert (rig.task("b").unmet, rig.task("c").unmet) == (0, 1)


def test_tasks_that_belong_to_each_other_are_refused(rig: Rig) -> None:
    with pytest.raises(BadInput, match="a -> b -> a"):
        update(rig, {"a": [], "b": []}, a={"parent": "b"}, b={"parent": "a"})
    with pytest.raises(BadInput, match="a belongs to nobody, which does not exist"):
        update(rig, {"a": []}, a={"parent": "nobody"})
    assert rig.events() == []


@pytest.mark.parametrize(
    ("key", "names", "said"),
    [
        ("a", ("c",), "form a cycle: a -> c -> b -> a;"),
        ("a", ("a",), "a -> a"),
        ("a", ("nobody",), "nobody, which does not exist"),
        ("a", ("999999999999",), "999999999999, which does not exist"),
    ],
)
def test_a_cycle_or_an_unknown_task_is_refused(rig: Rig, key: str, names: tuple[str, ...], said: str) -> None:
    rig.enqueue({"a": [], "b": ["a"], "c": ["b"]})
    with pytest.raises(BadInput, match=said):
        edit(rig, key, depends_on=names)
    assert rig.names(key) == ["enqueued"]


@pytest.mark.promise("S8")
def test_a_cycle_through_another_plan_is_found(rig: Rig) -> None:
    rig.enqueue({"a": []})
    rig.enqueue({"x": [str(rig.id("a"))]}, plan="second")
    with pytest.raises(BadInput, match="form a cycle: a -> x -> a;"):
        edit(rig, "a", depends_on=(str(rig.id("x")),))


def test_there_is_no_such_task(rig: Rig) -> None:
    with pytest.raises(NotFound):
        rig.do(EditTask(task_id=5, actor="ada", given={"title": "x"}))


# -- a whole plan


def test_a_plan_becomes_what_its_file_says(rig: Rig) -> None:
    rig.register()
    assert update(rig, {"a": [], "b": ["a"], "c": ["b"], "d": []}).added == 4
    answer = update(rig, {"new": [], "a": ["new"], "c": ["a"], "d": []}, a={"priority": 8}, d={"parent": "a"})
    diff = answer.diff
    assert (answer.added, diff.added, diff.restored) == (1, ("new",), ())
    assert [(change.key, change.fields) for change in diff.changed] == [
        ("a", ("depends_on", "priority")),
        ("c", ("depends_on",)),
        ("d", ("parent",)),
    ]
    assert [change.key for change in diff.removed] == ["b"]
    assert rig.views()["b"].why == "taken out of its plan file"
    assert rig.names("b")[-1] == "cancelled"
    assert (rig.task("a").unmet, rig.task("c").unmet) == (1, 1)
    assert kept(rig)["d"].parent == "a"
    again = update(
        rig, {"new": [], "a": ["new"], "c": ["a"], "d": []}, a={"priority": 8}, d={"parent": "a"}
    ).diff
    assert (again.added, again.changed, again.removed, again.restored) == ((), (), (), ())


def test_times_are_compared_and_applied(rig: Rig) -> None:
    plain = {"a": {"delay_s": 3600}, "b": {"expires_s": 3600}, "c": {}}
    update(rig, dict.fromkeys(plain, ()), **plain)
    added_ms = rig.clock.now().wall_ms
    rig.clock.advance(60)
    assert update(rig, dict.fromkeys(plain, ()), **plain).diff.changed == ()
    later = {"a": {"delay_s": 7200}, "b": {}, "c": {"not_before_ms": added_ms + 90_000, "estimated_s": 60}}
    changed = update(rig, dict.fromkeys(plain, ()), **later).diff.changed
    assert {change.key: change.fields for change in changed} == {
        "a": ("not_before_ms",),
        "b": ("expires_at_ms",),
        "c": ("estimated_s", "not_before_ms"),
    }
    tasks = {key: rig.task(key) for key in plain}
    assert [task.next_attempt_at_ms for task in tasks.values()] == [
        added_ms + 7200_000,
        None,
        added_ms + 90_000,
    ]
    assert (tasks["b"].expires_at_ms, tasks["c"].estimated_s) == (None, 60)
    rig.register()
    assert [job.key for job in rig.claim()] == ["b"]
    now = {"a": {}, "b": {}, "c": {"estimated_s": 60}}
    update(rig, dict.fromkeys(plain, ()), **now)
    assert [job.key for job in rig.claim()] == ["a", "c"]


def test_a_time_that_has_passed_is_no_change(rig: Rig) -> None:
    plain = {"a": {"delay_s": 60, "expires_s": 120}}
    update(rig, {"a": ()}, **plain)
    rig.register()
    rig.clock.advance(61)
    rig.do(c.Promote(task_id=rig.id("a"), actor="ada"))
    (job,) = rig.started()
    rig.do(fail(job, ErrorKind.INVALID))
    rig.do(c.Retry(task_id=job.task_id, actor="ada"))
    rig.clock.advance(3600)
    assert update(rig, {"a": ()}, **plain).diff.changed == ()
    assert rig.task("a").expires_at_ms is None, "a retry is not to expire by the old wish"


def test_an_edited_time_keeps_the_pause_before_a_retry(rig: Rig) -> None:
    rig.enqueue({"a": ()})
    rig.register()
    (job,) = rig.started()
    rig.do(fail(job))
    due_ms = rig.task("a").next_attempt_at_ms
    edit(rig, "a", not_before_ms=1)
    assert rig.task("a").next_attempt_at_ms == due_ms
    edit(rig, "a", not_before_ms=due_ms + 1)
    assert rig.task("a").next_attempt_at_ms == due_ms + 1


def test_two_tasks_may_change_places(rig: Rig) -> None:
    update(rig, {"a": [], "b": ["a"]})
    update(rig, {"a": ["b"], "b": []})
    assert (rig.task("a").unmet, rig.task("b").unmet) == (1, 0)


def test_what_runs_or_is_done_stays_and_is_told(rig: Rig) -> None:
    rig.register()
    update(rig, {"a": [], "b": [], "x": [], "y": []})
    a, b, x, y = rig.started()
    rig.do(complete(b))
    rig.do(complete(y))
    diff = update(rig, {"a": [], "b": []}, a={"title": "A"}, b={"title": "B"}).diff
    assert [(change.key, change.kept) for change in diff.changed] == [
        ("a", "it runs now"),
        ("b", "it is completed"),
    ]
    assert [(change.key, change.kept) for change in diff.removed] == [("x", "it runs now"), ("y", "")]
    assert rig.statuses() == {"a": "RUNNING", "b": "COMPLETED", "x": "RUNNING", "y": "ARCHIVED"}
    rig.do(complete(x))
    rig.do(complete(a))
    assert [change.key for change in update(rig, {"a": [], "b": []}).diff.removed] == ["x"]
    (back,) = update(rig, {"a": [], "b": [], "y": []}).diff.changed
    assert (back.key, back.kept) == (
        "y",
        "it is archived, and done: tick its box, or give it another id to have it done again",
    )


def test_a_cycle_with_what_stays_is_refused_and_nothing_is_changed(rig: Rig) -> None:
    rig.register()
    update(rig, {"a": [], "b": ["a"], "d": []})
    update(rig, {"a": [], "b": ["a"], "d": ["b"]})
    a, *_ = rig.started()
    events = rig.events()
    with pytest.raises(BadInput, match="cycle"):
        update(rig, {"a": ["new"], "b": [], "d": [], "new": ["d"]} | {"d": ["new"]})
    assert rig.events() == events
    assert rig.attempt(a).open


def test_what_is_put_back_into_the_file_lives_again(rig: Rig) -> None:
    rig.register()
    update(rig, {"a": [], "b": []})
    rig.do(cancel(rig.id("b")))
    update(rig, {"b": []})
    assert rig.statuses() == {"a": "CANCELLED", "b": "CANCELLED"}
    diff = update(rig, {"a": [], "b": []}, a={"title": "A"}).diff
    assert (diff.restored, rig.statuses()) == (("a",), {"a": "PENDING", "b": "CANCELLED"})
    assert [job.title for job in rig.claim()] == ["A"]


def test_what_is_put_back_with_a_tick_is_done(rig: Rig) -> None:
    update(rig, {"a": [], "b": []})
    update(rig, {"b": []})
    answer = update(rig, {"a": [], "b": ["a"]}, a={"done": True, "title": "A"})
    assert (answer.diff.restored, answer.completed) == (("a",), ("a",))
    assert rig.statuses() == {"a": "COMPLETED", "b": "PENDING"}
    assert rig.task("b").ready and rig.names("a")[-2:] == ["retried", "completed"]


def test_what_never_stood_in_the_file_is_not_taken_out_with_it(rig: Rig) -> None:
    update(rig, {"a": []})
    rig.enqueue({"by-hand": []}, plan="api")
    assert update(rig, {"b": []}).diff.removed[0].key == "a"
    assert rig.statuses()["by-hand"] == "PENDING"


def test_a_box_that_was_ticked_completes_its_task_and_counts_for_a_new_edge(rig: Rig) -> None:
    rig.register()
    update(rig, {"a": [], "b": ["a"], "c": []})
    answer = update(rig, {"a": [], "b": ["a"], "c": ["a", "b"]}, a={"done": True}, b={"title": "B"})
    assert answer.completed == ("a",)
    assert (rig.task("b").unmet, rig.task("c").unmet) == (0, 1)


KEYS = "abcdef"


@st.composite
def plans(draw: st.DrawFn) -> dict[str, tuple[list[str], dict[str, Any]]]:
    """An acyclic plan over some of the keys, in any direction."""
    order = draw(st.permutations(KEYS))[: draw(st.integers(1, len(KEYS)))]
    return {
        key: (
            draw(st.lists(st.sampled_from(order[:at]), unique=True, max_size=2)) if at else [],
            {"priority": draw(st.integers(4, 6)), "on_failed": draw(st.sampled_from(list(FailedDependency)))},
        )
        for at, key in enumerate(order)
    }


STEPS = st.one_of(
    plans(),
    st.tuples(st.just("while ending"), plans()),
    st.tuples(st.sampled_from(["work", "fail", "cancel", "pause", "resume", "retry"]), st.integers(0, 5)),
)


@properties(150)
@given(st.lists(STEPS, max_size=14))
def test_whatever_is_edited_meanwhile_no_task_is_lost_and_no_promise_broken(steps: list[Any]) -> None:
    rig = Rig(Policy(lease_s=LEASE_S, failures_max=0))
    rig.register()
    for step in steps:
        if isinstance(step, dict):
            _follow(rig, step)
        elif step[0] == "while ending":
            ends = [complete(job) if job.key < "d" else fail(job, ErrorKind.INVALID) for job in rig.started()]
            _follow(rig, step[1], *ends)
        else:
            _work(rig, *step)
        rig.audit()
        assert drive(rig.reads.suspects(0, 100))[1] == [], "a row disagrees with its edges"
    tasks = [rig.task(view.id) for view in rig.views().values()]
    events = [event_of(event) for event in rig.events() if event.key != "(plan)"]
    edges = rig.store._writer.execute("SELECT parent_id, child_id FROM dependencies WHERE met").fetchall()
    done = {task.id for task in tasks if task.status is TaskStatus.COMPLETED and task.generation == 1}
    edges = [edge for edge in edges if edge[0] in done]
    found = check(History(tasks=tasks, attempts=[], events=events, dependencies=edges))
    assert [finding.violations for finding in found if finding.violations] == []
    rig.store.close()


def _follow(rig: Rig, plan: dict[str, tuple[list[str], dict[str, Any]]], *before: c.Command) -> None:
    """The plan's update, in one batch behind other commands."""
    tasks = {key: after for key, (after, _) in plan.items()}
    command = enqueue(tasks, source=FILE, specs={key: fields for key, (_, fields) in plan.items()})
    update = UpdatePlan(plan="api", source=FILE, tasks=command.tasks, actor="ada")
    events = rig.events()
    *_, outcome = rig.apply(*before, update).outcomes
    if isinstance(outcome, BadInput):  # a cycle with what cannot be changed now
        assert "cycle" in outcome.message and (before or rig.events() == events)
        return
    assert isinstance(outcome, PlanUpdated)
    now = kept(rig)
    wanted = tuple(map(Policy().filled, command.tasks))
    for spec in wanted:
        task = now[spec.key or ""]
        if task.status in {TaskStatus.PENDING, TaskStatus.PAUSED, TaskStatus.ABORTED}:
            assert task_fields_of(task) == task_fields_of(spec)
    left = compare("api", wanted, now)
    assert (left.added, left.restored) == ((), ())
    assert all(change.kept for change in (*left.changed, *left.removed))


def _work(rig: Rig, what: str, number: int) -> None:
    views = sorted(rig.views().values(), key=lambda view: view.key)
    if not views:
        return
    task_id = views[number % len(views)].id
    if what in {"work", "fail"}:
        rig.clock.advance(400)
        rig.beat("worker-aaaaaaaa")
        for job in rig.started(slots=1):
            if number % 3:
                rig.do(complete(job) if what == "work" else fail(job, ErrorKind.INVALID))
        return
    command = {
        "cancel": cancel(task_id),
        "pause": c.Pause(task_id=task_id, actor="ada"),
        "resume": c.Resume(task_id=task_id, actor="ada"),
        "retry": c.Retry(task_id=task_id, actor="ada"),
    }[what]
    rig.apply(command)
