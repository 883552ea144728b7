"""Sessions and usage from a CLI's output to the store and back, with a CLI that only pretends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from muster_command import MUSTER
from muster_command import run_muster as muster
from patience import PATIENCE_S, until

FAKE = """\
#!{python}
import json, os, pathlib, sys, time
print("2.1.328 (pretends)") if "--version" in sys.argv else None
if "--version" in sys.argv: sys.exit()
resumes = "--resume" in sys.argv
key = sys.argv[sys.argv.index("--resume" if resumes else "--session-id") + 1]
prompt = json.loads(sys.stdin.readline())["message"]["content"]
def note(): open("prompts.jsonl", "a").write(json.dumps([key, resumes, prompt]) + "\\n")
if resumes and "torn" in prompt:
    note()
    sys.exit("SyntaxError: Unterminated string in JSON at position 8192")
def say(**line): print(json.dumps(dict(line, session_id=key)), flush=True)
def end(total, **more):
    # As the real one: it ends when nobody can tell it anything any more.
    used = dict(inputTokens=total * 100, outputTokens=total * 10, cacheReadInputTokens=0)
    fine = dict(type="result", subtype="success", is_error=False, num_turns=1, result="Done.")
    say(**(fine | dict(permission_denials=[], total_cost_usd=total / 1000, modelUsage=dict(m=used)) | more))
    assert sys.stdin.read() == ""
say(type="system", subtype="init")
transcript = pathlib.Path(os.environ["CLAUDE_CONFIG_DIR"], "projects", "p", key + ".jsonl")
transcript.parent.mkdir(parents=True, exist_ok=True)
note()
if "unreadable" in prompt and not transcript.exists():
    transcript.touch()
    end(1, is_error=True)
    sys.exit(1)
if resumes and not transcript.read_text():
    gone = ["No conversation found with session ID: " + key]
    end(0, subtype="error_during_execution", is_error=True, result="", errors=gone)
    sys.exit(1)
transcript.write_text("something")
if "torn" in prompt and not pathlib.Path("tried").exists():
    pathlib.Path("tried").touch()
    say(type="assistant", message=dict(id="m0", content=[dict(type="text", text="It leans left.")]))
    end(1, is_error=True)
    sys.exit(1)
if "busy" in prompt and not pathlib.Path("served").exists():
    pathlib.Path("served").touch()
    end(0, is_error=True, api_error_status=529, result="Overloaded", modelUsage={})
    sys.exit(1)
if "login" in prompt:
    end(0, is_error=True, api_error_status=401, result="Invalid API key")
    sys.exit(1)
if "limit" in prompt:
    info = dict(status="rejected", resetsAt=int(time.time()) + 7 * 86400)
    say(type="rate_limit_event", rate_limit_info=info)
    end(0, is_error=True, api_error_status=429, result="You've hit your limit")
    sys.exit(1)
if resumes or "wait" not in prompt:
    end(3 if resumes else 2)
    sys.exit()
tool = dict(type="tool_use", name="Bash", input=dict(command="make test"))
say(type="assistant", message=dict(id="m1", usage=dict(input_tokens=100), content=[tool]))
pathlib.Path("begun").write_text(str(os.getpid()))
time.sleep(600)
"""
CONFIG = """
agent = "claude"
[task]
backoff = {{ first = "0s", max = "1s" }}
[agents.claude]
kind = "claude-code"
command = ["{fake}"]
permission_mode = "acceptEdits"
set = {{ CLAUDE_CONFIG_DIR = "{home}" }}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    fake = tmp_path / "claude"
    fake.write_text(FAKE.replace("{python}", sys.executable))
    fake.chmod(0o755)
    (tmp_path / "muster.toml").write_text(CONFIG.format(fake=fake, home=tmp_path / "home"))
    return tmp_path


def show(folder: Path, ref: str) -> dict[str, Any]:
    detail: dict[str, Any] = json.loads(muster(folder, "task", "show", ref, "--json").stdout)
    return detail


def prompts(folder: Path) -> list[list[Any]]:
    return [json.loads(line) for line in (folder / "prompts.jsonl").read_text().splitlines()]


def test_a_killed_agent_is_resumed_in_its_session_and_both_runs_are_booked(project: Path) -> None:
    (project / "plan.md").write_text("# Plan\n- [ ] Long {#long}\n  wait for it\n")
    with subprocess.Popen([*MUSTER, "run", "plan.md"], cwd=project, stdout=subprocess.PIPE) as run:
        deadline_s = time.monotonic() + PATIENCE_S
        while not (project / "begun").exists() or not (project / "begun").read_text():
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        while show(project, "plan/long")["task"]["step"] != "step 1: Bash: make test":
            assert time.monotonic() < deadline_s
        os.kill(int((project / "begun").read_text()), signal.SIGKILL)
        assert run.wait(PATIENCE_S) == 0
    first, second = show(project, "plan/long")["attempts"]
    assert (first["status"], second["status"]) == ("lost", "completed")
    (key, resumed, prompt), (again, resumed_again, prompt_again) = prompts(project)
    assert (resumed, resumed_again) == (False, True)
    assert key == again == first["sessionKey"] == second["sessionKey"]
    assert "wait for it" in prompt
    assert "was interrupted" in prompt_again
    assert first["usage"]["estimated"]
    assert (second["usage"]["inputTokens"], second["usage"]["costMicrousd"]) == (300, 3000)
    shown = muster(project, "task", "show", "plan/long").stdout
    assert "300 tokens in, 30 out, $0.0030" in shown
    assert "about 100 tokens in" in shown


MUTE = """\
#!/bin/sh
case $* in *--version*) echo codex-cli 0.169.0; exit;; esac
echo $PPID > begun; exec sleep 600
"""
MUTE_CONFIG = """
agent = "mute"
[task]
losses = 1
[agents.mute]
kind = "codex"
command = ["{command}"]
permission_mode = "read-only"
"""


def test_what_an_agent_has_cost_whose_worker_died_before_it_said_a_word_is_not_known(project: Path) -> None:
    mute = project / "codex"
    mute.write_text(MUTE)
    mute.chmod(0o755)
    (project / "muster.toml").write_text(MUTE_CONFIG.format(command=mute))
    (project / "plan.md").write_text("# Plan\n- [ ] Long {#long}\n  work\n")
    with subprocess.Popen([*MUSTER, "run", "plan.md"], cwd=project, stdout=subprocess.PIPE) as run:
        begun = project / "begun"
        worker = until(lambda: begun.exists() and begun.read_text().strip(), "it is at work")
        os.kill(int(worker), signal.SIGKILL)
        assert run.wait(PATIENCE_S) != 0
    (lost,) = show(project, "plan/long")["attempts"]
    assert lost["status"] == "lost" and lost["usage"]["estimated"]
    assert "cost not known" in muster(project, "task", "show", "plan/long").stdout


def test_a_session_that_cannot_be_read_is_not_tried_a_second_time(project: Path) -> None:
    (project / "plan.md").write_text("# Plan\n- [ ] Bad {#bad}\n  unreadable\n")
    ran = muster(project, "run", "plan.md")
    assert ran.returncode in {0, 5}, ran.stderr
    keys = [(key, resumed) for key, resumed, _ in prompts(project)]
    assert [resumed for _, resumed in keys] == [False, True, False, True]
    assert keys[0][0] == keys[1][0] != keys[2][0]


def test_a_session_that_ends_its_cli_before_a_word_is_not_tried_a_second_time(project: Path) -> None:
    (project / "plan.md").write_text("# Plan\n- [ ] A torn one {#torn}\n  write it\n")
    ran = muster(project, "run", "plan.md")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (first, _, _), (again, resumed, _), (fresh, resumed_again, prompt) = prompts(project)
    assert (resumed, resumed_again) == (True, False)
    assert first == again != fresh
    assert "write it" in prompt
    assert "It leans left." in prompt, "what is known of the work is handed over"


def test_who_was_refused_before_a_word_was_said_begins_anew_as_if_nothing_had_been(project: Path) -> None:
    (project / "plan.md").write_text("# Plan\n- [ ] One {#one}\n  busy\n")
    with subprocess.Popen([*MUSTER, "run", "plan.md", "--workers", "1"], cwd=project) as run:
        deadline_s = time.monotonic() + PATIENCE_S
        while not json.loads(muster(project, "status", "--json").stdout)["pools"]:
            assert time.monotonic() < deadline_s
        assert muster(project, "agent", "resume", "claude").returncode == 0
        assert run.wait(PATIENCE_S) == 0
    (first, resumed, prompt), (second, resumed_again, prompt_again) = prompts(project)
    assert (resumed, resumed_again) == (False, False)
    assert first != second
    assert prompt == prompt_again
    attempts = show(project, "plan/one")["attempts"]
    assert [attempt["status"] for attempt in attempts] == ["released", "completed"]


def test_a_refused_login_ends_the_run_and_waits_for_a_person(project: Path) -> None:
    (project / "plan.md").write_text("# Plan\n- [ ] One {#one}\n  login\n- [ ] Two {#two}\n  login\n")
    ran = muster(project, "run", "plan.md", "--workers", "1")
    assert ran.returncode == 5, ran.stdout + ran.stderr
    assert "the login of anthropic needs a person: Invalid API key" in ran.stdout
    assert len(prompts(project)) == 1, "the second task has not run into the same wall"
    inbox = muster(project, "inbox").stdout
    assert "anthropic waits for you (auth): Invalid API key" in inbox
    assert "muster agent resume claude" in inbox
    opened = muster(project, "agent", "resume", "anthropic")
    assert (opened.returncode, opened.stdout) == (0, "anthropic  may be tried again, by claude\n"), (
        opened.stderr
    )
    assert muster(project, "inbox").stdout == "nothing waits for you\n"


def test_a_quota_says_everywhere_until_when_it_parks(project: Path) -> None:
    (project / "plan.md").write_text("# Plan\n- [ ] One {#one}\n  limit\n- [ ] Two {#two}\n  limit\n")
    command = [*MUSTER, "run", "plan.md", "--workers", "1"]
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE) as run:
        deadline_s = time.monotonic() + PATIENCE_S
        while not (pools := json.loads(muster(project, "status", "--json").stdout)["pools"]):
            assert time.monotonic() < deadline_s
        run.send_signal(signal.SIGINT)
        run.wait(PATIENCE_S)
    [pool] = pools
    assert (pool["name"], pool["kind"], pool["reason"]) == ("anthropic", "quota", "You've hit your limit")
    until = time.strftime("%Y-%m-%d %H:%M", time.localtime(pool["untilMs"] / 1000))
    assert f"anthropic  ○ quota, until {until}  You've hit your limit" in muster(project, "status").stdout
    assert f"anthropic: quota, until {until}" in muster(project, "agent", "list").stdout
    agents = json.loads(muster(project, "agent", "list", "--json").stdout)
    assert [agent["closed"] for agent in agents if agent["name"] == "claude"] == [
        {key: value for key, value in pool.items() if key != "name"}
    ]
    said = (
        f"waits for the quota of anthropic (until {until}): You've hit your limit; "
        "`muster agent resume claude` tries it now"
    )
    assert said in muster(project, "why", "plan/one").stdout
    assert show(project, "plan/one")["task"]["why"] == f"{said}; the crew is stopped: `muster up` goes on"
    assert len(prompts(project)) == 1, "the second task has not run into the same wall"
