"""Plain commands as agents: what is started, and what its end means."""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from pathlib import Path

import pytest

from factories import plain_job
from muster.agents import command as command_module
from muster.agents.command import CommandAgent
from muster.agents.inputs import RESULT_BYTES_MAX
from muster.config.settings import AgentConfig
from muster.model.errors import AgentUnfit, BadInput, Unavailable
from muster.model.states import ErrorKind
from muster.ports.agent import Agent, AttemptFolder, Completed, Exit, Failed, Job
from patience import PATIENCE_S

K = ErrorKind


TEXT = "Write the API\n\nWrite it."


def agent(*command: str, **options: object) -> CommandAgent:
    return CommandAgent(AgentConfig("test", command, **options))  # type: ignore[arg-type]


def argv(
    folder: AttemptFolder, *command: str, the_job: Job | None = None, **options: object
) -> tuple[str, ...]:
    launch = agent(*command, **options).launch(the_job or plain_job(), folder, cwd=folder.path, extra_env={})
    return launch.argv


# Arguments


def test_it_is_an_agent(folder):
    plain: Agent = agent("true")
    assert (plain.name, plain.about) == ("test", "runs true as your user")
    launch = plain.launch(plain_job(), folder, cwd=folder.path, extra_env={})
    stream = plain.stream(plain_job(), launch)
    assert stream.feed(b"anything\n") == []
    assert (stream.usage, stream.session_usage) == (None, None)
    assert stream.outcome(Exit(code=0), folder) == Completed()


def test_the_prompt_is_the_last_argument_by_default(folder):
    assert argv(folder, "claude", "-p") == ("claude", "-p", TEXT)


def test_placeholders_are_replaced_in_place(folder):
    found = argv(folder, "run", "--in={prompt_file}", "{task}: {title}", "{prompt}", "{other}", "{}")
    prompt_file = str(folder.prompt)
    assert found == (
        "run",
        f"--in={prompt_file}",
        "billing/api: Write the API",
        TEXT,
        "{other}",
        "{}",
    )


@pytest.mark.parametrize("prompt", ["file", "stdin", "none"])
def test_other_ways_add_no_argument(folder, prompt):
    launch = agent("run", prompt=prompt).launch(plain_job(), folder, cwd=folder.path, extra_env={})
    assert launch.argv == ("run",)
    assert launch.stdin == (folder.prompt if prompt == "stdin" else None)


def test_the_text_of_a_task_is_never_expanded(folder):
    evil = plain_job(prompt="{title} $(touch x) `id` ; {prompt} {task}", title="{prompt_file} {prompt}")
    found = argv(folder, "run", "{title}|{prompt}", the_job=evil)
    assert found == ("run", f"{evil.title}|{evil.title}\n\n{evil.prompt}")


def test_the_text_of_a_task_is_never_an_option(folder):
    evil = plain_job(prompt="--dangerously-skip-permissions", title="-rf")
    assert argv(folder, "run", "{title}", "-x{title}", the_job=evil) == (
        "run",
        " -rf",
        "-x-rf",
        " -rf\n\n--dangerously-skip-permissions",
    )


@pytest.mark.parametrize("field", ["prompt", "title", "ref"])
@pytest.mark.parametrize(("text", "why"), [("a\0b", "NUL"), ("a\ud800", "Unicode")])
def test_text_that_cannot_be_passed_is_refused(folder, field, text, why):
    with pytest.raises(BadInput, match=why):
        argv(folder, "run", the_job=plain_job(**{field: text}))


def test_an_agent_without_a_command_is_unfit(folder):
    with pytest.raises(AgentUnfit, match="no command"):
        argv(folder)
    with pytest.raises(AgentUnfit, match="no command"):
        agent().check()


# The folder


def test_the_folder_is_private_and_holds_the_inputs(folder):
    folder.path.mkdir(parents=True)
    folder.result.write_text("stale")
    folder.prompt.write_text("stale and longer than the new one")
    folder.prompt.chmod(0o644)
    argv(folder, "run", the_job=plain_job(prompt="héllo", checkpoint=b"\0\1"))
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    begins, told = folder.prompt.read_text().split("\n\nAn earlier attempt ")
    assert begins == "Write the API\n\nhéllo" and str(folder.hand_over) in told
    assert folder.checkpoint.read_bytes() == b"\0\1"
    assert not folder.result.exists()
    for path in (folder.prompt, folder.checkpoint, folder.hand_over):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_link_in_the_folder_is_not_written_through(folder, tmp_path):
    folder.path.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder.prompt.symlink_to(victim)
    argv(folder, "run")
    assert victim.read_text() == "precious"
    assert folder.prompt.read_text() == TEXT


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match="folder"):
        argv(AttemptFolder(path=tmp_path / "file" / "7"), "run")


# The environment


def environment(folder: AttemptFolder, the_agent: CommandAgent, the_job: Job | None = None, **extra: str):
    return the_agent.launch(the_job or plain_job(), folder, cwd=folder.path, extra_env=extra).env


def test_only_allowed_variables_reach_the_agent(folder, monkeypatch):
    for name in ("AWS_SECRET", "MUSTER_TOKEN", "MUSTER_CHECKPOINT", "WANTED", "LC_TIME", "https_proxy"):
        monkeypatch.setenv(name, f"old {name}")
    env = environment(folder, agent("run", env_names=("WANTED", "ABSENT"), env={"SET": "1"}), TOKEN="t")
    assert "AWS_SECRET" not in env and "MUSTER_TOKEN" not in env and "ABSENT" not in env
    assert "MUSTER_CHECKPOINT" not in env, "there is none"
    assert (env["WANTED"], env["LC_TIME"]) == ("old WANTED", "old LC_TIME")
    assert env["https_proxy"] == "old https_proxy"
    assert (env["SET"], env["TOKEN"]) == ("1", "t")


def test_the_task_is_in_the_environment(folder):
    env = environment(folder, agent("run"), plain_job(checkpoint=b"x"))
    assert {name: value for name, value in env.items() if name.startswith("MUSTER_")} == {
        "MUSTER_TASK": "billing/api",
        "MUSTER_TASK_ID": "7",
        "MUSTER_EPOCH": "3",
        "MUSTER_RESULT": str(folder.result),
        "MUSTER_PROMPT_FILE": str(folder.prompt),
        "MUSTER_CHECKPOINT": str(folder.checkpoint),
        "MUSTER_HANDOVER_FILE": str(folder.hand_over),
    }


@pytest.mark.parametrize("prompt", ["argument", "stdin", "script"])
def test_what_earlier_attempts_printed_is_handed_over(folder, prompt):
    """A command has no session: what it said and changed is in a file, and a script is run as it was written."""
    earlier = folder.path.with_name("2")
    earlier.mkdir(parents=True)
    (earlier / "stdout").write_text("read the schema\nhalf of it is done\n")
    job = plain_job(prompt="make all", epoch=3, diff="+new line")
    launch = agent("run", prompt=prompt).launch(job, folder, cwd=folder.path, extra_env={})
    known = Path(launch.env["MUSTER_HANDOVER_FILE"]).read_text()
    assert "half of it is done" in known and "+new line" in known and "make all" in known
    assert str(folder.hand_over) in folder.prompt.read_text() and str(folder.hand_over) in launch.begins
    if prompt == "script":
        assert folder.script.read_text() == "make all"
    elif prompt == "argument":
        assert str(folder.hand_over) in launch.argv[-1]
    first = agent("run").launch(plain_job(epoch=1), folder, cwd=folder.path, extra_env={})
    assert "MUSTER_HANDOVER_FILE" not in first.env and "earlier" not in first.argv[-1]


def test_set_values_win_over_inherited_ones_and_the_callers_over_all(folder, monkeypatch):
    monkeypatch.setenv("LANG", "inherited")
    the_agent = agent("run", env={"LANG": "set", "MUSTER_TASK": "forged", "TOKEN": "forged"})
    env = environment(folder, the_agent, TOKEN="real")
    assert (env["LANG"], env["MUSTER_TASK"], env["TOKEN"]) == ("set", "billing/api", "real")


def test_muster_is_found_at_the_end_of_the_path(folder, monkeypatch):
    scripts = str(Path(sys.executable).parent)
    monkeypatch.setenv("PATH", "/bin:/usr/bin")
    assert environment(folder, agent("run"))["PATH"] == f"/bin:/usr/bin:{scripts}"
    monkeypatch.setenv("PATH", f"{scripts}:/bin")
    assert environment(folder, agent("run"))["PATH"] == f"{scripts}:/bin"
    monkeypatch.delenv("PATH")
    assert environment(folder, agent("run"))["PATH"].endswith(f":{scripts}")


def test_a_secret_of_the_worker_does_not_reach_the_process(hostiles, folder, monkeypatch):
    monkeypatch.setenv("SECRET_KEY", "hunter2")
    launch = agent("env", prompt="none").launch(
        plain_job(), folder, cwd=hostiles.tmp_path, extra_env={"A": "b"}
    )
    process = hostiles.launcher.start(launch, folder, mark=hostiles.mark)
    assert process.wait(PATIENCE_S) == 0
    process.sweep()
    said = folder.stdout.read_text().splitlines()
    assert hostiles.mark in said and "A=b" in said and "MUSTER_TASK=billing/api" in said
    assert not any("hunter2" in line for line in said)


# Fitness


def test_a_binary_on_the_path_or_by_its_place_is_fit(tmp_path, monkeypatch):
    agent("sh").check()
    agent("/bin/sh").check()
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    (tmp_path / "mine").chmod(0o700)
    agent("mine", env={"PATH": str(tmp_path)}).check()
    monkeypatch.chdir(tmp_path)
    agent("./mine").check()


def test_a_binary_that_is_missing_or_not_executable_is_unfit(tmp_path):
    with pytest.raises(AgentUnfit, match="no-such-agent not found on PATH") as caught:
        agent("no-such-agent").check()
    assert "install" in caught.value.hint
    with pytest.raises(AgentUnfit, match="/no/such/agent not found"):
        agent("/no/such/agent").check()
    with pytest.raises(AgentUnfit, match="not found"):
        agent(str(tmp_path)).check()
    (tmp_path / "mine").write_text("#!/bin/sh\n")
    for command in (str(tmp_path / "mine"), "mine"):
        with pytest.raises(AgentUnfit, match="not executable") as caught:
            agent(command, env={"PATH": str(tmp_path)}).check()
        assert caught.value.hint == f"chmod +x {tmp_path / 'mine'}"


# Ends


@pytest.fixture
def ended(folder):
    folder.path.mkdir(parents=True)
    folder.stdout.write_text("out\n")
    folder.stderr.write_text("boom\n\n")
    return folder


@pytest.mark.parametrize(
    ("exit", "kind", "message"),
    [
        (Exit(code=0, timed_out=True), K.TIMEOUT, "time limit"),
        (Exit(code=-9, timed_out=True, stopped_by_us=True), K.TIMEOUT, "time limit"),
        (Exit(code=0, stopped_by_us=True), K.LOST, "stopped on request"),
        (
            Exit(code=-9, stopped_by_us=True, out_of_memory="killed by the kernel"),
            K.LOST,
            "stopped on request",
        ),
        (
            Exit(code=-9, out_of_memory="killed by the kernel"),
            K.OUT_OF_MEMORY,
            "out of memory: killed by the kernel: boom",
        ),
        (
            Exit(code=137, out_of_memory="killed by the kernel"),
            K.OUT_OF_MEMORY,
            "out of memory: killed by the kernel: boom",
        ),
        (Exit(code=-9), K.LOST, "killed by SIGKILL from outside: boom"),
        (Exit(code=-15), K.LOST, "killed by SIGTERM from outside"),
        (Exit(code=-1), K.LOST, "SIGHUP"),
        (Exit(code=-2), K.LOST, "SIGINT"),
        (Exit(code=-2, out_of_memory="killed by the kernel"), K.LOST, "SIGINT"),
        (Exit(code=-11), K.CRASH, "killed by SIGSEGV: boom"),
        (Exit(code=-6), K.CRASH, "SIGABRT"),
        (Exit(code=-7), K.CRASH, "SIGBUS"),
        (Exit(code=-50), K.CRASH, "signal 50"),
        (Exit(code=1), K.CRASH, "exit code 1: boom"),
        (Exit(code=1, out_of_memory="killed by the kernel"), K.CRASH, "exit code 1: boom"),
        (Exit(code=64), K.INVALID, "exit code 64: boom"),
        (Exit(code=65), K.INVALID, "exit code 65"),
        (Exit(code=78), K.INVALID, "exit code 78"),
        (Exit(code=143), K.CRASH, "exit code 143"),
    ],
)
def test_what_an_end_means(ended, exit, kind, message):
    outcome = agent("run").outcome(exit, ended)
    assert isinstance(outcome, Failed)
    assert outcome.kind is kind
    assert message in outcome.message


@pytest.mark.parametrize(("counted", "kind"), [(0, K.CRASH), (4, K.CRASH), (None, K.OUT_OF_MEMORY)])
def test_exit_code_137_where_the_kernel_counts_and_where_not(ended, monkeypatch, counted, kind):
    monkeypatch.setattr(command_module, "oom_kills", lambda: counted)
    outcome = agent("run").outcome(Exit(code=137), ended)
    assert isinstance(outcome, Failed) and outcome.kind is kind


def test_exit_codes_are_configurable(ended):
    outcome = agent("run", exit_codes={75: K.RATE_LIMIT}).outcome(Exit(code=75), ended)
    assert outcome == Failed(kind=K.RATE_LIMIT, message="exit code 75: boom")
    outcome = agent("run", exit_codes={75: K.RATE_LIMIT}).outcome(Exit(code=64), ended)
    assert isinstance(outcome, Failed) and outcome.kind is K.INVALID, "those of sysexits.h stay"


PATTERNS = {
    "success_pattern": r"^Tokens: ",
    "failure_pattern": r"litellm\.\w+",
    "wait_pattern": r"[Rr]ate limit(?:, try again in (\d+) s)?",
}


@pytest.mark.parametrize(
    ("stdout", "code", "kind", "message"),
    [
        ("Tokens: 4\n", 0, None, ""),
        ("rate limit, try again in 5 s\nTokens: 4\n", 0, None, ""),
        ("half of it\n", 0, K.CRASH, "success_pattern matches nothing"),
        ("litellm.Odd: who knows\nTokens: 4\n", 0, K.CRASH, "litellm.Odd: who knows"),
        ("a\nlitellm.AuthenticationError: wrong key\n", 0, K.AUTH, "litellm.AuthenticationError: wrong key"),
        ("litellm.X: your credit balance is too low\n", 1, K.BILLING, "credit balance"),
        ("litellm.X: whatever\n", 64, K.INVALID, "exit code 64"),
        ("litellm.X: rate limit\n", 0, K.RATE_LIMIT, "litellm.X: rate limit"),
        ("Rate limit, try again in 90 s\n", 1, K.QUOTA, "try again in 90 s"),
        ("Tokens: 4\n", 3, K.CRASH, "exit code 3"),
        ("Rate limit\n", -9, K.LOST, "killed by SIGKILL"),
    ],
)
def test_what_is_printed_may_say_otherwise_than_the_exit_code(ended, stdout, code, kind, message):
    ended.stdout.write_text(stdout)
    outcome = agent("run", **PATTERNS).outcome(Exit(code=code), ended)
    if kind is None:
        assert outcome == Completed()
        return
    assert isinstance(outcome, Failed)
    assert (outcome.kind, message in outcome.message) == (kind, True), outcome
    if kind is K.QUOTA:
        assert outcome.reset_at_s and 60 < outcome.reset_at_s - time.time() <= 90


@pytest.mark.parametrize(
    ("stderr", "stdout", "expected"),
    [
        (b"first\nlast\n \n\n", b"out", "exit code 1: last"),
        (b" \n", b"only out\n", "exit code 1: only out"),
        (b"", b"", "exit code 1"),
        (b"\x1b[1;31mred\x1b[0m \x07alert\x1b]0;title\x07\n", b"", "exit code 1: red alert"),
        (b"10%\r20%\rfailed\r\n", b"", "exit code 1: failed"),
        (b"bad \xff byte\n", b"", "exit code 1: bad \N{REPLACEMENT CHARACTER} byte"),
        ("right\u202eleft\u0007\n".encode(), b"", "exit code 1: right left"),
        (b"text\n\x1b[2K\x1b[0m\n", b"", "exit code 1: text"),
        (b"error: no such key\nhint: look it up\n", b"", "exit code 1: error: no such key"),
        (b"error: no such key\n  hint  muster --help\n", b"", "exit code 1: error: no such key"),
        (b"error: no such key\n  try: --help\n", b"", "exit code 1: error: no such key"),
        (b"ls: no option 'x'\nTry 'ls --help' for more.\n", b"", "exit code 1: ls: no option 'x'"),
        (b"error[E0308]: mismatch\n  = help: cast it\n", b"", "exit code 1: error[E0308]: mismatch"),
        (b"hint: nothing else was said\n", b"", "exit code 1: hint: nothing else was said"),
        (b"trying again\nnoted\n", b"", "exit code 1: noted"),
    ],
)
def test_the_last_words_are_quoted_without_control_characters(ended, stderr, stdout, expected):
    ended.stderr.write_bytes(stderr)
    ended.stdout.write_bytes(stdout)
    outcome = agent("run").outcome(Exit(code=1), ended)
    assert isinstance(outcome, Failed) and outcome.message == expected


def test_a_message_is_short_however_long_the_line(ended):
    ended.stderr.write_text("x" * 400_000)
    outcome = agent("run").outcome(Exit(code=1), ended)
    assert isinstance(outcome, Failed)
    assert len(outcome.message) == 300 and outcome.message.endswith("x…")


def test_logs_that_are_no_files_are_no_harm(ended):
    ended.stderr.unlink()
    os.mkfifo(ended.stderr)
    ended.stdout.unlink()
    ended.stdout.mkdir()
    outcome = agent("run").outcome(Exit(code=1), ended)
    assert outcome == Failed(kind=K.CRASH, message="exit code 1")


@pytest.mark.parametrize("content", [None, b"", b" \n"])
def test_success_without_a_result(ended, content):
    if content is not None:
        ended.result.write_bytes(content)
    assert agent("run").outcome(Exit(code=0, out_of_memory="killed by the kernel"), ended) == Completed(
        result=None
    )


def test_success_with_a_result(ended):
    data = json.dumps({"files": ["a"], "n": 1.5}).encode()
    ended.result.write_bytes(data)
    assert agent("run").outcome(Exit(code=0), ended) == Completed(result=data)


def make_link(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_text("{}")
    path.symlink_to(target)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_text("{nope"), "is not JSON"),
        (lambda path: path.write_text('{"a": NaN}'), "is not JSON"),
        (lambda path: path.write_bytes(b'"\xff"'), "is not JSON"),
        (lambda path: path.write_text("[" * 100_000), "is not JSON"),
        (lambda path: path.write_text(json.dumps("x" * RESULT_BYTES_MAX)), "larger than 1,048,576 bytes"),
        (make_link, "symbolic link"),
        (lambda path: path.symlink_to("/nowhere"), "symbolic link"),
        (os.mkfifo, "not a regular file"),
        (Path.mkdir, "not a regular file"),
    ],
)
def test_a_broken_result_is_a_failure_with_its_reason(ended, make, message):
    make(ended.result)
    outcome = agent("run").outcome(Exit(code=0), ended)
    assert isinstance(outcome, Failed) and outcome.kind is K.CRASH
    assert message in outcome.message and "result.json" in outcome.message
    assert len(outcome.message) <= 300


def test_a_result_of_exactly_the_limit_is_taken(ended):
    data = b'"' + b"x" * (RESULT_BYTES_MAX - 2) + b'"'
    ended.result.write_bytes(data)
    assert agent("run").outcome(Exit(code=0), ended) == Completed(result=data)


def test_a_whole_run(hostiles, folder):
    script = 'cat "$MUSTER_PROMPT_FILE" >&2; printf \'{"done": true}\' > "$MUSTER_RESULT"'
    the_agent = agent("sh", "-c", script, prompt="file")
    the_agent.check()
    launch = the_agent.launch(plain_job(), folder, cwd=hostiles.tmp_path, extra_env={})
    process = hostiles.launcher.start(launch, folder, mark=hostiles.mark)
    code = process.wait(PATIENCE_S)
    assert code == 0 and process.sweep() == 0
    assert the_agent.outcome(Exit(code=code), folder) == Completed(result=b'{"done": true}')
    assert folder.stderr.read_text() == TEXT


def test_a_run_killed_from_outside_is_lost(hostiles, folder):
    launch = agent("sleep", hostiles.token, prompt="none").launch(
        plain_job(), folder, cwd=hostiles.tmp_path, extra_env={}
    )
    process = hostiles.launcher.start(launch, folder, mark=hostiles.mark)
    os.kill(process.pid, signal.SIGKILL)
    code = process.wait(PATIENCE_S)
    process.sweep()
    outcome = agent("run").outcome(Exit(code=code if code is not None else 0), folder)
    assert outcome == Failed(kind=K.LOST, message="killed by SIGKILL from outside")
