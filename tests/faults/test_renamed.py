"""S19: a plan file that is renamed or moved is the same plan; nothing is done twice."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from copies import PLAN, RUN, Site, at_a_terminal, site

from muster.config.identity import look, record_anew
from muster.config.project import Project
from patience import PATIENCE_S, until


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path / "here") as made:
        yield made


@pytest.fixture(scope="module")
def run_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("run") / "here") as made:
        made.go()
        assert made.run().code == 0
        yield made


@pytest.fixture
def done(run_once: Site, tmp_path: Path) -> Iterator[Site]:
    """Its plan was run to the end before."""
    shutil.copytree(run_once.root, tmp_path / "here")
    record_anew(Project(tmp_path / "here"), look(run_once.project).id)  # as after a move
    with site(tmp_path / "here") as made:
        yield made


def plans(one: Site) -> dict[str, str | None]:
    """Files by name."""
    told = json.loads(one("plan", "list", "--json").said)
    return {plan["name"]: plan["source"] for plan in told}


def run(one: Site, file: str, *options: str) -> tuple[int, str]:
    return one("run", str(one.root / file), "--workers", "1", *options)


def rename(one: Site, to: str) -> Path:
    target = one.root / to
    target.parent.mkdir(exist_ok=True)
    return (one.root / "plan.md").rename(target)


@pytest.mark.promise("S19")
@pytest.mark.parametrize("to", ["todo.md", "docs/plan.md", "../outside.md"])
def test_a_plan_file_renamed_between_two_runs(done: Site, to: str) -> None:
    there = rename(done, to)
    there.write_text(there.read_text() + "- [ ] Three {#three agent=work}\n")
    code, said = done("plan", "diff", str(there))
    assert code == 0 and "1 added" in said, said
    code, said = run(done, to, "--dry-run")
    assert code == 0 and "2 completed" in said, said
    assert plans(done) == {"plan": "plan.md"}, "to look changes nothing"
    code, said = run(done, to)
    assert code == 0 and "plan plan goes on: its file plan.md is" in said and "1 task added" in said, said
    assert len(done.begun()) == 3
    assert there.read_text().count("[x]") == 3
    assert list(plans(done)) == ["plan"]
    events = done("audit", "list", "--json").said
    assert "plan_moved" in events
    assert done("audit", "verify").code == 0 and done("db", "check").code == 0


def test_a_plan_file_renamed_while_its_crew_is_at_work_is_ticked_under_its_new_name(here: Site) -> None:
    here.add()
    here.up()
    rename(here, "todo.md")
    here.go()
    here.settled()
    assert (here.root / "todo.md").read_text() == PLAN, "nobody has said yet that this is the plan"
    code, said = run(here, "todo.md")
    assert code == 0 and "0 tasks added, 2 there already" in said, said
    until(lambda: (here.root / "todo.md").read_text().count("[x]") == 2, "what was done meanwhile is ticked")
    assert len(here.begun()) == 2


def test_a_file_that_holds_little_of_the_plan_is_asked_about(done: Site) -> None:
    rename(done, "todo.md").write_text(
        "# Another\n\n- [ ] One {#one agent=work}\n"
        + "".join(f"- [ ] T{n} {{agent=work}}\n" for n in range(5))
    )
    for argv in (["run"], ["plan", "add"], ["plan", "diff"], ["run", "--dry-run"]):
        code, said = done(*argv, str(done.root / "todo.md"))
        assert code == 6 and "todo.md may be the renamed file of plan plan, whose file was plan.md" in said, (
            said
        )
        assert "--as plan if it is; --new if it is another plan" in said
    assert len(done.begun()) == 2 and plans(done) == {"plan": "plan.md"}
    ran = at_a_terminal(done.root, b"y\n", "plan", "add", str(done.root / "todo.md"))
    assert (
        ran.code == 0
        and "Is it that plan? [y/n]" in ran.said
        and "5 tasks added, 1 there already" in ran.said
    )
    assert plans(done) == {"plan": "todo.md"}


def test_a_person_says_which_plan_it_is(done: Site) -> None:
    (done.root / "other.md").write_text("# Other\n\n- [ ] Four {agent=work}\n")
    code, said = run(done, "other.md", "--as", "plan")
    assert code == 6 and "plan plan still has its file plan.md" in said
    code, said = run(done, "other.md", "--as", "nobody")
    assert code == 2 and "there is no plan 'nobody' with a file" in said
    rename(done, "todo.md")
    code, said = run(done, "other.md", "--as", "plan")
    assert code == 0 and plans(done) == {"plan": "other.md"}, said
    code, said = run(done, "todo.md", "--new")
    assert code == 0 and plans(done) == {"plan": "other.md", "plan-2": "todo.md"}, said


def test_a_copied_plan_file_is_a_plan_of_its_own(done: Site) -> None:
    (done.root / "second.md").write_text(PLAN)
    code, said = run(done, "second.md")
    assert code == 0 and "2 tasks added" in said and "not plan: that is another plan" in said
    assert len(done.begun()) == 4


def test_a_plan_whose_name_was_given_to_another_file(done: Site) -> None:
    """`mv plan.md old.md`, and a new plan.md: the old one is found by what it holds."""
    rename(done, "old.md")
    (done.root / "plan.md").write_text("# New\n\n- [ ] Fresh {agent=work}\n")
    code, said = run(done, "old.md")
    assert code == 0 and "0 tasks added, 2 there already" in said, said
    code, said = run(done, "plan.md")
    assert code == 0 and plans(done) == {"plan": "old.md", "new": "plan.md"}, said
    assert len(done.begun()) == 3


@pytest.mark.parametrize("first_is_there", [True, False])
def test_ids_that_every_plan_has_do_not_make_two_plans_one(done: Site, first_is_there: bool) -> None:
    if not first_is_there:
        (done.root / "plan.md").unlink()
    (done.root / "next.md").write_text("- [ ] Wash {#one agent=work}\n- [ ] Iron {#two agent=work}\n")
    code, said = run(done, "next.md")
    assert code == 0 and "2 tasks added" in said, said
    assert plans(done) == {"plan": "plan.md", "next": "next.md"} and len(done.begun()) == 4


def test_a_plan_whose_file_still_has_some_of_it_is_not_taken_away_without_a_word(here: Site) -> None:
    here.go()
    plan = here.root / "plan.md"
    plan.write_text(PLAN + "- [ ] Three {#three agent=work}\n")
    assert here.run().code == 0
    plan.write_text("- [x] Three {#three agent=work}\n")
    (here.root / "next.md").write_text(PLAN)
    code, said = run(here, "next.md")
    assert code == 6 and "next.md may be the renamed file of plan plan" in said, said
    assert plans(here) == {"plan": "plan.md"} and len(here.begun()) == 3
    code, said = run(here, "next.md", "--as", "plan")
    assert code == 0 and plans(here) == {"plan": "next.md"} and len(here.begun()) == 3, said


def test_two_who_follow_the_renamed_file_at_once(done: Site) -> None:
    rename(done, "todo.md")
    both = [subprocess.Popen([*RUN, str(done.root), "plan", "add", str(done.root / "todo.md")]) for _ in "ab"]
    assert [process.wait(PATIENCE_S) for process in both] == [0, 0]
    assert plans(done) == {"plan": "todo.md"}


def test_forget_lets_a_plan_go(here: Site) -> None:
    here.add()
    here.up()
    code, said = here("plan", "forget", "plan")
    assert code == 6 and "1 task is at work for plan plan; nothing was changed" in said, said
    assert plans(here) == {"plan": "plan.md"}
    here.go()
    here.settled()
    code, said = here("plan", "forget", "plan.md")
    assert code == 0 and "forgotten: 2 tasks archived" in said, said
    assert plans(here) == {"plan": None}
    assert "plan_forgotten" in here("audit", "list", "--json").said
    assert here("audit", "verify").code == 0 and here("db", "check").code == 0
    here("down")
    here.go()
    (here.root / "plan.md").write_text(PLAN)
    code, said = here.run()
    assert code == 0 and "2 tasks added" in said and len(here.begun()) == 4, said
    assert here("plan", "forget", "nobody").code == 3


def test_forget_cancels_what_is_left(here: Site) -> None:
    here.add()
    code, said = here("plan", "forget", "plan")
    assert code == 0 and "forgotten: 2 tasks archived, 2 of them cancelled" in said, said
    here.go()
    code, said = here.run()
    assert code == 0 and "2 tasks added" in said and len(here.begun()) == 2, said


TITLES = "# Plan\n\n## One\n- [ ] Lay the table {agent=work}\n- [ ] Cook the soup {agent=work}\n"


@pytest.mark.promise("S19")
def test_a_heading_renamed_between_two_runs(here: Site) -> None:
    here.go()
    plan = here.root / "plan.md"
    plan.write_text(TITLES)
    assert here.run().code == 0 and len(here.begun()) == 2
    plan.write_text(plan.read_text().replace("## One", "## Dinner") + "- [ ] Eat {agent=work}\n")
    code, said = here.run()
    assert code == 0 and "Renamed  one/lay-the-table is dinner/lay-the-table now" in said, said
    assert len(here.begun()) == 3 and plan.read_text().count("[x]") == 3
    assert here("task", "show", "plan/one/lay-the-table").code == 0
    assert here("audit", "verify").code == 0 and here("db", "check").code == 0


@pytest.mark.promise("S19")
def test_before_anything_runs_a_person_says_which_task_a_box_is(here: Site) -> None:
    here.go()
    plan = here.root / "plan.md"
    plan.write_text(TITLES)
    assert here.run().code == 0
    plan.write_text(TITLES.replace("Lay the table", "Lay the big table") + "- [ ] Eat {agent=work}\n")
    for argv in (["run"], ["plan", "add"], ["plan", "add", "--update"], ["plan", "add", "--json"]):
        code, said = here(*argv, str(plan))
        assert code == 2 and "one/lay-the-big-table ('Lay the big table') may be one/lay-the-table" in said
        assert "--same one/lay-the-table=one/lay-the-big-table" in said
    assert len(here.begun()) == 2, "nothing was started"
    code, said = here("plan", "diff", str(plan))
    assert code == 0 and "? one/lay-the-big-table  may be one/lay-the-table, renamed" in said, said
    ran = at_a_terminal(here.root, b"x\n1\n", "plan", "add", str(plan))
    assert ran.code == 0 and "[1, n: it is new]" in ran.said and "1 task added" in ran.said, ran.said
    code, said = here.run()
    assert code == 0 and len(here.begun()) == 3, said
    assert "- [x] Eat" in plan.read_text()


@pytest.mark.parametrize(("options", "begun"), [(["--same", "all"], 2), (["--new-task", "one/big-table"], 3)])
def test_without_a_terminal_options_say_it(here: Site, options: list[str], begun: int) -> None:
    here.go()
    plan = here.root / "plan.md"
    plan.write_text(TITLES)
    assert here.run().code == 0
    plan.write_text(TITLES.replace("Lay the table", "Big table"))
    code, said = here("run", str(plan), "--workers", "1", *options)
    assert code == 0 and len(here.begun()) == begun, said


SLOW_ADD = """\
import sys, time
if "run" in sys.orig_argv:
    from muster.cli import run
    add_plan = run.add_plan
    def slow(*given, **options):
        time.sleep(1.0)
        return add_plan(*given, **options)
    run.add_plan = slow
"""


def test_no_worker_takes_a_task_before_the_changed_plan_is_in(
    here: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.add()
    plan = here.root / "plan.md"
    plan.write_text(PLAN.replace("] One", "] Uno"))
    here.go()
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "sitecustomize.py").write_text(SLOW_ADD)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hooks"))
    code, said = here("run", str(plan), "--workers", "1", "--update")
    assert code == 0 and "Changed  one: title" in said, said


def test_a_run_says_what_has_changed_and_applies_it_when_asked(here: Site) -> None:
    here.add()
    plan = here.root / "plan.md"
    plan.write_text(
        "# Plan\n\n- [ ] Uno {#one agent=work priority=8 touches=a}\n- [ ] Three {#three agent=work}\n"
    )
    here.go()
    code, said = here.run()
    assert code == 5 and "Changed  one: title, priority, touches" in said, said
    assert "Gone     two is not in the file: still to be done" in said
    assert "--update makes the plan what its file says" in said
    assert "what has not begun is held until you say so" in said
    plan.write_text(plan.read_text() + "- [ ] Four {#four agent=work}\n")
    code, said = here("run", str(plan), "--workers", "1", "--update")
    assert code == 0 and "Changed  one: title, priority, touches" in said, said
    assert '"title": "Uno"' in here("task", "show", "plan/one", "--json").said


def test_a_box_that_stood_in_another_plans_file_is_not_done_twice(here: Site) -> None:
    here.add()
    plan, more, other = (here.root / name for name in ("plan.md", "more.md", "other.md"))
    plan.write_text(PLAN.partition("- [ ] Two")[0])
    for file in (more, other):
        file.write_text(f"# {file.stem}\n\n- [ ] Two {{#two agent=work}}\n")
    code, said = run(here, "more.md")
    assert code == 6 and "more.md has boxes that stood in plan.md before: plan/two (pending)" in said, said
    for words in (("run", "--dry-run", str(more)), ("plan", "add", str(more), "--dry-run")):
        code, said = here(*words)
        assert code == 0 and "it would ask: more.md has boxes that stood in plan.md before" in said, said
    code, said = here("plan", "diff", str(more))
    assert code == 0 and "? two  stood in plan.md before (pending)" in said, said
    ran = at_a_terminal(here.root, b"x\nn\n", "plan", "add", str(more))
    assert ran.code == 6 and ran.said.count("Are they other work, to be done as well? [y/n]") == 2, ran.said
    assert list(plans(here)) == ["plan"]
    code, said = here("plan", "add", str(other), "--new-task", "two")
    assert code == 0 and "1 task added" in said, said
    code, said = here("plan", "add", str(plan), "--update")
    assert code == 0 and "1 removed" in said, said
    code, said = here("plan", "add", str(more))
    assert code == 0 and "1 task added" in said, said
