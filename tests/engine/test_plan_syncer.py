"""What is taken into a plan from its file, and what is not: real files, a real store, a clock of the tests."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from engine_rig import Rig, complete, fail
from msgspec.structs import replace
from plan_world import PLAN, World

from muster.engine.batch import drive
from muster.engine.services.plan_standing import standing
from muster.model import commands as c
from muster.model.answers import Answer
from muster.model.errors import Conflict, StoreRefused
from muster.model.people import THE_FILE
from muster.model.plan_sync import SetSync
from muster.model.states import ErrorKind
from muster.model.wording import OPEN_BELOW
from muster.plans.files import PLAN_BYTES_MAX


@pytest.fixture
def world(rig: Rig, tmp_path: Path) -> World:
    return World(rig, tmp_path)


def test_a_tick_is_taken_in_once_the_file_is_left_alone(world: World) -> None:
    world.write("[ ] A", "[x] A")
    world.pass_s(2)
    assert world.statuses["a"] == "PAUSED", "first seen a second ago: it is not begun meanwhile"
    world.pass_s(1)
    assert world.statuses["a"] == "COMPLETED" and world.conflicts == {}
    assert {event.actor for event in world.rig.events("a") if event.event == "completed"} == {THE_FILE}


def test_a_file_that_is_never_left_alone_is_looked_at_all_the_same(world: World) -> None:
    world.write("[ ] A", "[x] A")
    for number in range(15):
        world.write(text=f"{world.text}\nword {number}\n")
        world.pass_s(1)
    assert world.statuses["a"] == "COMPLETED"


def test_a_half_typed_box_starts_nothing(world: World) -> None:
    for typed in ("- [ ] Dep", "- [ ] Deploy to", "- [ ] Deploy to staging {#d}"):
        world.write(text=f"{PLAN}{typed}\n")
        world.pass_s(20)
        assert set(world.statuses) == {"a", "b", "c"}
    world.pass_s(20)
    assert set(world.statuses) == {"a", "b", "c", "d"}
    world.write("staging", "production")
    world.pass_s(20)
    assert world.rig.views()["d"].title == "Deploy to staging"
    world.pass_s(20)
    assert world.rig.views()["d"].title == "Deploy to production"


def test_a_file_is_read_for_the_agents_that_there_are_by_then(world: World) -> None:
    before = {*world.known}
    world.rig.do(c.PutAgent(agent="prog", actor="ada", worker_id="agent-00000001"))
    world.write(text=f"{PLAN}- [ ] D {{#d}}\n")
    world.pass_s(3)
    assert {*world.known} - before == {"prog"}


def test_a_person_may_have_it_at_once(world: World) -> None:
    world.write(text=f"{PLAN}- [ ] D {{#d}}\n")
    told = asyncio.run(world.syncer.sync("p"))
    assert (told.done, set(world.statuses)) == ("added: d", {"a", "b", "c", "d"})


@pytest.mark.parametrize("broken", ["", "```\n", None, "- [ ] Z {#z}\n", "\xff"])
def test_a_file_that_is_not_itself_for_a_while_costs_nothing(world: World, broken: str | None) -> None:
    """Empty, behind an open fence, gone, cut off, in another encoding: and a task ends just then."""
    job = world.claim("a")
    if broken is None:
        world.path.unlink()
    else:
        world.write(text=broken if broken != "```\n" else f"```\n{PLAN}")
        if broken == "\xff":
            world.path.write_bytes(PLAN.encode("utf-16"))
    world.pass_s(4)
    world.rig.do(complete(job))
    world.pass_s(4)
    world.restart()
    world.pass_s(3)
    world.write(text=PLAN)
    world.pass_s(8)
    assert world.text == PLAN.replace("[ ] A", "[x] A"), "its box is owed, also to the next owner"
    assert (world.statuses["b"], world.conflicts) == ("PENDING", {})


def test_a_removed_box_cancels_what_waits_and_never_what_runs(world: World) -> None:
    job = world.claim("a")
    world.write("- [ ] A {#a}\n", "", "- [ ] C {#c after=a}\n", "", " after=a", "")
    world.pass_s(40)
    assert (world.statuses["a"], world.statuses["c"]) == ("RUNNING", "CANCELLED")
    world.rig.do(complete(job))
    world.pass_s(40)
    assert (world.statuses["a"], world.conflicts) == ("ARCHIVED", {})
    assert drive(world.rig.queries.sync_state("p")).owed == (), "nobody looks for its box"


def test_an_edit_of_what_runs_waits_for_its_end(world: World) -> None:
    job = world.claim("a")
    world.write("] A", "] Anew")
    world.pass_s(40)
    assert (world.rig.views()["a"].title, world.conflicts) == ("A", {})
    world.rig.do(fail(job, ErrorKind.INVALID))
    world.pass_s(3)
    assert world.rig.views()["a"].title == "Anew"


@pytest.mark.promise("S19")
@pytest.mark.parametrize("readable", [True, False])
def test_what_is_to_be_done_again_is_done_as_the_file_has_it_now(world: World, readable: bool) -> None:
    """With the text, and after the tasks, that stand beside its box; in one commit, before anybody claims it."""
    world.rig.do(complete(world.claim("a")))
    world.pass_s(3)
    world.write("[x] A {#a}", "[ ] Anew {#a after=new}\n\n  Quite another prompt.", text=None)
    world.write(text=f"{world.text}- [ ] New {{#new}}\n")
    world.pass_s(40)
    assert "as the file has it now" in world.conflicts["a"]
    if not readable:
        world.write(text=f"{world.text}- [ ] Twice {{#new}}\n")
    asyncio.run(world.syncer.decide("p", accept=True, keys=["a"], actor="ada"))
    view = world.rig.views()["a"]
    assert view.status == "PENDING"
    assert (view.title, view.waits_for) == (("Anew", ("new",)) if readable else ("A", ()))
    if readable:
        assert world.rig.claim(slots=9)[0].key != "a"


def test_what_becomes_a_question_while_somebody_asks_is_told(world: World) -> None:
    """It is no difference any more then, and was no question when the standing was read."""
    world.write("] A", "] Anew")
    world.restart()
    found = drive(world.rig.queries.sync_state("p"))
    world.pass_s(40)
    told = asyncio.run(standing(found, world.syncer, world.ticker))
    assert ([one.key for one in told.conflicts], told.untaken) == (["a"], ())


def test_a_group_that_has_nothing_below_it_any_more_is_asked_about(rig: Rig, tmp_path: Path) -> None:
    world = World(rig, tmp_path, "- [ ] Garden {#garden}\n  - [ ] Dig {#dig}\n- [ ] Other {#other}\n")
    world.write(text="- [ ] Garden {#garden}\n- [ ] Other {#other}\n- [ ] Dig {#dig}\n")
    world.pass_s(40)
    assert "is it work of its own?" in world.conflicts["garden"]
    assert {job.key for job in rig.started(slots=9)} == {"dig", "other"}


@pytest.mark.parametrize("done", [True, False])
def test_a_tick_that_appeared_while_its_task_ran_proves_nothing(world: World, done: bool) -> None:
    job = world.claim("a")
    world.write("[ ] A", "[x] A")
    world.pass_s(5)
    assert "proves nothing" in world.conflicts["a"]
    world.rig.do(complete(job) if done else fail(job, ErrorKind.INVALID))
    world.pass_s(5)
    assert world.statuses["a"] == ("COMPLETED" if done else "FAILED")
    assert bool(world.conflicts) is not done


def test_a_tick_after_its_task_has_failed_is_a_persons(world: World) -> None:
    world.rig.do(fail(world.claim("a"), ErrorKind.INVALID))
    world.pass_s(3)
    world.write("[ ] A", "[x] A")
    world.pass_s(3)
    assert (world.statuses["a"], world.conflicts) == ("COMPLETED", {})


def test_a_tick_that_an_agent_could_have_made_waits(world: World) -> None:
    world.reachable = True
    world.restart()
    world.pass_s(3)
    world.claim("a")
    world.write("[ ] B", "[x] B")
    world.pass_s(3)
    assert set(world.conflicts) == {"b"} and world.statuses["b"] == "PENDING"


@pytest.mark.parametrize("late", [0, 10])
def test_what_comes_with_a_moved_head_waits(world: World, late: int) -> None:
    world.write("[ ] A", "[x] A", "] B", "] Bee")
    world.head, now = "h1" if late else "h2", world.head
    if late:
        world.pass_s(late)  # the tick is taken in, the edit has not stood long enough
        world.head = "h2"
    world.pass_s(40)
    assert now == "h1" and set(world.conflicts) == ({"b"} if late else {"a", "b"})
    assert world.statuses["a"] == ("COMPLETED" if late else "PAUSED")
    world.write("] C", "] Cee")
    world.pass_s(40)
    assert world.rig.views()["c"].title == "Cee", "HEAD stands as it stood then"


def test_nothing_is_looked_at_while_git_is_at_work(world: World) -> None:
    world.head = None
    world.write("[ ] A", "[x] A")
    world.pass_s(5)
    world.head = "h2"
    world.pass_s(5)
    assert set(world.conflicts) == {"a"}


@pytest.mark.parametrize("known", [True, False])
def test_what_comes_while_git_is_at_work_for_long_waits_and_goes_on_waiting(
    world: World, *, known: bool
) -> None:
    """As a merge that is not committed; also where nobody knows where HEAD stood before."""
    world.head = None
    if not known:
        plan = drive(world.rig.reads.plan_sources())[0]
        state = drive(world.rig.reads.sync_state(plan.id))
        world.rig.do(SetSync(plan_id=plan.id, state=replace(state, head=None)))
        world.restart()
    world.write("- [ ] C", "- [ ] New {#new}\n- [ ] C")
    world.pass_s(60)
    assert world.conflicts == {"new": "added: git was at work at the same time"}
    world.head = "h2"
    world.pass_s(60)
    assert set(world.conflicts) == {"new"} and "new" not in world.statuses
    world.write("] C", "] Cee")
    world.pass_s(60)
    assert world.rig.views()["c"].title == "Cee"


def test_more_than_five_at_once_wait(world: World) -> None:
    more = "".join(f"- [ ] T{n} {{#t{n}}}\n" for n in range(9))
    world.write(text=PLAN + more)
    world.pass_s(40)
    world.write(text=PLAN + more[: len(more) // 9 * 3])
    world.pass_s(40)
    assert set(world.conflicts) == {f"t{n}" for n in range(3, 9)}
    world.write(*(word for n in range(3) for word in (f"[ ] T{n}", f"[x] T{n}")))
    world.pass_s(3)
    assert [world.statuses[f"t{n}"] for n in (0, 1, 2, 3)] == ["COMPLETED"] * 3 + ["PAUSED"]


def test_an_old_buffer_that_is_written_back_is_ticked_again(world: World) -> None:
    for _ in range(3):
        before = world.text
        if world.statuses["a"] == "PENDING":
            world.rig.do(complete(world.claim("a")))
        world.pass_s(2)
        assert "[x] A" in world.text
        world.path.write_text(PLAN)
        world.pass_s(4)
    assert (world.text, world.conflicts) == (PLAN.replace("[ ] A", "[x] A"), {}), before


def test_a_box_that_is_cleared_later_asks(world: World) -> None:
    world.rig.do(complete(world.claim("a")))
    world.pass_s(60)
    world.write("[x] A", "[ ] A")
    world.pass_s(60)
    assert set(world.conflicts) == {"a"} and "[ ] A" in world.text
    world.write("[ ] A", "[x] A")
    world.pass_s(3)
    assert world.conflicts == {}, "they agree"


def test_a_task_that_is_started_anew_gets_its_box_cleared(world: World) -> None:
    world.rig.do(complete(world.claim("a")))
    world.pass_s(2)
    world.rig.do(c.Retry(task_id=world.rig.id("a"), actor="ada"))
    world.pass_s(5)
    assert (world.text, world.conflicts) == (PLAN, {})
    world.pass_s(60)
    world.write("[ ] A", "[x] A")
    world.pass_s(3)
    assert world.statuses["a"] == "COMPLETED"


def test_what_is_wrong_with_the_file_is_told_until_it_is_put_right(world: World) -> None:
    world.write("{#a}", "{#a after=c}", "[ ] B", "[x] B")
    world.pass_s(5)
    assert world.statuses["b"] == "COMPLETED", "what its boxes say is clear all the same"
    (plan,) = drive(world.rig.reads.plan_sources())
    assert "plan.md:3: these tasks wait for each other" in drive(world.rig.reads.sync_state(plan.id)).problem
    world.write("{#a after=c}", "{#a}")
    world.pass_s(3)
    assert drive(world.rig.reads.sync_state(plan.id)).problem == ""
    assert (world.statuses["b"], world.conflicts) == ("COMPLETED", {})


def test_an_owner_that_dies_between_reading_and_writing_leaves_nothing_undone(world: World) -> None:
    rig = world.rig

    class Dies:
        execute_all = rig.execute_all

        async def execute(self, command: c.Command) -> Answer:
            if isinstance(command, SetSync):
                raise StoreRefused("killed")
            return await rig.execute(command)

    world.restart(Dies())
    world.write("[ ] A", "[x] A", "] C {#c after=a}", "] C {#c after=a}\n- [ ] D {#d}")
    for _ in range(60):
        try:
            world.pass_s(1)
        except StoreRefused:
            break
    world.restart()
    world.pass_s(40)
    assert world.statuses == {"a": "COMPLETED", "b": "PENDING", "c": "PENDING", "d": "PENDING"}
    assert world.conflicts == {} and rig.names("a").count("completed") == 1


def test_a_clock_that_jumps_changes_nothing(world: World) -> None:
    world.write("[ ] A", "[x] A", "] B", "] Bee")
    present = world.rig.clock.present
    world.rig.clock.present = type(present)(present.wall_ms - 86_400_000, present.mono_ms, present.boot_id)
    world.pass_s(3)
    assert world.statuses["a"] == "COMPLETED" and world.rig.views()["b"].title == "B"
    world.rig.clock.present = type(present)(
        present.wall_ms + 86_400_000, world.rig.clock.present.mono_ms, present.boot_id
    )
    world.pass_s(40)
    assert (world.rig.views()["b"].title, world.conflicts) == ("Bee", {})


def test_a_file_that_is_too_large_is_told_and_changes_nothing(world: World) -> None:
    world.write(text=PLAN + " " * PLAN_BYTES_MAX)
    world.pass_s(5)
    (plan,) = drive(world.rig.reads.plan_sources())
    assert "larger than 8 MiB" in drive(world.rig.reads.sync_state(plan.id)).problem
    world.write(text=PLAN.replace("[ ] A", "[x] A"))
    world.pass_s(5)
    assert drive(world.rig.reads.sync_state(plan.id)).problem == ""
    assert world.statuses["a"] == "COMPLETED"


def test_a_link_is_followed_wherever_it_leads(world: World) -> None:
    there = world.folder / "there"
    there.mkdir()
    world.path.rename(there / "real.md")
    world.path.symlink_to("there/real.md")
    world.pass_s(5)
    (there / "real.md").write_text(PLAN.replace("[ ] A", "[x] A"))
    world.pass_s(5)
    assert world.statuses["a"] == "COMPLETED" and world.path.is_symlink()


def test_two_plans_of_one_folder_are_kept_apart(world: World) -> None:
    other = PLAN.replace("# P", "# Q").replace("{#", "{#q")
    (world.folder / "q.md").write_text(other.replace("after=a", "after=qa"))
    world.rig.do(world.wanted("q.md", "", (world.folder / "q.md").read_bytes()))
    world.pass_s(3)
    (world.folder / "q.md").write_text((world.folder / "q.md").read_text().replace("[ ] A", "[x] A"))
    world.write("[ ] B", "[x] B")
    world.pass_s(5)
    assert (world.statuses["a"], world.statuses["qa"], world.statuses["b"]) == (
        "PENDING",
        "COMPLETED",
        "COMPLETED",
    )


def test_a_rejected_edit_holds_no_tick_up(world: World) -> None:
    world.head = "h2"
    world.write("] A", "] Anew")
    world.pass_s(5)
    assert set(world.conflicts) == {"a"}
    asyncio.run(world.syncer.decide("p", False, [], "ada"))
    world.write("[ ] Anew", "[x] Anew")
    world.pass_s(5)
    assert (world.statuses["a"], world.rig.views()["a"].title) == ("COMPLETED", "A")


def test_an_old_buffer_is_decided_on_as_well(world: World) -> None:
    world.rig.do(complete(world.claim("a")))
    world.pass_s(2)
    world.write("[x] A", "[ ] A", "] C", "] Cee")
    world.pass_s(3)
    assert set(world.conflicts) == {"a"}
    world.write("] Cee", "] C")  # now it is what we had replaced
    asyncio.run(world.syncer.decide("p", True, ["a"], "ada"))
    assert world.statuses["a"] == "PENDING"


def test_a_group_that_is_ticked_before_its_tasks_waits_for_a_person(world: World) -> None:
    world.write(text="# P\n\n- [ ] G {#g}\n  - [ ] A {#a}\n  - [ ] B {#b}\n- [ ] C {#c after=g}\n")
    world.pass_s(40)
    world.write("[ ] G", "[x] G")
    world.pass_s(5)
    assert world.statuses["g"] == "PENDING" and world.conflicts["g"] == f"ticked: {OPEN_BELOW}"
    world.write("[ ] A", "[x] A", "[ ] B", "[x] B")
    world.pass_s(5)
    assert world.statuses["g"] == "COMPLETED" and not world.conflicts


@pytest.mark.parametrize("head", ["h1", ""])
def test_a_ticked_group_is_asked_about_until_its_tasks_are_done(rig: Rig, tmp_path: Path, head: str) -> None:
    """Also where the file is in no git repository."""
    world = World(rig, tmp_path, "# P\n\n- [ ] G {#g}\n  - [ ] A {#a}\n- [ ] C {#c after=g}\n", head=head)
    job = world.claim("a")
    world.write("[ ] G", "[x] G")
    world.pass_s(5)
    assert world.conflicts == {"g": f"ticked: {OPEN_BELOW}"}
    rig.do(complete(job))
    world.pass_s(2)
    assert world.statuses["g"] == "COMPLETED" and world.conflicts == {}


INNER = "  - [ ] A {#a}\n  - [ ] H {#h}\n    - [ ] B {#b}\n"
GROUPS = f"# P\n\n- [ ] G {{#g}}\n{INNER}- [ ] C {{#c after=g}}\n- [ ] D {{#d}}\n"


@pytest.mark.promise("S8")
def test_no_word_of_a_person_ends_a_group_before_its_tasks(world: World) -> None:
    world.write(text=GROUPS)
    world.pass_s(40)
    world.head = "h2"
    world.write("[ ] G", "[x] G", "[ ] D", "[x] D")
    world.pass_s(5)
    assert world.conflicts["g"] == f"ticked: {OPEN_BELOW}" and "HEAD" in world.conflicts["d"]
    for keys in ["g"], ["d", "g"]:
        with pytest.raises(Conflict, match=f"g: {OPEN_BELOW}; nothing was changed"):
            asyncio.run(world.syncer.decide("p", True, keys, "ada"))
        assert (world.statuses["g"], world.statuses["d"]) == ("PENDING", "PAUSED")
        assert {*world.conflicts} == {"d", "g"}
    said = asyncio.run(world.syncer.decide("p", True, [], "ada"))
    assert said.done == "accepted: d; not accepted: g" and {*world.conflicts} == {"g"}
    assert (world.statuses["g"], world.statuses["d"]) == ("PENDING", "COMPLETED")
    asyncio.run(world.syncer.decide("p", False, ["g"], "ada"))
    assert "[ ] G" in world.text and world.conflicts == {}


def test_a_group_is_accepted_together_with_all_that_is_below_it(world: World) -> None:
    world.write(text=GROUPS)
    world.pass_s(40)
    world.head = "h2"
    world.write("[ ] G", "[x] G", "[ ] A", "[x] A", "[ ] H", "[x] H", "[ ] B", "[x] B")
    world.pass_s(5)
    assert {*world.conflicts} == {"a", "b", "g", "h"}
    asyncio.run(world.syncer.decide("p", True, [], "ada"))
    assert {world.statuses[key] for key in "abgh"} == {"COMPLETED"} and world.conflicts == {}


def test_a_group_whose_tasks_were_given_up_is_ended_by_a_person(world: World) -> None:
    world.write(text=GROUPS)
    world.pass_s(40)
    world.write("[ ] G", "[x] G", "[ ] A", "[x] A")
    world.pass_s(5)
    assert world.conflicts["g"] == f"ticked: {OPEN_BELOW}"
    for key in "bh":
        world.rig.do(c.Cancel(task_id=world.rig.id(f"p/{key}"), actor="ada"))
    world.pass_s(5)
    assert world.conflicts["g"].startswith("ticked: it has not ended with the tasks below it")
    asyncio.run(world.syncer.decide("p", True, ["g"], "ada"))
    assert world.statuses["g"] == "COMPLETED" and world.conflicts == {}


@pytest.mark.promise("S8")
def test_a_ticked_group_that_comes_back_does_not_end_before_its_tasks(world: World) -> None:
    world.write(text=GROUPS)
    world.pass_s(40)
    world.write("- [ ] G {#g}\n" + INNER, "", " after=g", "")
    world.pass_s(40)
    assert world.statuses["g"] == "CANCELLED"
    world.write(text=GROUPS.replace("[ ] G", "[x] G"))
    world.pass_s(40)
    assert world.statuses["g"] == "PENDING" and world.conflicts == {"g": f"ticked: {OPEN_BELOW}"}
    world.write("[ ] A", "[x] A", "[ ] H", "[x] H", "[ ] B", "[x] B")
    world.pass_s(5)
    assert {world.statuses[key] for key in "abgh"} == {"COMPLETED"} and world.conflicts == {}


def test_a_group_that_comes_back_with_all_its_boxes_ticked_is_done(world: World) -> None:
    world.write(text=GROUPS)
    world.pass_s(40)
    world.write("- [ ] G {#g}\n" + INNER, "", " after=g", "")
    world.pass_s(40)
    world.write(text=GROUPS.replace("[ ]", "[x]").replace("[x] C", "[ ] C"))
    world.pass_s(40)
    assert {world.statuses[key] for key in "abgh"} == {"COMPLETED"} and world.conflicts == {}


def test_a_file_that_is_gone_is_told_until_it_is_there_again(world: World) -> None:
    def problem() -> str:
        (plan,) = drive(world.rig.reads.plan_sources())
        return drive(world.rig.reads.sync_state(plan.id)).problem

    text = world.text
    world.path.unlink()
    world.pass_s(5)
    assert problem() == "", "an editor may be saving it"
    world.pass_s(10)
    assert "plan.md is not there" in problem()
    world.write(text=text.replace("- [ ] A", "- [x] A"))
    world.pass_s(5)
    assert problem() == "" and world.statuses["a"] == "COMPLETED"
    world.path.unlink()
    world.pass_s(15)
    assert "plan.md is not there" in problem()
