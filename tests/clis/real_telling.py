"""What a person tells Claude Code and Codex while they work, and what they report in their messages."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
from pathlib import Path

import psutil
import pyte
import pytest
from model_stub import ModelStub, Say, Shell
from real_run import muster, project, running, show, until
from scenarios import WAIT

from bench import MODES, Bench
from muster.agents.claude_code import ClaudeCodeAgent
from muster.ports.agent import Completed, RunningProcess

TOLD = "Mind the gap, says a person."


@pytest.fixture
def cli() -> str:
    return "claude-code"


def say(bench: Bench, process: RunningProcess) -> bool:
    agent = bench.agent()
    assert isinstance(agent, ClaudeCodeAgent)
    talk = agent.talk("")
    assert talk.message is not None
    return process.say(talk.message(TOLD))


def test_claude_reads_it_at_its_next_turn(bench: Bench, stub: ModelStub) -> None:
    def meanwhile(process: RunningProcess) -> None:
        bench.until("begun")
        assert say(bench, process)
        assert process.wait(0.5) is None
        (bench.root / "go").touch()

    ran = bench.run("slow", meanwhile=meanwhile)
    assert isinstance(ran.outcome, Completed)
    assert [TOLD in seen.text for seen in stub.model_requests("slow")] == [False, False, True]


def test_claude_that_has_just_ended_its_turn_takes_another_one(bench: Bench, stub: ModelStub) -> None:
    def meanwhile(process: RunningProcess) -> None:
        assert process.wait(0.2) is None
        assert say(bench, process)

    ran = bench.run("plain", meanwhile=meanwhile)
    assert isinstance(ran.outcome, Completed)
    assert TOLD in stub.model_requests("plain")[-1].text
    assert ran.stream.usage is not None
    assert ran.stream.usage.cost_microusd == 3810 * len(stub.model_requests("plain"))


@pytest.fixture
def asking(stub: ModelStub) -> ModelStub:
    stub.scenarios["asks"] = [
        Say("I looked at it.\n\nmuster: ask which of the two schemas is meant?"),
        Say("Blue it is."),
    ]
    stub.scenarios["saves"] = [
        Say("muster: progress 40 half of it is there\nmuster: checkpoint the parser is done"),
        Say("All is done."),
    ]
    stub.scenarios["listens"] = [Shell(WAIT), Say("I heard.")]
    return stub


@pytest.mark.parametrize(
    ("kind", "mode"), [("claude-code", "acceptEdits"), ("codex", "workspace-write"), ("codex", "read-only")]
)
def test_one_that_may_run_nothing_asks_in_its_words(
    tmp_path: Path, asking: ModelStub, kind: str, mode: str
) -> None:
    folder = project(tmp_path, asking, kind, permission_mode=mode)
    (folder / "plan.md").write_text("# Plan\n- [ ] Choose {#choose}\n\n  stub: asks\n")
    done = muster(folder, "run", "plan.md")
    assert "which of the two schemas is meant?" in done.stdout + done.stderr
    shown = show(folder, "plan/choose")["task"]
    assert (shown["status"], shown["question"]) == ("PAUSED", "which of the two schemas is meant?")
    assert muster(folder, "answer", "plan/choose", "the blue one").returncode == 0
    asking.scenarios["asks"] = [Say("Blue it is.")]
    done = muster(folder, "run", "plan.md")
    assert show(folder, "plan/choose")["task"]["status"] == "COMPLETED", done.stdout + done.stderr
    assert "the blue one" in asking.model_requests("asks")[-1].text


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_reports_in_its_words_count(tmp_path: Path, asking: ModelStub, kind: str) -> None:
    folder = project(tmp_path, asking, kind)
    (folder / "plan.md").write_text("# Plan\n- [ ] Save {#save}\n\n  stub: saves\n")
    assert muster(folder, "run", "plan.md").returncode == 0
    detail = show(folder, "plan/save")
    told = [event["message"] for event in detail["events"] if event["event"] == "progress"]
    assert "40 % half of it is there" in told
    assert detail["attempts"][0]["checkpoints"] == 1


def test_a_sandbox_that_keeps_codex_from_muster_says_so_at_once(tmp_path: Path, asking: ModelStub) -> None:
    """Its sandbox refuses sockets: the report ends at once, with the way that works."""
    asking.scenarios["reports"] = [
        Shell(f"{sys.executable} -m muster.cli.main report progress 40 2>&1; echo code $?"),
        Say("Done."),
    ]
    folder = project(tmp_path, asking, "codex", permission_mode="workspace-write")
    (folder / "plan.md").write_text("# Plan\n- [ ] Report {#report}\n\n  stub: reports\n")
    muster(folder, "run", "plan.md")
    seen = asking.model_requests("reports")[-1].text
    if "code 0" in seen:
        pytest.skip("its sandbox lets sockets through here")
    assert "may not reach Muster" in seen, seen[-2000:]
    assert "muster: progress 40 TEXT" in seen


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_muster_tell_says_what_happens_with_it(tmp_path: Path, asking: ModelStub, kind: str) -> None:
    folder = project(tmp_path, asking, kind)
    (folder / "plan.md").write_text("# Plan\n- [ ] Listen {#listen}\n\n  stub: listens\n")
    with running(folder, "run", "plan.md"):
        until(lambda: (folder / "begun").exists() or list(folder.glob(".muster/**/begun")), "its tool runs")
        told = muster(folder, "tell", "plan/listen", TOLD)
        assert told.returncode == 0, told.stderr
        if kind == "claude-code":
            assert "reads it at its next turn" in told.stdout
            until(lambda: "is told" in json.dumps(show(folder, "plan/listen")), "it is told")
        else:
            assert "takes no messages while it works" in told.stdout
            until(lambda: list(folder.glob(".muster/attempts/*/1/notice")), "the notice is there")
            [notice] = folder.glob(".muster/attempts/*/1/notice")
            assert TOLD in notice.read_text()
            assert str(notice) in notice.with_name("prompt.md").read_text()
        for begun in [folder / "begun", *folder.glob(".muster/**/begun")]:
            begun.with_name("go").touch() if begun.exists() else None
        until(lambda: show(folder, "plan/listen")["task"]["status"] == "COMPLETED", "it is done")
    if kind == "claude-code":
        assert TOLD in asking.model_requests("listens")[-1].text


def test_a_person_goes_on_in_the_session_of_a_killed_codex_and_gives_it_back(
    tmp_path: Path, asking: ModelStub
) -> None:
    """With a program in its place that only tells how it was called: the CLI itself wants a terminal."""
    real = Path(str(Bench(tmp_path, "codex", asking.url, MODES["codex"]).settings["command"][0]))  # type: ignore[index]
    wrapper = tmp_path / "codex"
    wrapper.write_text(
        '#!/bin/sh\nif [ "$1" = resume ]; then echo "$@" > attached; pwd >> attached; exit; fi\n'
        f'exec {real} "$@"\n'
    )
    wrapper.chmod(0o755)
    folder = project(tmp_path, asking, "codex")
    config = folder / "muster.toml"
    config.write_text(config.read_text().replace(json.dumps([str(real)]), json.dumps([str(wrapper)])))
    (folder / "plan.md").write_text("# Plan\n- [ ] Listen {#listen}\n\n  stub: listens\n")
    with running(folder, "run", "plan.md"):
        until((folder / "begun").exists, "its tool runs")
        session = until(
            lambda: show(folder, "plan/listen")["attempts"][0]["sessionKey"], "its session is known"
        )
        done = subprocess.run(
            [sys.executable, "-m", "muster.cli.main", "attach", "plan/listen"],
            cwd=folder,
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        words, cwd = (folder / "attached").read_text().splitlines()
        assert words.startswith(f"resume {session}")
        assert cwd == str(folder)
        (folder / "go").touch()
        until(lambda: show(folder, "plan/listen")["task"]["status"] == "COMPLETED", "it is done")
    attempts = show(folder, "plan/listen")["attempts"]
    assert [attempt["agent"] for attempt in attempts] == ["cli", "by hand", "cli"]
    assert attempts[2]["sessionKey"] == session


def seen_before(folder: Path) -> None:
    """What Claude Code asks on its first start in a folder was answered, as by whoever attaches to a session."""
    path = folder / "home" / "claude" / ".claude.json"
    known = json.loads(path.read_text())
    known |= {"hasCompletedOnboarding": True, "theme": "dark"}
    known["customApiKeyResponses"] = {"approved": ["sk-ant-dummy"], "rejected": []}
    known.setdefault("projects", {}).setdefault(str(folder), {})["hasTrustDialogAccepted"] = True
    path.write_text(json.dumps(known))


@pytest.mark.parametrize(("kind", "leave"), [("claude-code", "/exit"), ("codex", "/quit")])
def test_a_person_reads_the_session_in_the_cli_itself_says_more_and_leaves(
    tmp_path: Path, asking: ModelStub, kind: str, leave: str
) -> None:
    folder = project(tmp_path, asking, kind)
    (folder / "plan.md").write_text("# Plan\n- [ ] Listen {#listen}\n\n  stub: listens\n")
    with running(folder, "run", "plan.md") as run:
        until((folder / "begun").exists, "its tool runs")
        until(lambda: show(folder, "plan/listen")["attempts"][0]["sessionKey"], "its session is known")
        if kind == "claude-code":
            seen_before(folder)
        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.environ["TERM"] = "xterm-256color"
            os.execv(sys.executable, [sys.executable, "-m", "muster.cli.main", "attach", "plan/listen"])
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
        screen = pyte.Screen(120, 50)
        stream = pyte.ByteStream(screen)

        def shows(text: str) -> bool:
            if select.select([terminal], [], [], 0.1)[0]:
                data = os.read(terminal, 1 << 16)
                stream.feed(data)
                if b"\x1b[6n" in data:
                    os.write(terminal, b"\x1b[1;1R")  # it asks where the cursor is
            return text in "\n".join(screen.display)

        def types(text: str, then: str) -> None:
            os.write(terminal, text.encode())
            until(lambda: shows(text), f"it has read {text}")
            os.write(terminal, b"\r")
            until(lambda: shows(then), then)

        until(lambda: shows("stub: listens") and shows("nterrupted"), "what was said so far is shown")
        types("How far is it?", "I heard.")
        types(leave, "plan/listen  given back")
        assert os.waitpid(pid, 0)[1] == 0
        os.close(terminal)
        (folder / "go").touch()
        until(lambda: run.status() == psutil.STATUS_ZOMBIE, "the run, which has waited, ends")
    detail = show(folder, "plan/listen")
    first, by_hand, last = detail["attempts"]
    assert (by_hand["agent"], detail["task"]["status"]) == ("by hand", "COMPLETED")
    assert last["sessionKey"] == first["sessionKey"]
    assert "How far is it?" in asking.model_requests("listens")[-1].text
