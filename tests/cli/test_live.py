"""The live watch, the whole of it on a real terminal."""

from __future__ import annotations

import os
import signal
import termios

import pytest
from live_console import COLUMNS, ROWS, joined

from far_servers import SECRET, far_owner
from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.access import Role


def test_it_shows_reasons_output_and_what_happens(owner, console):
    live = console("watch")
    live.until(
        lambda text: "billing/docs" in text and "waits for tests (FAILED)" in text and "● live" in text
    )
    live.until(lambda text: "● running" in live.row("billing/api"))
    live.press("G")
    live.until(lambda text: any(line.startswith(">") and "billing/api" in line for line in text.splitlines()))
    live.press("gg")
    live.until(lambda text: "3 failed" in text and "billing/tests #1" in text)
    owner.log(owner.tasks()["tests"].id, 1, b"one more line\n", offset=29)
    live.until(lambda text: "one more line" in text)
    owner.do(c.Complete(task_id=owner.tasks()["api"].id, epoch=1, exit_code=0))
    live.until(lambda text: "✓ completed" in live.row("billing/api"))


def test_a_cancel_needs_a_yes(owner, console):
    live = console("watch")
    live.until(lambda text: "billing/api" in text)
    live.choose("billing/api")
    live.press("c")
    live.until(lambda text: "cancel billing/api?" in text and "It is ended now" in text)
    live.press("xpcy")
    live.until(lambda text: "nothing was changed" in text)
    live.press("f")
    live.until(lambda text: "follow off" in text)
    assert owner.tasks()["api"].status == "RUNNING", "what was typed on after that pressed nothing"
    live.press("cy")
    live.until(lambda text: "⊘ cancelled" in live.row("billing/api"))
    assert owner.tasks()["api"].status == "CANCELLED"


def test_a_refusal_is_told(owner, console):
    live = console("watch")
    live.choose("billing/tests")
    live.press("r")
    live.until(lambda text: "retry billing/tests?" in text)
    owner.do(c.Skip(task_id=owner.tasks()["tests"].id, actor="user:ann"))
    owner.do(c.Archive(task_id=owner.tasks()["tests"].id, actor="user:ann"))
    live.press("y")
    live.until(lambda text: "has changed since" in text and "now it is archived" in joined(text))


def test_a_question_is_answered_in_place_and_no_other_one(owner, console):
    number = owner.tasks()["api"].id
    owner.do(c.Ask(task_id=number, epoch=1, question="Which schema?\n\x1b]0;title\x07the old"))
    live = console("watch", size=(80, 24))
    live.choose("billing/api")
    live.until(lambda text: "w answer" in live.foot() and "need you" in text.splitlines()[0])
    live.press("w")
    live.until(lambda text: "Which schema?" in text and "Your answer: _" in text and "^[]0;title" in text)
    live.press("the n\x7fnew öne\r")
    live.until(lambda _: "billing/api: Answer: done" in live.foot())
    assert owner.tasks()["api"].status == "PENDING"
    assert "the new öne" in str(drive(owner.store.reads.events(after_id=0, task_id=number, limit=1000)))
    assert b"\x1b]0;" not in live.raw


def test_an_answer_is_for_the_question_that_was_read(owner, console):
    number = owner.tasks()["api"].id
    owner.do(c.Ask(task_id=number, epoch=1, question="Which schema?"))
    live = console("watch")
    live.asked("billing/api", "Which schema?")
    owner.do(c.AnswerQuestion(task_id=number, text="the old one", actor="user:bob"))
    live.press("the new one\r")
    live.until(lambda text: "billing/api was answered meanwhile; nothing was changed" in joined(text))
    assert "the new one" not in str(drive(owner.store.reads.events(after_id=0, task_id=number, limit=1000)))


def test_an_agent_that_looks_presses_nothing_for_a_person(owner, console):
    live = console("watch", "--plan", "billing", **owner.inside())
    live.choose("billing/other")
    live.until(lambda text: text.startswith(" billing ") and "enter open" in live.foot())
    assert "cancel" not in live.foot()
    live.press("c")
    live.until(lambda _: "this is not yours to do here" in live.foot())


def test_a_viewer_may_look_and_a_member_acts_over_the_network(root, tmp_path, console):
    with far_owner(tmp_path / "elsewhere") as far:
        far.token("mst_viewer", Role.VIEWER)
        live = console("watch", "--server", far.url, MUSTER_TOKEN="mst_viewer")
        live.choose("billing/api")
        live.until(lambda _: "? keys" in live.foot() and "enter open" in live.foot())
        assert "cancel" not in live.foot()
        live.press("c")
        live.until(lambda _: "this is not yours to do here" in live.foot())
        live.press("\r")
        live.until(lambda text: "Why" in text and "#1" in text)
        assert "cancel" not in live.foot()
        member = console("watch", "--server", far.url, MUSTER_TOKEN=SECRET)
        member.choose("billing/api")
        member.until(lambda _: "c cancel" in member.foot())
        far.stop()
        member.until(lambda text: "stale since" in text or "the server does not answer" in text)
        far.start()
        member.until(lambda text: "● live" in text)
        assert far.tasks()["api"].status == "RUNNING"
        member.press("cy")
        member.until(lambda _: "billing/api: Cancel: done" in member.foot())
        live.until(lambda text: "cancelled" in text)
    assert not (root / ".muster").exists()


@pytest.mark.parametrize(
    ("leave", "code"),
    [("q", 0), ("\x03", -signal.SIGINT), (signal.SIGTERM, 143)],
    ids=["q", "ctrl-c", "term"],
)
def test_the_terminal_is_left_as_it_was(owner, console, leave, code):
    live = console("watch")
    live.until(lambda text: "billing/api" in text)
    if isinstance(leave, str) and leave != "\x03":
        live.press(leave)
    else:
        os.kill(live.process.pid, signal.SIGINT if leave == "\x03" else leave)
    assert live.ends() == code
    assert live.after == live.before
    assert live.raw.rstrip().endswith(b"\x1b[?25h\x1b[?1049l")


FALLS = """
import os
from muster.cli.live.terminal import Terminal
with Terminal(wake=os.pipe()[0]) as terminal:
    terminal.draw(["drawn"])
    list(terminal.keys(60))
    raise ValueError("it fell")
"""


def test_the_terminal_is_left_as_it_was_after_a_fault(root, console):
    live = console(program=("-c", FALLS))
    live.until(lambda text: "drawn" in text)
    live.press("x")
    assert live.ends() == 1
    assert live.after == live.before
    assert "ValueError: it fell" in live.text() and b"\x1b[?1049l" in live.raw


def test_it_stops_and_goes_on_and_what_is_pasted_presses_nothing(owner, console):
    live = console("watch")
    live.choose("billing/api")
    live.press("\x1b[200~cy\ncy\x1b[201~")
    os.kill(live.process.pid, signal.SIGTSTP)
    os.waitpid(live.process.pid, os.WUNTRACED)
    live.until(lambda _: live.raw.endswith(b"\x1b[?1049l"))
    assert termios.tcgetattr(live.slave) == live.before
    os.kill(live.process.pid, signal.SIGCONT)
    live.until(lambda _: live.raw.rpartition(b"\x1b[?1049h")[2].count(b"billing/api") > 0)
    assert owner.tasks()["api"].status == "RUNNING"
    live.resize(40, 8)
    live.until(lambda text: "? keys" in live.foot() and "billing/api" in text)


def test_it_survives_a_narrow_terminal_and_an_owner_that_goes_away(owner, console):
    live = console("watch")
    live.until(lambda text: "billing/api" in text)
    live.resize(30, 8)
    live.until(lambda text: "● live" in text)
    live.resize(COLUMNS, ROWS)
    owner.stop()
    live.until(lambda text: "no owner" in text)
    owner.start()
    live.until(lambda text: "● live" in text)
    assert live.process.poll() is None


def test_keys_work_while_it_waits_for_a_crew(owner, console):
    owner.stop()
    live = console("watch")
    live.until(lambda text: "billing/api" in text and "this waits for one (muster up)" in text)
    live.press("?")
    live.until(lambda text: "retry it" in text)
    live.press("\x1b")
    owner.start()
    live.until(lambda text: "● live" in text)
    owner.stop()
    live.until(lambda text: "this waits for one" in text)
    live.press("q")
    assert live.ends() == 0


def test_lines_on_a_terminal(owner, console):
    live = console("watch", "--lines")
    live.until(lambda text: "billing/docs  waits for tests (FAILED)" in text)
    assert b"\x1b[?1049h" not in live.raw


def test_a_run_shows_how_far_it_is_below_its_events_and_takes_that_away(root, console):
    (root / "plan.md").write_text(
        "# P\n- [ ] Go {#go agent=shell}\n\n      until [ -e gate ]; do sleep 0.05; done\n"
    )
    live = console("run", "plan.md", "--workers", "1")
    live.until(lambda text: "● 1 running   go" in text and "p/go  running" in text)
    (root / "gate").touch()
    assert live.ends() == 0
    text = live.text()
    assert "p: 1 completed in" in text
    assert "● 1 running   go" not in text
