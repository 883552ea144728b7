"""Nobody begins a task while it is not settled what its box in the plan's file says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_rig import FixedChance, Rig
from msgspec.structs import replace
from plan_world import World, held

from muster.app import core
from muster.app.core import Owner
from muster.app.settings import load_config
from muster.config.project import Project
from muster.engine.batch import drive
from muster.engine.commands import Engine
from muster.engine.services.plan_syncer import PlanSyncer
from muster.model.answers import Claimed
from muster.model.commands import (
    Cancel,
    Claim,
    CompleteByPerson,
    Fail,
    Pause,
    Register,
    Release,
    Resume,
    Retry,
    SetCrew,
)
from muster.model.errors import Conflict, IllegalMove, MusterError
from muster.model.plan_sync import SetSync
from muster.model.rows import DEFAULT_WORKSPACE
from muster.model.states import CrewStatus, ErrorKind, PauseReason
from muster.plans.files import LocalPlanFiles
from muster.ports.runtime import READY
from muster_command import run_muster

TWO = "# P\n\n- [ ] A {#a}\n- [ ] B {#b}\n"
WORKER = Register(
    worker_id="w", hostname="h", pid=1, pid_start=1, boot_id="b", agents=("a",), general=("a",), slots=9
)


@pytest.fixture
def world(rig: Rig, tmp_path: Path) -> World:
    return World(rig, tmp_path, TWO)


def look(world: World) -> None:
    asyncio.run(world.syncer.run_once())


def test_an_edited_box_is_not_begun_before_it_is_taken_in(world: World) -> None:
    world.write("] A", "] Another", "- [ ] B {#b}\n", "")
    world.pass_s(3)
    assert held(world) == {"a", "b"} and not world.rig.started(slots=9)
    world.pass_s(40)
    assert held(world) == set()
    assert [job.title for job in world.rig.started(slots=9)] == ["Another"]


def test_one_that_is_completed_or_cancelled_meanwhile_is_left_as_it_is(world: World) -> None:
    world.write("] A", "] Another", "] B", "] Bee")
    world.pass_s(3)
    a, b = (world.rig.id(f"p/{key}") for key in "ab")
    world.rig.do(CompleteByPerson(task_id=a, actor="ada"))
    world.rig.do(Cancel(task_id=b, actor="ada"))
    world.pass_s(40)
    assert world.statuses == {"a": "COMPLETED", "b": "CANCELLED"} and held(world) == set()


def test_what_becomes_a_question_while_it_is_held_is_one(world: World) -> None:
    world.write("] A", "] Another")
    world.pass_s(3)
    assert world.rig.views()["a"].paused_reason is PauseReason.EDIT
    world.head = "h2"
    world.pass_s(3)
    assert set(world.conflicts) == {"a"} and world.rig.views()["a"].paused_reason is PauseReason.FILE


def test_one_that_is_edited_back_is_free_again(world: World) -> None:
    world.write("] A", "] Another")
    world.pass_s(3)
    world.write("] Another", "] A")
    world.pass_s(3)
    assert held(world) == set() and world.statuses == {"a": "PENDING", "b": "PENDING"}


@pytest.mark.parametrize("accept", [True, False])
def test_what_a_person_is_asked_about_is_not_begun_before_the_answer(world: World, *, accept: bool) -> None:
    world.write("] A", "] Another")
    world.restart()
    look(world)
    assert held(world) == {"a"} and world.conflicts == {}, "an editor may be at it"
    world.pass_s(3)
    assert "changed before this crew watched" in world.conflicts["a"] and held(world) == {"a"}
    assert [job.key for job in world.rig.started(slots=9)] == ["b"]
    with pytest.raises(IllegalMove, match="its box in the plan's file says otherwise"):
        world.rig.do(Resume(task_id=world.rig.id("p/a"), actor="ada"))
    asyncio.run(world.syncer.decide("p", accept, ["a"], "ada"))
    assert held(world) == set()
    assert [job.title for job in world.rig.started(slots=9)] == ["Another" if accept else "A"]
    world.pass_s(40)
    assert held(world) == set()


def test_the_first_look_is_told_of_once_all_files_were_compared(world: World) -> None:
    told: list[set[str]] = []
    world.write("] A", "] Another")
    world.restart(looked=lambda: told.append(held(world)))
    assert told == []
    for _ in range(2):
        look(world)
    assert told == [{"a"}]


def test_what_a_person_has_paused_meanwhile_stays_paused(world: World) -> None:
    world.write("] A", "] Another")
    world.pass_s(3)
    world.rig.do(Pause(task_id=world.rig.id("p/a"), actor="ada"))
    world.pass_s(40)
    view = world.rig.views()["a"]
    assert (view.title, view.status, view.paused_reason) == ("Another", "PAUSED", "user")
    world.rig.do(Resume(task_id=view.id, actor="ada"))
    assert world.statuses["a"] == "PENDING"


def test_one_that_runs_goes_on_and_is_held_before_its_next_try(world: World) -> None:
    job = world.claim("a")
    world.write("] A", "] Another")
    world.restart()
    look(world)
    assert world.statuses["a"] == "RUNNING" and held(world) == set()
    world.rig.do(Fail(task_id=job.task_id, epoch=job.epoch, kind=ErrorKind.CRASH, message="it fell over"))
    assert held(world) == {"a"}


@pytest.mark.parametrize("accept", [True, False])
def test_an_answer_to_what_was_asked_before_the_last_edit_is_none(world: World, *, accept: bool) -> None:
    world.write("] A", "] Another")
    world.restart()
    world.pass_s(3)
    world.write("] Another", "] Yet another")
    with pytest.raises(
        Conflict, match="a: its box was changed again since you were asked; nothing was changed"
    ):
        asyncio.run(world.syncer.decide("p", accept, ["a"], "ada"))
    assert held(world) == {"a"}
    assert asyncio.run(world.syncer.sync("p")).done == "edited: a"
    assert held(world) == set() and world.rig.views()["a"].title == "Yet another"


def test_neither_is_one_to_a_box_that_is_gone_since(world: World) -> None:
    world.write("] A", "] Another")
    world.restart()
    world.pass_s(3)
    world.write("- [ ] Another {#a}\n", "")
    with pytest.raises(Conflict, match="changed again"):
        asyncio.run(world.syncer.decide("p", True, [], "ada"))
    assert held(world) == {"a"}


def test_what_a_person_brings_back_is_held_again(world: World) -> None:
    world.write("] A", "] Another")
    world.restart()
    world.pass_s(3)
    number = world.rig.id("p/a")
    for away, back in ((Pause, Resume), (Cancel, Retry)):
        world.rig.do(away(task_id=number, actor="ada"))
        assert held(world) == set()
        assert world.rig.do(back(task_id=number, actor="ada")).status == "PAUSED", "that is said at once"
        assert held(world) == {"a"}


def test_a_lost_attempt_is_not_begun_again_as_it_was(world: World) -> None:
    job = world.claim("a")
    world.write("] A", "] Another")
    world.pass_s(40)
    assert world.statuses["a"] == "RUNNING"
    world.rig.do(Release(task_id=job.task_id, epoch=job.epoch, reason="its worker drains"))
    assert held(world) == {"a"} and not [one for one in world.rig.claim() if one.key == "a"]
    world.pass_s(2)
    assert {one.key: one.title for one in world.rig.claim()}["a"] == "Another"


def test_it_is_held_before_the_file_was_left_alone_for_long(world: World) -> None:
    """Nor does git that is at work keep it from that."""
    world.head = None
    world.write("] A", "] Another")
    look(world)
    assert held(world) == set(), "it may be half written"
    world.pass_s(1)
    assert held(world) == {"a"} and world.conflicts == {}
    world.head = "h2"
    world.pass_s(3)
    assert "git" in world.conflicts["a"]


def test_what_waits_behind_a_question_waits_for_a_person(world: World) -> None:
    world.reachable = True
    world.restart()
    world.pass_s(3)
    jobs = {job.key: job for job in world.rig.started(slots=9)}
    world.rig.do(Release(task_id=jobs["b"].task_id, epoch=1, reason="its worker drains"))
    world.write("[ ] B", "[x] Bee")
    world.pass_s(40)
    assert set(world.conflicts) == {"b"} and world.rig.views()["b"].paused_reason is PauseReason.FILE


def test_a_plan_that_is_added_meanwhile_is_watched_from_then_on(world: World) -> None:
    (world.folder / "more.md").write_text("# More\n\n- [ ] M {#m after=n}\n- [ ] N {#n}\n")
    world.rig.do(world.wanted("more.md", "", (world.folder / "more.md").read_bytes()))
    look(world)
    (world.folder / "more.md").write_text("# More\n\n- [ ] Em {#m after=n}\n- [ ] N {#n}\n")
    world.pass_s(40)
    assert world.conflicts == {} and world.rig.views()["m"].title == "Em"


def test_an_unreadable_file_frees_nothing_but_what_is_answered(world: World) -> None:
    world.write("] A", "] Another", "] B", "] Bee")
    world.restart()
    world.pass_s(3)
    world.write("{#b}", "{#b prioirty=3}")
    world.pass_s(10)
    assert held(world) == {"a", "b"}
    asyncio.run(world.syncer.decide("p", False, ["a"], "ada"))
    assert held(world) == {"b"}


def test_an_unreadable_file_is_not_in_step_for_whoever_accepts_all(world: World) -> None:
    world.write("{#b}", "{#b prioirty=3}")
    world.pass_s(10)
    assert "prioirty" in asyncio.run(world.syncer.decide("p", True, [], "ada")).problem


def test_a_refused_update_frees_nothing(world: World) -> None:
    (world.folder / "more.md").write_text("# More\n\n- [ ] Draw the map {#m}\n")
    world.rig.do(world.wanted("more.md", "", (world.folder / "more.md").read_bytes()))
    world.write("] A", "] Another", "- [ ] B {#b}\n", "- [ ] B {#b}\n- [ ] Draw the map {#m}\n")
    world.restart()
    look(world)
    assert held(world) == {"a"}
    with pytest.raises(MusterError):
        world.rig.do(replace(world.wanted("plan.md", "", world.text.encode()), actor="ada"))
    assert held(world) == {"a"}


def test_an_update_leaves_what_runs_to_be_held_after_its_attempt(world: World) -> None:
    job = world.claim("a")
    world.write("] A", "] Another", "] B", "] Bee")
    world.pass_s(2)
    world.rig.do(replace(world.wanted("plan.md", "", world.text.encode()), actor="ada"))
    world.rig.do(Release(task_id=job.task_id, epoch=job.epoch, reason="its worker drains"))
    assert held(world) == {"a"}


def movable(world: World) -> int:
    return sum(view.paused_reason is PauseReason.EDIT for view in world.rig.views().values())


def test_what_only_a_person_can_end_moves_by_itself_no_more(world: World) -> None:
    """Or a run would wait for it without end."""
    world.write("] A", "] Another")
    world.pass_s(3)
    assert movable(world) == 1
    world.write("{#b}", "{#b prioirty=3}")
    world.pass_s(40)
    assert held(world) == {"a"} and movable(world) == 0
    world.write("{#b prioirty=3}", "{#b}", "] Another", "] A")
    world.pass_s(40)
    world.head = "h2"
    world.write("- [ ] B {#b}", "- [ ] N {#n}\n- [ ] B {#b}")
    world.pass_s(3)
    world.write("{#b}", "{#b after=n}")
    world.pass_s(40)
    assert set(world.conflicts) == {"n"} and held(world) == {"b"} and movable(world) == 0


def test_a_file_that_is_gone_twice_holds_nothing(world: World) -> None:
    away = world.folder / "elsewhere.md"
    for _ in range(2):
        world.path.rename(away)
        world.pass_s(15)
        assert held(world) == set()
        away.rename(world.path)
        world.write("] A", "] Another") if "] A " in world.text else None
        world.pass_s(2)
        assert held(world) == {"a"}
    world.path.rename(away)
    world.pass_s(15)
    assert held(world) == set()


def test_an_attribute_that_is_taken_out_is_an_edit(world: World) -> None:
    world.write("{#a}", "{#a retries=7}")
    world.pass_s(40)
    world.write("{#a retries=7}", "{#a}")
    world.restart()
    look(world)
    assert held(world) == {"a"}
    world.pass_s(3)
    assert set(world.conflicts) == {"a"}


def test_nothing_is_held_for_a_file_that_is_gone(world: World) -> None:
    world.write("] A", "] Another")
    world.restart()
    look(world)
    assert held(world) == {"a"}
    world.path.rename(world.folder / "elsewhere.md")
    world.pass_s(15)
    assert held(world) == set() and world.statuses["a"] == "PENDING"
    (world.folder / "elsewhere.md").rename(world.path)
    world.pass_s(5)
    assert held(world) == {"a"}


def test_other_settings_ask_nobody_and_hold_nothing(world: World) -> None:
    """The file says what it said; what it leaves open is another number now."""
    rig = world.rig
    rig.policy = replace(rig.policy, retries=7)
    rig.engine = Engine(rig.store, FixedChance(), rig.policy)
    world.restart()
    look(world)
    assert world.conflicts == {} and held(world) == set()
    world.pass_s(40)
    assert {view.max_retries for view in rig.views().values()} == {7}


def test_an_owner_gives_nothing_out_before_it_has_compared_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that are there already ask as soon as it answers."""
    monkeypatch.setattr(core, "FIRST_LOOK_S", 600.0)
    project = Project(tmp_path)
    (tmp_path / "muster.toml").write_text('agent = "a"\n[agents.a]\ncommand = ["true"]\n')
    (tmp_path / "plan.md").write_text(TWO)
    assert run_muster(tmp_path, "plan", "add", "plan.md").returncode == 0

    async def work() -> None:
        async with Owner(project, load_config(tmp_path)) as owner:
            await owner.take_over()
            services = await owner.services()
            engine = owner.batcher.of(DEFAULT_WORKSPACE)
            await engine.execute(SetCrew(status=CrewStatus.RUNNING))
            await engine.execute(WORKER)
            claim = Claim(worker_id="w", request_id="r", slots=9)
            assert await engine.execute(claim) == Claimed(jobs=())
            with owner.wakeups.listen(READY) as hints:
                (syncer,) = (one for one in services if isinstance(one, PlanSyncer))
                await syncer.run_once()
                await asyncio.wait_for(hints.wait(60), 10)
            given = await engine.execute(claim)
            assert isinstance(given, Claimed) and {job.key for job in given.jobs} == {"a"}

    asyncio.run(work())


def test_a_plan_whose_file_says_what_it_said_is_what_settings_make_of_it(world: World) -> None:
    """As with another usual agent, or another order."""
    world.agent = "other"
    world.restart()
    look(world)
    assert world.conflicts == {} and held(world) == set()
    assert {view.wanted_agent for view in world.rig.views().values()} == {"other"}
    world.agent = ""
    world.write("] A", "] Another")
    world.restart()
    look(world)
    world.pass_s(3)
    assert set(world.conflicts) == {"a", "b"}, "nobody knows whose doing it is"


def test_a_file_without_a_digest_says_nothing_of_what_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose boxes are not where they were expected."""
    read = LocalPlanFiles.read
    monkeypatch.setattr(LocalPlanFiles, "read", lambda *given: read(*given)._replace(text=""))
    plan = drive(world.rig.reads.plan_sources())[0]
    state = drive(world.rig.reads.sync_state(plan.id))
    world.rig.do(SetSync(plan_id=plan.id, state=replace(state, text="")))
    world.write("] A", "] Another")
    world.restart()
    look(world)
    assert held(world) == {"a"}
    world.pass_s(3)
    assert set(world.conflicts) == {"a"}


CONFLICTED = "<<<<<<< HEAD\n- [ ] Mine {#a}\n%s=======\n- [ ] Theirs {#a}\n>>>>>>> other\n"


@pytest.mark.parametrize("base", ["", "||||||| 1a2b3c\n- [ ] A {#a}\n"])
def test_what_stands_between_the_markers_of_a_conflict_is_not_begun(world: World, base: str) -> None:
    world.head = None
    world.write("- [ ] A {#a}\n", CONFLICTED % base)
    world.pass_s(40)
    assert held(world) == {"a"}
    assert [job.key for job in world.rig.started(slots=9)] == ["b"]
    world.restart()
    world.pass_s(5)
    assert held(world) == {"a"}
    world.write(text=TWO)
    world.head = "h2"
    world.pass_s(40)
    assert held(world) == set() and [job.key for job in world.rig.started(slots=9)] == ["a"]


def test_what_only_one_side_of_a_conflict_has_changed_is_held_until_that_is_answered(world: World) -> None:
    world.head = None
    world.write(
        "- [ ] A {#a}\n", "<<<<<<< HEAD\n- [ ] A {#a}\n=======\n- [ ] C {#a}\n>>>>>>> x\n", "] B", "] Bee"
    )
    world.pass_s(40)
    assert held(world) == {"a", "b"} and not world.rig.started(slots=9)
    world.write(text=TWO.replace("] A", "] C"))
    world.pass_s(40)
    assert held(world) == {"a"}
    assert world.conflicts == {"a": "edited: git was at work at the same time"}
