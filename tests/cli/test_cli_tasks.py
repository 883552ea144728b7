"""`muster status` and `muster task`."""

from __future__ import annotations

import io
import json
import os
from operator import itemgetter
from typing import Any

import pytest

from muster.cli.output import Screen, clean
from muster.model import commands as c
from muster.model.people import THE_FILE
from muster.model.states import PauseReason


def test_status_says_who_works_and_what_needs_a_person(cli, owner):
    ran = cli("status")
    assert ran.code == 0
    out = ran.out
    assert "crew running" in out
    assert "✓ 1 completed  ● 1 running  ○ 2 waiting  † 1 failed" in out
    assert "worker-abcdefgh" in out and "holds billing/api#1" in out
    assert "shell  ● busy" in out
    assert "Needs you (3)" in out
    assert "† failed  billing/tests  failed after 1 run: exit code 1: 3 failed" in out
    assert "billing/docs  waits for tests (FAILED)" in out
    assert "billing/other  no worker offers agent ghost" in out


def test_status_json(cli, owner):
    answer = json.loads(cli("status", "--json").out)
    assert answer["tasks"] == 5
    assert answer["owner"]["pid"] > 0
    assert answer["agents"] == [
        {"name": "shell", "status": "busy", "workers": 1, "holds": ["billing/api#1"], "problem": ""}
    ]
    assert [need["ref"] for need in answer["needsPerson"]] == [
        "billing/tests",
        "billing/docs",
        "billing/other",
    ]


def test_an_unfit_agent_is_in_error(cli, empty):
    empty.register(agents=("shell", "claude"), unfit={"claude": "claude not found"})
    agents = {agent["name"]: agent for agent in json.loads(cli("status", "--json").out)["agents"]}
    assert agents["claude"]["status"] == "error"
    assert agents["claude"]["problem"] == "claude not found"
    assert agents["shell"]["status"] == "idle"


def test_status_of_an_empty_store(cli, empty):
    assert "0 tasks: muster run PLAN.md" in cli("status").out
    assert json.loads(cli("status", "--json").out)["plans"] == []
    assert cli("task", "list").out == "0 tasks: muster run PLAN.md\n"
    assert json.loads(cli("task", "list", "--json").out) == []


def test_list_shows_glyph_word_and_why(cli, owner):
    lines = {line.split()[2]: line for line in cli("task", "list").out.splitlines()[1:]}
    assert lines["billing/model"].startswith("✓ completed")
    assert "running on worker-abcdefgh with agent shell" in lines["billing/api"]
    assert lines["billing/docs"].startswith("○ blocked")
    assert lines["billing/other"].startswith("◌ ready")
    assert "ghost" in lines["billing/other"]


def test_a_task_that_waits_for_its_next_try_is_never_a_bare_aborted(cli, owner):
    api = owner.tasks()["api"]
    owner.do(c.Fail(task_id=api.id, epoch=1, kind="crash", message="boom"))
    line = next(line for line in cli("task", "list").out.splitlines() if "billing/api" in line)
    assert line.startswith("◷ delayed")
    assert "retry in" in line and "ABORTED" not in line


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        (("failed",), ["tests"]),
        (("failed", "running"), ["api", "tests"]),
        (("FAILED,running",), ["api", "tests"]),
        (("blocked",), ["docs"]),
        (("ready",), ["other"]),
        (("pending",), ["docs", "other"]),
        (("cancelled",), []),
    ],
)
def test_list_by_status(cli, owner, names, keys):
    ran = cli("task", "list", "--json", "--status", *names)
    assert [task["key"] for task in json.loads(ran.out)] == keys


def test_list_by_a_part_of_titles_and_names(cli, empty):
    titles = {"a": "Fix the LOGIN form", "b": "100% sure", "login-2": "Ünlü"}
    tasks = tuple(c.Spec(title=title, key=key) for key, title in titles.items())
    empty.do(c.Enqueue(plan="web", source=None, tasks=tasks, actor="me"))
    for text, found in {"login": ["a", "login-2"], "0%": ["b"], "%": ["b"], "ünLÜ": ["login-2"]}.items():
        listed = cli("task", "list", "--json", "--text", text).out
        assert [task["key"] for task in json.loads(listed)] == found, text
    assert cli("task", "list", "--text", "nothing").out == "no such task: muster status\n"
    assert cli("task", "list", "--text", "x" * 201).code == 2


def test_list_of_many_is_cut_and_says_so(cli, empty):
    tasks = tuple(c.Spec(title=f"t{number}", key=f"k{number}") for number in range(1203))
    empty.do(c.Enqueue(plan="big", source=None, tasks=tasks, actor="me"))
    ran = cli("task", "list", "--json", "--limit", "2")
    assert len(json.loads(ran.out)) == 2
    assert "more than 2 tasks" in ran.err
    assert len(json.loads(cli("task", "list", "--plan", "big", "--limit", "2000", "--json").out)) == 1203


def test_list_refuses_what_is_not_there(cli, owner):
    ran = cli("task", "list", "--plan", "biling")
    assert ran.code == 3 and "there is no plan 'biling'" in ran.err
    ran = cli("task", "list", "--status", "faild")
    assert ran.code == 2 and "did you mean 'failed'?" in ran.err


def test_show(cli, owner):
    out = cli("task", "show", "billing/tests").out
    assert out.startswith("billing/tests  Property tests  † failed\n")
    assert "Why       failed after 1 run: exit code 1: 3 failed" in out
    assert "Blocks    billing/docs" in out
    assert "#1 " in out and "✗ failed  crash  exit code 1: 3 failed" in out
    assert "Log tail  collected 44 items\n          3 failed" in out
    assert "Next      muster task retry billing/tests [--note TEXT]" in out
    assert 'Result    {"rows":3}' in cli("task", "show", "model").out
    assert "Next    muster task retry billing/tests" in cli("task", "show", "docs").out
    assert "muster logs billing/api -f" in cli("task", "show", "api").out


def test_show_json_holds_all_events_of_a_long_life(cli, owner):
    api = owner.tasks()["api"]
    for number in range(1100):
        owner.do(c.Progress(task_id=api.id, epoch=1, percent=number % 100, step=str(number)))
    detail = json.loads(cli("task", "show", "api", "--json").out)
    assert [event["seq"] for event in detail["events"]] == list(range(1, len(detail["events"]) + 1))
    assert detail["events"][-1]["message"] == "99 % 1099"
    assert "99 % 1099" in cli("task", "show", "api").out


@pytest.mark.parametrize("verb", ["show", "retry", "cancel"])
@pytest.mark.parametrize(
    ("ref", "message", "hint"),
    [
        ("nope", "there is no task 'nope'", "muster task list"),
        ("billing/", "may be any of", "write plan/key in full"),
        ("tests#9", "has no attempt 9", "muster task show tests"),
    ],
)
def test_wrong_references(refused, owner, verb, ref, message, hint):
    assert hint in refused("task", verb, ref, code=3, message=message).err


def test_retry_and_cancel_are_about_tasks_not_attempts(cli, owner):
    before = owner.fingerprint()
    for verb in ("retry", "cancel"):
        ran = cli("task", verb, "tests#1")
        assert ran.code == 2 and "leave out #1" in ran.err
    assert owner.fingerprint() == before


def test_one_unknown_reference_and_none_is_touched(cli, owner):
    before = owner.fingerprint()
    assert cli("task", "cancel", "api", "nope").code == 3
    assert owner.fingerprint() == before


def test_retry(cli, owner):
    ran = cli("task", "retry", "tests", "--note", "rounding is meant")
    assert ran.code == 0
    assert "billing/tests  starts anew (generation 2)" in ran.out
    task = owner.tasks()["tests"]
    assert (task.status, task.generation) == ("PENDING", 2)
    assert owner.claim("r9")["tests"].note == "rounding is meant"


def test_retry_of_a_waiting_task_is_now_and_keeps_its_note(cli, owner):
    api = owner.tasks()["api"]
    owner.do(c.Fail(task_id=api.id, epoch=1, kind="crash", message="boom"))
    ran = cli("task", "retry", "api", "--note", "x")
    assert ran.code == 0
    assert "its next try is due now" in ran.out
    assert owner.tasks()["api"].next_attempt_at_ms is None
    assert owner.claim("r9")["api"].note == "x"


def test_retry_of_a_running_task_is_a_conflict(refused, owner):
    ran = refused("task", "retry", "api", code=6, message="billing/api is RUNNING")
    assert "cancel it first" in ran.err


def test_cancel_several_at_once(cli, owner):
    ran = cli("task", "cancel", "api", "docs", "billing/api", "--reason", "not wanted")
    assert ran.code == 0
    assert "billing/api  cancelled; attempt 1 is stopped" in ran.out
    tasks = owner.tasks()
    assert (tasks["api"].status, tasks["docs"].status) == ("CANCELLED", "CANCELLED")
    assert "was cancelled already" in cli("task", "cancel", "api").out
    assert "not wanted" in cli("task", "show", "api").out


def test_a_refusal_does_not_hold_up_the_others(cli, owner):
    ran = cli("task", "cancel", "--json", "model", "other")
    assert ran.code == 6
    done = json.loads(ran.out)
    assert [(task["ref"], task["status"]) for task in done] == [("billing/other", "CANCELLED")]
    assert json.loads(ran.err)["error"]["message"].startswith("billing/model is COMPLETED")


def test_hostile_text_cannot_reach_the_terminal(cli, empty):
    evil = "title \x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
    empty.do(c.Enqueue(plan="p", source=None, tasks=(c.Spec(title=evil, key="k"),), actor="me"))
    for argv in (("task", "show", "k"), ("task", "list"), ("status",)):
        out = cli(*argv).out
        assert not set("\x1b\x07\u202e\x9b") & set(out)
    assert "^[]0;owned^G" in cli("task", "show", "k").out


def test_clean_keeps_one_line():
    assert clean("a\n  b\tc") == "a b c"
    assert clean("größer ✓") == "größer ✓"


class Terminal:
    encoding = "utf-8"
    text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text


def test_a_table_fits_forty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal()
    row = ["running", "billing/property-tests", "a sentence that is far too long", "worker-0a1b2c3d"]
    cells = {name: itemgetter(at) for at, name in enumerate(["STATE", "TASK", "WHY", "WORKER"])}
    Screen("never", terminal).table([row], cells, give="WHY", look=lambda _: "running", glyphs=True)
    lines = terminal.text.splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[1] == "● running  billing/property-tests", "what is typed is whole, or nothing is typed"


@pytest.mark.parametrize(
    ("room", "shown"),
    [
        (60, "● running  billing/property  a sentence...  worker-0a1...  3"),
        (46, "● running  billing/property  a s...  wor...  3"),
        (44, "● running  billing/property  a s...  work..."),
        (40, "● running  billing/property  a senten..."),
        (30, "● running  billing/property"),
        (20, "● running  billing/property"),
    ],
)
def test_a_key_is_never_cut(monkeypatch, room, shown):
    monkeypatch.setenv("COLUMNS", str(room))
    terminal = Terminal()
    row = ["running", "billing/property", "a sentence that is far too long", "worker-0a1b2c3d", "3"]
    cells = {name: itemgetter(at) for at, name in enumerate(["STATE", "TASK", "WHY", "WORKER", "N"])}
    Screen("never", terminal).table([row], cells, give="WHY", look=lambda _: "running", glyphs=True)
    assert terminal.text.splitlines()[1] == shown


def test_a_long_question_widens_no_list_in_a_pipe(cli, empty):
    """Of a task that asks at length."""
    empty.register()
    specs = tuple(c.Spec(title=key, key=key, agent="shell") for key in ("asks", "other"))
    empty.do(c.Enqueue(plan="p", source=None, tasks=specs, actor="me"))
    jobs = empty.claim("r")
    empty.begin(jobs["asks"])
    question = "which one? " * 900 + "the last word"
    empty.do(c.Ask(task_id=jobs["asks"].task_id, epoch=1, question=question))
    for argv in (("inbox",), ("status",), ("task", "list")):
        lines = cli(*argv).out.splitlines()
        assert max(map(len, lines)) < 320 and any(
            "asks: which one?" in line and "..." in line for line in lines
        )
        assert not any(line.endswith(" ") for line in lines)
    for argv in (
        ("task", "show", "asks"),
        ("why", "asks"),
        ("inbox", "--json"),
        ("inbox", "--fields", "why"),
    ):
        assert "the last word" in cli(*argv).out, argv


def test_what_a_program_takes_from_a_table_is_whole():
    stream = io.StringIO()
    cells = {"NAME": lambda _: "n", "TREE": lambda _: "/t" * 200, "TEXT": lambda _: "t" * 400}
    Screen("never", stream).table([None], cells, give="TEXT")
    assert stream.getvalue().splitlines()[1] == f"n     {'/t' * 200}  {'t' * 197}..."


def test_a_reference_among_fields_is_never_cut(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    terminal = Terminal()
    cells = {"TITLE": lambda _: "a title that is far too long", "REF": lambda _: "billing/property-tests"}
    Screen("never", terminal).table([None], cells, give="TITLE")
    assert "billing/property-tests" in terminal.text


def test_fields_are_wrapped_between_words(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal()
    reason = "waits for billing/model, and for the quota of anthropic until 14:32"
    Screen("never", terminal).fields([("Why", reason), ("Started", "12:00")])
    lines = terminal.text.splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(line[9:].strip() for line in lines[:-1]) == reason
    assert [line[:9].strip() for line in lines] == ["Why", "", "", "Started"]


def test_columns_fit_a_narrow_terminal(cli, owner, monkeypatch):
    monkeypatch.setenv("COLUMNS", "90")
    terminal = Terminal()
    screen = Screen("never", terminal)
    screen.table(["日本" * 60], {"A": lambda _: "✓ ok", "WHY": str, "B": lambda _: "end"}, give="WHY")
    assert all(len(line) + sum(char in "日本" for char in line) <= 90 for line in terminal.text.splitlines())
    assert "..." in terminal.text


def _event(**changes):
    event = {
        "atMs": 0,
        "plan": "billing",
        "key": "model",
        "event": "started",
        "actor": "worker-ab12",
        "epoch": 1,
    }
    event |= {"message": "attempt 1 runs on worker-ab12 with agent shell", "newStatus": "RUNNING"}
    return Screen("never", io.TextIOWrapper(io.BytesIO(), "utf-8")).event(event | changes)[9:]


def test_event_lines():
    assert _event() == "● billing/model  running  worker-ab12 shell  attempt 1"
    failed = {"event": "failed", "message": "attempt 1: exit code 1"}
    assert _event(**failed, newStatus="FAILED") == "† billing/model  failed  attempt 1: exit code 1"
    again = "✗ billing/model  failed  attempt 1: exit code 1; will be retried"
    assert _event(**failed, newStatus="ABORTED") == again
    assert _event(event="enqueued", message="added", newStatus="PENDING") == "○ billing/model  added"
    assert _event(event="dreamed", message="of sheep") == "● billing/model  dreamed  of sheep"


def test_the_line_of_an_artifact_says_its_name_once():
    event = {"event": "artifact", "message": "artifact report", "newStatus": "RUNNING", "atMs": 0, "epoch": 1}
    screen = Screen("never", io.TextIOWrapper(io.BytesIO(), "ascii"))
    line = screen.event({**event, "plan": "p", "key": "k", "actor": "w"})
    assert line.endswith("* p/k  artifact  report")


def test_the_host_of_an_attempt_elsewhere_is_named(cli: Any, owner: Any) -> None:
    here = os.uname().nodename
    for number, host in ((1, "host-b"), (2, here)):
        owner.do(c.Enqueue(plan=f"p{number}", source=None, tasks=(c.Spec(title="x", key="x"),), actor="ann"))
        owner.register(f"worker-0000000{number}", hostname=host, slots=1)
        claim = c.Claim(worker_id=f"worker-0000000{number}", request_id=f"h{number}", slots=1)
        (job,) = owner.do(claim).jobs
        shown = cli("task", "show", str(job.task_id)).out
        assert (f"worker-0000000{number} at {host}" in shown) is (number == 1), shown
        told = json.loads(cli("api", "GET", f"/api/v1/agent-tasks/{job.task_id}/attempts").out)
        assert told[-1]["host"] == host


def test_what_is_held_for_its_file_is_told_with_commands_that_work(cli: Any, owner: Any) -> None:
    number = owner.tasks()["other"].id
    owner.do(c.Pause(task_id=number, actor=THE_FILE, reason=PauseReason.FILE))
    ran = cli("task", "resume", "billing/other")
    assert (
        ran.code == 6
        and "muster plan sync billing --accept other, or --reject other to go on as it is" in ran.err
    )
    assert json.loads(cli("task", "show", "billing/other", "--json").out)["task"]["fix"] == (
        "muster plan sync billing --status"
    )
    assert "muster plan sync billing --status\n" in cli("task", "show", "billing/other").out


def test_a_question_that_somebody_else_has_answered_is_told_as_that(cli: Any, owner: Any) -> None:
    owner.do(c.Enqueue(plan="more", source=None, tasks=(c.Spec(key="one", title="One"),), actor="ann"))
    job = owner.claim("late")["one"]
    owner.begin(job)
    owner.do(c.Ask(task_id=job.task_id, epoch=1, question="red or blue?"))
    assert cli("answer", "more/one", "blue").code == 0
    late = cli("answer", "more/one", "red")
    assert late.code == 6 and ": blue; it is PENDING; nothing was changed" in late.err
    assert "more/one was answered already: " in late.err
    assert "has asked nothing" in cli("answer", "billing/model", "red").err
