"""Work that waits for a review is not given up because its box was edited, taken out or ticked."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from engine_rig import Rig, complete
from plan_world import World

from muster.model.commands import Accept, Declare, Fail, Release, Resume
from muster.model.edits import EditTask
from muster.model.states import ErrorKind

TWO = "# P\n\n- [ ] A {#a}\n- [ ] B {#b}\n"
EDITS = {"edited": ("] A", "] Another"), "removed": ("- [ ] A {#a}\n", ""), "ticked": ("[ ] A", "[x] A")}


@pytest.fixture
def world(rig: Rig, tmp_path: Path) -> World:
    return World(rig, tmp_path, TWO)


def to_review(world: World, job: Any) -> None:
    end = Fail(
        task_id=job.task_id, epoch=job.epoch, kind=ErrorKind.REVIEW, message="it is for you to look at"
    )
    world.rig.do(end)


@pytest.mark.parametrize("edit", sorted(EDITS))
@pytest.mark.parametrize("early", [True, False], ids=["while it runs", "in review"])
def test_its_person_is_asked_and_may_accept_the_work_first(world: World, edit: str, *, early: bool) -> None:
    job = world.claim("a")
    if early:
        world.write(*EDITS[edit])
        world.pass_s(60)
    to_review(world, job)
    if not early:
        world.write(*EDITS[edit])
    world.pass_s(60)
    # A tick while it runs was asked about then: an agent may have made it.
    why = "an agent had it" if early and edit == "ticked" else "its work is done and not published yet"
    assert world.conflicts["a"].startswith(f"{edit}: {why}")
    view = world.rig.views()["a"]
    assert (view.status, view.paused_reason, view.title) == ("PAUSED", "review", "A")
    world.rig.do(Accept(task_id=job.task_id, actor="ada"))
    (again,) = [one for one in world.rig.started(slots=9) if one.key == "a"]
    assert again.publishes == job.epoch, "what was accepted is published, and not held"
    world.rig.do(complete(again))
    world.pass_s(60)
    ended = "ARCHIVED" if edit == "removed" else "COMPLETED"
    assert world.statuses["a"] == ended and world.conflicts == {}


def test_with_the_word_of_a_person_it_is_done_again_as_the_box_says(world: World) -> None:
    to_review(world, world.claim("a"))
    world.write(*EDITS["edited"])
    world.pass_s(60)
    asyncio.run(world.syncer.decide("p", True, ["a"], "ada"))
    view = world.rig.views()["a"]
    assert (view.status, view.title, view.error) == ("PENDING", "Another", "")
    (again,) = [one for one in world.rig.started(slots=9) if one.key == "a"]
    assert (again.publishes, again.sent_back, again.accepted) == (None, "", None)


def test_an_edit_that_a_person_takes_after_accepting_the_work_is_reviewed_anew(world: World) -> None:
    job = world.claim("a")
    to_review(world, job)
    world.write(*EDITS["edited"])
    world.pass_s(3)
    world.rig.do(Accept(task_id=job.task_id, actor="ada"))
    world.pass_s(3)
    assert world.statuses["a"] == "PENDING", "its work is published, and not held"
    asyncio.run(world.syncer.decide("p", True, ["a"], "ada"))
    (again,) = [one for one in world.rig.started(slots=9) if one.key == "a"]
    assert (again.title, again.publishes, again.accepted) == ("Another", None, None)


@pytest.mark.parametrize("edit", sorted(EDITS))
def test_what_came_with_git_is_asked_about_after_the_review_as_well(world: World, edit: str) -> None:
    job = world.claim("a")
    to_review(world, job)
    world.head = "h2"
    world.write(*EDITS[edit])
    world.pass_s(5)
    assert "git" in world.conflicts["a"]
    world.rig.do(Resume(task_id=job.task_id, actor="ada"))
    world.pass_s(60)
    assert "git" in world.conflicts["a"] and world.rig.views()["a"].title == "A"
    assert world.statuses["a"] == "PAUSED", "held for its file"


def test_an_edit_made_in_review_is_taken_in_once_the_work_goes_back(world: World) -> None:
    job = world.claim("a")
    to_review(world, job)
    world.write(*EDITS["edited"])
    world.pass_s(60)
    world.rig.do(Resume(task_id=job.task_id, actor="ada"))
    world.pass_s(3)
    assert world.conflicts == {} and world.rig.views()["a"].title == "Another"


def test_while_accepted_work_is_published_nothing_is_asked(world: World) -> None:
    job = world.claim("a")
    to_review(world, job)
    world.rig.do(Accept(task_id=job.task_id, actor="ada"))
    (again,) = [one for one in world.rig.started(slots=9) if one.key == "a"]
    world.write(*EDITS["edited"])
    world.pass_s(40)
    assert world.conflicts == {}
    world.rig.do(complete(again))
    world.pass_s(3)
    assert world.conflicts == {} and world.statuses["a"] == "COMPLETED"


def test_done_work_that_could_not_be_published_is_not_dropped_for_an_edit(world: World) -> None:
    job = world.claim("a")
    done = Declare(task_id=job.task_id, epoch=job.epoch, by_worker=True)
    world.rig.do(done)
    world.rig.do(Release(task_id=job.task_id, epoch=job.epoch, reason="its worker drains"))
    world.write(*EDITS["edited"])
    world.pass_s(60)
    assert "not published yet" in world.conflicts["a"]


def test_a_rejected_edit_leaves_the_review_as_it_is(world: World) -> None:
    job = world.claim("a")
    to_review(world, job)
    world.write(*EDITS["edited"])
    world.pass_s(60)
    asyncio.run(world.syncer.decide("p", False, ["a"], "ada"))
    world.pass_s(60)
    assert world.rig.views()["a"].paused_reason == "review"
    world.rig.do(Accept(task_id=job.task_id, actor="ada"))
    (again,) = [one for one in world.rig.started(slots=9) if one.key == "a"]
    assert again.publishes == job.epoch


def test_an_edit_past_the_file_says_that_the_work_is_done_anew(world: World) -> None:
    job = world.claim("a")
    to_review(world, job)
    world.rig.do(EditTask(task_id=job.task_id, given={"title": "Another"}, actor="ada"))
    assert world.rig.views()["a"].status == "PENDING"
    last = world.rig.events("a")[-1]
    assert last.message == "title edited by ada; what attempt 1 has done is not published: it is done anew"
