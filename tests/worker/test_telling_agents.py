"""What a running agent is told and reports in its words, who takes its session over, and what it hands over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from test_sessions import CONFIG, FAKE, prompts, show

from muster.hosts.process_table import is_alive, scan
from muster_command import MUSTER
from muster_command import run_muster as muster
from patience import PATIENCE_S, until

_LISTENS = """\
if "waits to be" in prompt and not resumes:
    while not pathlib.Path("looked").exists(): time.sleep(0.02)
    say(type="assistant", message=dict(id="m1", content=[dict(type="text", text="I begin.")]))
    while not pathlib.Path("go").exists(): time.sleep(0.02)
    end(1)
    sys.exit()
if "listen" in prompt and not resumes:
    say(type="assistant", message=dict(id="m1", usage=dict(input_tokens=100), content=[dict(type="text",
        text="I begin.\\nmuster: progress 40 reading\\nmuster: checkpoint page 12")]))
    pathlib.Path("begun").write_text(str(os.getpid()))
    told = json.loads(sys.stdin.readline())["message"]["content"]
    end(2, result="I was told: " + told)
    sys.exit()
if "spends" in prompt and not resumes:
    used = dict(input_tokens=10_000)
    say(type="assistant", message=dict(id="m1", model="claude-opus-4-1", usage=used, content=[]))
    pathlib.Path("begun").write_text(str(os.getpid()))
    told = [json.loads(sys.stdin.readline())["message"]["content"] for _ in range(3)]
    end(1, result=" | ".join(sorted(told)))
    sys.exit()
if "pays" in prompt and not resumes:
    for number, tokens in enumerate([10_000, 4_000]):
        used = dict(input_tokens=tokens)
        say(type="assistant", message=dict(id=f"m{number}", model="claude-opus-4-1", usage=used, content=[]))
        pathlib.Path("begun").write_text(str(os.getpid()))
        for _ in range(0 if number else 2):
            heard = json.loads(sys.stdin.readline())["message"]["content"]
            with open("told", "a") as file: file.write(heard + "\\n")
    time.sleep(600)
if "asks" in prompt and "You asked" not in prompt:
    say(type="assistant", message=dict(id="m1", usage=dict(), content=[dict(type="text",
        text="Hm.\\n\\nmuster: ask blue or green?")]))
    end(1)
    sys.exit()
if resumes or "wait" not in prompt:
"""
_ATTACHED = """\
if "-p" not in sys.argv:
    pathlib.Path("attached").write_text(json.dumps([sys.argv[1:], os.environ["MUSTER_TASK"]]))
    if pathlib.Path("stay").exists(): time.sleep(600)
    sys.exit()
resumes = "--resume" in sys.argv
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    fake = FAKE.replace('if resumes or "wait" not in prompt:\n', _LISTENS)
    fake = fake.replace('resumes = "--resume" in sys.argv\n', _ATTACHED)
    (tmp_path / "claude").write_text(fake.replace("{python}", sys.executable))
    (tmp_path / "claude").chmod(0o755)
    (tmp_path / "muster.toml").write_text(CONFIG.format(fake=tmp_path / "claude", home=tmp_path / "home"))
    return tmp_path


def until_begun(folder: Path) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not (folder / "begun").exists() or not (folder / "begun").read_text():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_a_message_reaches_an_agent_that_listens_and_its_reports_count(project: Path) -> None:
    (project / "plan.md").write_text("# Plan\n- [ ] It {#it}\n  listen\n")
    with subprocess.Popen([*MUSTER, "run", "plan.md"], cwd=project, stdout=subprocess.PIPE) as run:
        until_begun(project)
        told = muster(project, "tell", "plan/it", "Use tabs.")
        assert "claude, which reads it at its next turn" in told.stdout, told.stderr
        assert run.wait(PATIENCE_S) == 0
    detail = show(project, "plan/it")
    assert "I was told: Message from a person: Use tabs." in str(detail["result"])
    events = [(event["event"], event["message"]) for event in detail["events"]]
    assert ("progress", "40 % reading") in events
    assert ("progress", "40 % is told: Message from a person: Use tabs.") in events
    assert ("told", "Use tabs.") in events
    assert detail["attempts"][0]["checkpoints"] == 1
    late = muster(project, "tell", "plan/it", "Too late.")
    assert late.returncode == 6
    assert "muster task retry plan/it --note" in late.stderr


@pytest.mark.parametrize("as_json", [False, True])
def test_watch_shows_what_agents_say_and_do_as_they_do_it(project: Path, as_json: bool) -> None:
    (project / "plan.md").write_text("# Plan\n- [ ] It {#it}\n  listen\n")
    watching = [*MUSTER, "watch", *(["--json"] if as_json else ["--lines"])]
    run = subprocess.Popen([*MUSTER, "run", "plan.md"], cwd=project, stdout=subprocess.PIPE)
    until_begun(project)
    watch = subprocess.Popen(
        watching, cwd=project, stdout=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL
    )
    try:
        assert watch.stdout is not None
        lines = iter(watch.stdout.readline, "")
        seen = [next(line for line in lines if "I begin." in line)]
        assert muster(project, "tell", "plan/it", "Use tabs.").returncode == 0
        for line in lines:
            seen.append(line)
            if '"completed"' in line or " completed " in line:
                break
        assert run.wait(PATIENCE_S) == 0
    finally:
        for process in (watch, run):
            process.terminate()
            process.communicate()
    if as_json:
        told = [row for row in map(json.loads, seen) if row["type"] == "said"]
        assert {(row["ref"], row["attempt"]) for row in told} == {("plan/it", 1)}
        assert [row["kind"] for row in told][-1] == "cost"
    else:
        assert seen[0] == "plan/it  I begin.\n"
        assert any(line.startswith("plan/it  Σ ") for line in seen), seen


def test_watch_begins_with_what_was_said_before(project: Path) -> None:
    """Also where the last chunk of the output is not the first: it begins in the middle."""
    (project / "plan.md").write_text("# Plan\n- [ ] It {#it}\n  waits to be looked at\n")

    def printed(text: str) -> bool:
        return text in muster(project, "logs", "plan/it", "--raw").stdout

    run = subprocess.Popen([*MUSTER, "run", "plan.md"], cwd=project, stdout=subprocess.PIPE)
    watch = None
    try:
        until(lambda: printed('"init"'), "its first line is kept")
        (project / "looked").touch()
        until(lambda: printed("I begin."), "its second line is kept")
        watch = subprocess.Popen(
            [*MUSTER, "watch", "--lines"],
            cwd=project,
            stdout=subprocess.PIPE,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        assert watch.stdout is not None
        lines = iter(watch.stdout.readline, "")
        assert next(line for line in lines if line == "plan/it  I begin.\n")
        (project / "go").touch()
        assert run.wait(PATIENCE_S) == 0
    finally:
        for process in (watch, run):
            if process is not None:
                process.terminate()
                process.communicate()


def test_a_budget_that_is_nearly_used_reaches_the_agent_beside_what_a_person_says(project: Path) -> None:
    """As a message, each once: that of its task, and that of its plan."""
    config = project / "muster.toml"
    config.write_text(config.read_text() + "[budget]\ntask = 0.18\nplan = 0.17\n")
    (project / "plan.md").write_text("# Plan\n- [ ] It {#it}\n  spends\n")
    with subprocess.Popen([*MUSTER, "run", "plan.md"], cwd=project, stdout=subprocess.PIPE) as run:
        until_begun(project)
        assert muster(project, "tell", "plan/it", "Use tabs.").returncode == 0
        assert run.wait(PATIENCE_S) == 0
    assert json.loads(show(project, "plan/it")["result"])["text"].split(" | ") == [
        "80 % of the budget of its plan, $0.17, are used: end soon",
        "80 % of the budget of this task, $0.18, are used: end soon",
        "Message from a person: Use tabs.",
    ]


def test_a_used_up_budget_pauses_a_running_task_and_raising_it_takes_the_notice_back(project: Path) -> None:
    """It is told at 80 %, hears that there is more, spends that as well, and goes on in its session."""
    config = project / "muster.toml"
    config.write_text(config.read_text() + "[budget]\ntask = 0.18\n")
    (project / "plan.md").write_text("# Plan\n- [ ] It {#it}\n  pays\n")
    with subprocess.Popen([*MUSTER, "run", "plan.md"], cwd=project, stdout=subprocess.PIPE) as run:
        until_begun(project)
        until((project / "told").exists, "it is told")
        raised = muster(project, "budget", "plan/it", "0.2")
        assert raised.returncode == 0, raised.stderr
        paused = until(
            lambda: (task := show(project, "plan/it")["task"])["status"] == "PAUSED" and task, "it is paused"
        )
        assert paused["why"] == "paused, its budget is used up: `muster budget plan/it USD` raises it"
        assert "are spent of the $0.20" in muster(project, "task", "resume", "plan/it").stderr
        assert muster(project, "budget", "plan/it", "5").returncode == 0
        run.wait(PATIENCE_S)
    assert muster(project, "run", "plan.md").returncode == 0
    assert show(project, "plan/it")["task"]["status"] == "COMPLETED"
    assert (project / "told").read_text().splitlines() == [
        "80 % of the budget of this task, $0.18, are used: end soon",
        "The budget of this task is $0.20 now: go on, there is no need to end soon",
    ]
    assert [resumes for _, resumes, _ in prompts(project)] == [False, True]


def test_a_question_in_its_words_is_asked_and_answered_in_its_session(project: Path) -> None:
    (project / "plan.md").write_text("# Plan\n- [ ] It {#it}\n  asks\n")
    muster(project, "run", "plan.md")
    assert show(project, "plan/it")["task"]["question"] == "blue or green?"
    assert muster(project, "answer", "plan/it", "blue").returncode == 0
    assert muster(project, "run", "plan.md").returncode == 0
    (key, _, _), (again, resumed, prompt) = prompts(project)
    assert (again, resumed) == (key, True)
    assert "The answer: blue" in prompt


def test_a_person_takes_the_session_over_and_gives_it_back(project: Path) -> None:
    """Of a `run`, which waits meanwhile, though its only task is no agent's."""
    with (project / "muster.toml").open("a") as config:
        config.write('model = "large"\n')
    (project / "plan.md").write_text("# Plan\n- [ ] It {#it}\n  wait for it\n")
    with subprocess.Popen([*MUSTER, "run", "plan.md"], cwd=project, stdout=subprocess.PIPE) as run:
        until_begun(project)
        done = muster(project, "attach", "plan/it")
        assert done.returncode == 0, done.stderr
        assert "given back" in done.stdout
        assert run.stdout is not None
        said = run.stdout.read().decode()
        assert run.wait(PATIENCE_S) == 0, said
    assert "by hand  attempt 2; its plan waits until it is given back" in said
    attempts = show(project, "plan/it")["attempts"]
    session = attempts[0]["sessionKey"]
    assert json.loads((project / "attached").read_text()) == [
        ["--resume", session, "--model", "large"],
        "plan/it",
    ]
    assert [(attempt["agent"], attempt["sessionKey"]) for attempt in attempts] == [
        ("claude", session),
        ("by hand", None),
        ("claude", session),
    ]
    resumed = muster(project, "attempt", "show", "plan/it").stdout
    assert f"goes on in its session {session}" in resumed
    other = muster(project, "attach", "plan/nope")
    assert other.returncode == 3


@pytest.mark.parametrize("end", [signal.SIGHUP, signal.SIGTERM])
def test_a_session_is_for_one_person_and_given_back_when_the_terminal_is_closed(
    project: Path, end: signal.Signals
) -> None:
    (project / "plan.md").write_text("# Plan\n- [ ] It {#it}\n  wait for it\n")
    (project / "stay").touch()
    with subprocess.Popen([*MUSTER, "run", "plan.md"], cwd=project, stdout=subprocess.PIPE) as run:
        until_begun(project)
        with subprocess.Popen([*MUSTER, "attach", "plan/it"], cwd=project) as person:
            until((project / "attached").exists, "the session is open")
            other = muster(project, "attach", "plan/it")
            assert other.returncode == 6
            assert "plan/it is taken by hand, by " in other.stderr
            task = show(project, "plan/it")["task"]
            assert (task["status"], task["attemptStatus"]) == ("RUNNING", "running"), (
                "nobody asks them to stop"
            )
            threads = [thread.id for thread in psutil.Process(person.pid).threads()]
            # As the kernel may: to whom it gives it is its affair.  Elsewhere a thread's number is no process's.
            os.kill(max(threads) if sys.platform == "linux" else person.pid, end)
            assert person.wait(PATIENCE_S) == 1
        assert run.wait(PATIENCE_S) == 0
    attempts = show(project, "plan/it")["attempts"]
    assert [attempt["status"] for attempt in attempts] == ["released", "released", "completed"]


def test_a_session_whose_holder_is_killed_ends_and_its_task_goes_on(project: Path) -> None:
    (project / "plan.md").write_text("# Plan\n- [ ] It {#it}\n  wait for it\n")
    (project / "stay").touch()
    with subprocess.Popen([*MUSTER, "run", "plan.md"], cwd=project, stdout=subprocess.PIPE) as run:
        until_begun(project)
        with subprocess.Popen([*MUSTER, "attach", "plan/it"], cwd=project) as person:
            until((project / "attached").exists, "the session is open")
            [cli] = [proc.id for proc in scan() if proc.ppid == person.pid]
            person.kill()
        assert run.wait(PATIENCE_S) == 0
    attempts = show(project, "plan/it")["attempts"]
    assert [attempt["status"] for attempt in attempts] == ["released", "released", "completed"]
    assert "is gone" in attempts[1]["error"]
    session = attempts[0]["sessionKey"]
    assert attempts[2]["sessionKey"] == session
    assert not is_alive(cli)


def test_of_two_who_attach_at_once_one_is_told_that_the_other_has_it(project: Path) -> None:
    (project / "plan.md").write_text("# Plan\n- [ ] It {#it}\n  wait for it\n")
    (project / "stay").touch()
    attach: Any = partial(subprocess.Popen, [*MUSTER, "attach", "plan/it"], cwd=project, text=True)
    with subprocess.Popen([*MUSTER, "run", "plan.md"], cwd=project, stdout=subprocess.PIPE) as run:
        until_begun(project)
        with attach(stderr=subprocess.PIPE) as one, attach(stderr=subprocess.PIPE) as other:
            late = until(lambda: next((each for each in (one, other) if each.poll()), None), "one is told")
            assert late.returncode == 6
            assert "taken by hand, by " in late.stderr.read()
            until((project / "attached").exists, "the session is open")
            person = one if late is other else other
            person.send_signal(signal.SIGHUP)
            assert person.wait(PATIENCE_S) == 1
        assert run.wait(PATIENCE_S) == 0


def test_where_no_session_is_left_all_that_is_known_is_handed_over(project: Path) -> None:
    """The agent is killed, and its session is gone: the next one finds in its prompt what is known."""
    (project / "plan.md").write_text("# Plan\n- [ ] It {#it}\n  wait for it\n")
    with subprocess.Popen([*MUSTER, "run", "plan.md"], cwd=project, stdout=subprocess.PIPE) as run:
        until_begun(project)
        for transcript in (project / "home" / "projects" / "p").iterdir():
            transcript.unlink()
        (project / "begun").rename(project / "begun.1")
        os.kill(int((project / "begun.1").read_text()), 9)
        until_begun(project)
        assert muster(project, "task", "cancel", "plan/it").returncode == 0
        run.wait(PATIENCE_S)
    _, (_, resumed, prompt) = prompts(project)[:2]
    assert not resumed
    [path] = project.glob(".muster/attempts/*/2/handover.md")
    assert "(attempt 1)\n> Bash: make test" in prompt, "in this mode it may not read that file"
    known = path.read_text()
    assert "# The task" in known
    assert "wait for it" in known
    assert "(attempt 1)\n> Bash: make test" in known
    assert path.stat().st_mode & 0o777 == 0o600
