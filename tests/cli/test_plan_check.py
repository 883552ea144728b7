"""`muster plan check`, and how people are told and asked of what a plan does not say."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys

import pytest
from msgspec.structs import replace

from muster.app.plan_tasks import choose_order
from muster.config.settings import Config, PlanSettings
from muster.engine.batch import drive
from muster.model.edits import PlanDocument
from muster.plans.markdown import parse
from patience import PATIENCE_S
from pseudo_terminal import read_to_end

LIST = "# P\n## One\n- [ ] A {#a}\n- [ ] B {#b}\n## Two\n- [ ] C {#c}\n- [ ] D {#d}\n"
CONFIG = 'agent = "prose"\n[agents.prose]\ncommand = ["cat"]\n'


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (LIST, 0, "p: 4 tasks; nothing looks odd"),
        (LIST + "- [] E {#e after=a} (soon)\n", 1, "p: 5 tasks; 2 warnings"),
        (LIST + "- [ ] E {after=gone}\n", 2, "after=gone: no such task"),
        ("# P\n", 2, "the plan has no tasks"),
    ],
)
def test_the_exit_code_says_how_clear_a_plan_is(cli, root, text, code, said):
    (root / "plan.md").write_text(text)
    ran = cli("plan", "check", "plan.md")
    assert ran.code == code and said in ran.out + ran.err
    if code == 1:
        assert "plan.md:8:3: '[]' is read as a task" in ran.out and "plan.md:8:8: " in ran.out
        assert len(json.loads(cli("plan", "check", "plan.md", "--json").out)["warnings"]) == 2


def test_waves_are_drawn_for_each_order(cli, root):
    (root / "plan.md").write_text(LIST)
    waves = {
        order: json.loads(cli("plan", "check", "plan.md", "--order", order, "--json").out)["waves"]
        for order in ("file", "phases", "free")
    }
    assert waves == {
        "file": [["a"], ["b"], ["c"], ["d"]],
        "phases": [["a", "b"], ["c", "d"]],
        "free": [["a", "b", "c", "d"]],
    }
    out = cli("plan", "check", "plan.md", "--order", "phases").out
    assert "Wave 1   a, b\nWave 2   c, d\n" in out and "Order    phases: " in out


def test_where_the_order_comes_from():
    def order(
        text: str = LIST, kept: str = "", said: str | None = None, *, toml: str | None = None, **more: str
    ):
        document: PlanDocument = replace(parse(text, "p.md"), **more)
        settings = Config(plan=PlanSettings(order=toml))
        return choose_order(document, settings, kept, said)

    front = "---\norder: phases\n---\n" + LIST
    like = {"dialect": "kiro", "dialect_order": "file"}
    assert order(front, "file", "free", toml="file", **like).order == "free"
    assert order(front, "file", toml="file", **like).order == "phases"
    assert order(LIST, "free", toml="phases", **like).order == "phases"
    assert order(LIST, **like).order == "file"
    assert order(LIST, "free", **like).order == "free", "as a person said, or as it was begun"
    assert order(LIST, "free").order == "free"
    assert order(LIST.replace("#b", "#b after=a")).order == "free"
    guessed = order(LIST)
    assert (guessed.order, guessed.kept, guessed.guessed) == ("file", "file", True)
    assert order("# P\n- [ ] A\n").why == "", "one task needs no order"


def test_without_a_terminal_a_list_runs_in_its_order_and_says_so_once(cli, owner):
    (owner.root / "plan.md").write_text(LIST)
    added = cli("plan", "add", "plan.md")
    assert "order file: each task after the one before it" in added.err and "order: free" in added.err
    assert [row["unmet"] for row in json.loads(cli("task", "list", "--json").out)] == [0, 1, 1, 1]
    assert "order" not in cli("plan", "add", "plan.md").err, "it goes on as it was begun"
    assert json.loads(cli("plan", "list", "--json").out)[0]["order"] == "file"


def test_an_order_that_a_person_names_goes_before_what_the_file_looks_like(cli, owner):
    (owner.root / "plan.md").write_text("## 1. Base\n- [ ] 1.1 A\n- [ ] 1.2 B\n## 2. Rest\n- [ ] 2.1 C\n")
    cli("plan", "add", "plan.md", "--order", "free")
    assert cli("plan", "diff", "plan.md").out == "plan: the file and the plan agree\n"


def test_what_stands_for_all_below_a_heading_has_no_box_that_could_differ(cli, owner):
    (owner.root / "plan.md").write_text(LIST)
    cli("plan", "add", "plan.md", "--order", "phases")
    cli("task", "complete", "p/a", "p/b")
    assert "one/*" not in cli("plan", "diff", "plan.md").out


def test_an_order_that_a_person_names_is_kept_and_headings_are_waited_for(cli, owner):
    (owner.root / "plan.md").write_text(LIST)
    assert cli("plan", "add", "plan.md", "--order", "phases").err == ""
    assert cli("plan", "diff", "plan.md").out == "p: the file and the plan agree\n"
    assert "waits for one/*" in cli("plan", "show", "p").out and "0 of 4" in cli("plan", "show", "p").out


@pytest.fixture
def owner(empty):
    (empty.root / "muster.toml").write_text(CONFIG)
    return empty


@pytest.mark.parametrize(("typed", "order"), [("ph\n", "phases"), ("\n", "file"), ("what?\nfree\n", "free")])
def test_a_person_at_a_terminal_is_asked_once(owner, typed, order):
    (owner.root / "plan.md").write_text(LIST)
    owner.stop()
    ours, theirs = pty.openpty()
    os.write(ours, typed.encode())
    argv = [sys.executable, "-m", "muster.cli.main", "plan", "add", "plan.md"]
    for asked in (True, False):
        subprocess.run(
            argv, cwd=owner.root, stdin=theirs, stdout=theirs, stderr=theirs, check=True, timeout=PATIENCE_S
        )
        assert drive(owner.store.reads.plan_view("p")).order == order
        if not asked:
            os.close(theirs)
    said = read_to_end(ours).decode()
    assert said.count("nothing says how its 4 tasks follow each other") == 1, "the answer is kept"
