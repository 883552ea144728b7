"""Letta Code as an agent: how it is started, and what its own words mean."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path

import pytest

from factories import plain_job
from muster.agents.letta import KIND, LettaAgent, LettaStream
from muster.config.settings import AgentConfig
from muster.model.limits import Limits
from muster.model.states import ErrorKind
from muster.ports.agent import AttemptFolder, Completed, Exit, Failed, SessionSeen, Step

USED = {"prompt_tokens": 800, "cached_input_tokens": 200, "completion_tokens": 50}
DONE = {"type": "result", "subtype": "success", "result": "All is done.", "usage": USED}


def fed(*lines: dict[str, object]) -> LettaStream:
    stream = LettaStream(None, Limits())
    stream.feed(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    return stream


def held(usual: Path, key: str) -> Path:
    """A conversation in its folder."""
    conversation, _, own = key.partition("@")
    name = base64.urlsafe_b64encode(f"conversation:{conversation}".encode()).decode().rstrip("=")
    folder = (usual / "muster" / own if own else usual) / "conversations" / name
    folder.mkdir(parents=True)
    for name in ("conversation.json", "manifest.json", "system-prompt.json"):
        (folder / name).write_text('{\n  "id": "x",\n  "agent_id": "y"\n}\n')
    (folder / "messages.jsonl").write_text('{"a": 1}\n{"b": 2}\n')
    return folder


def test_a_conversation_is_resumed_where_it_is_held(tmp_path: Path, folder: AttemptFolder) -> None:
    config = AgentConfig("l", ("sh",), permission_mode="plan", model="a/b", env={"HOME": str(tmp_path)})
    made, job = LettaAgent(config), plain_job(session_key="local-conv-2@7-1")
    home = tmp_path / ".letta" / "lc-local-backend"
    usual = ("sh", "--output-format", "stream-json", "--permission-mode", "plan", "--model", "a/b")
    assert made.launch(job, folder, cwd=tmp_path, extra_env={}).argv == (*usual, "--new-agent", "-p")
    held(home, "local-conv-2@7-1")
    resumed = made.launch(job, folder, cwd=tmp_path, extra_env={})
    assert resumed.argv == (*usual, "--conversation", "local-conv-2", "-p")
    assert resumed.env["LETTA_LOCAL_BACKEND_DIR"] == str(home / "muster" / "7-1")
    served = made.launch(plain_job(session_key="conv-77"), folder, cwd=tmp_path, extra_env={})
    assert served.argv[-3:-1] == ("--conversation", "conv-77"), "what its server holds is not seen from here"


def test_two_that_begin_share_no_folder_and_both_have_the_users_providers(
    tmp_path: Path, folder: AttemptFolder
) -> None:
    made = LettaAgent(AgentConfig("l", ("sh",), permission_mode="plan", env={"HOME": str(tmp_path)}))
    home = tmp_path / ".letta" / "lc-local-backend"
    (home / "providers").mkdir(parents=True)
    (home / "providers" / "mine.json").write_text("{}")
    began = [made.launch(plain_job(task_id=n), folder, cwd=tmp_path, extra_env={}) for n in (3, 4)]
    places = [Path(launch.env["LETTA_LOCAL_BACKEND_DIR"]) for launch in began]
    assert places[0] != places[1]
    assert all((place / "providers" / "mine.json").is_file() for place in places)
    seen = []
    for launch in began:
        stream = made.stream(plain_job(), launch)
        seen += stream.feed(b'{"type": "system", "conversation_id": "local-conv-1"}\n')
    assert seen == [SessionSeen(f"local-conv-1@{place.name}") for place in places]
    assert {path.name for path in home.iterdir()} == {"providers", "muster"}, (
        "nothing of the user's is touched"
    )


@pytest.mark.parametrize("size", [0, 5])
@pytest.mark.parametrize(
    "cut", ["conversation.json", "messages.jsonl", "manifest.json", "system-prompt.json"]
)
def test_a_conversation_that_a_kill_has_cut_off_is_not_gone_on_with(
    tmp_path: Path, folder: AttemptFolder, cut: str, size: int
) -> None:
    made = LettaAgent(AgentConfig("l", ("sh",), permission_mode="plan", env={"HOME": str(tmp_path)}))
    torn = held(tmp_path / ".letta" / "lc-local-backend", "local-conv-1@7-1")
    os.truncate(torn / cut, size)
    launch = made.launch(plain_job(session_key="local-conv-1@7-1"), folder, cwd=tmp_path, extra_env={})
    assert "--conversation" not in launch.argv
    assert not launch.env["LETTA_LOCAL_BACKEND_DIR"].endswith("/7-1"), (
        "a broken folder ends every start in it"
    )


def test_its_own_notes_are_no_work_unless_the_project_has_them(tmp_path: Path, folder: AttemptFolder) -> None:
    made = LettaAgent(AgentConfig("l", ("sh",), permission_mode="plan", env={"HOME": str(tmp_path / "home")}))
    for name, shared in (("usual", False), ("shared", True)):
        tree = tmp_path / name
        (tree / ".letta").mkdir(parents=True) if shared else tree.mkdir()
        subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
        made.launch(plain_job(), folder, cwd=tree, extra_env={})
        (tree / ".letta" / ".lettaignore").write_text("node_modules\n")
        told = subprocess.check_output(["git", "status", "--porcelain"], cwd=tree)
        assert bool(told) == shared


@pytest.mark.parametrize(
    ("lines", "code", "kind"),
    [
        ([DONE], 0, None),
        ([{"type": "error", "message": "401 no"}], 1, ErrorKind.AUTH),
        ([{"type": "error", "message": "429 no"}, {"type": "retry"}, DONE], 0, None),
        ([{"type": "error", "message": "429 no"}], 1, ErrorKind.RATE_LIMIT),
        ([{**DONE, "subtype": "error"}], 1, ErrorKind.CRASH),
        ([], 0, ErrorKind.CRASH),
        ([], -9, ErrorKind.LOST),
    ],
)
def test_what_its_lines_mean(
    folder: AttemptFolder, lines: list[dict[str, object]], code: int, kind: ErrorKind | None
) -> None:
    outcome = fed(*lines).outcome(Exit(code=code), folder)
    if kind is None:
        assert outcome == Completed(result=b'{"text":"All is done."}', spoken=True)
    else:
        assert isinstance(outcome, Failed)
        assert outcome.kind is kind, outcome


def test_tools_are_steps_and_cached_tokens_are_input(folder: AttemptFolder) -> None:
    stream = LettaStream(None, Limits())
    call = {"name": "Bash", "arguments": '{"command": "make"}'}
    lines = [{"type": "system", "conversation_id": "c1"}, {"type": "auto_approval", "tool_call": call}, DONE]
    events = stream.feed(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    assert events == [SessionSeen("c1"), Step("Bash: make")]
    assert stream.usage is not None
    assert (stream.usage.input_tokens, stream.usage.cached_tokens, stream.usage.output_tokens) == (
        1000,
        200,
        50,
    )


def test_its_modes_are_those_of_init() -> None:
    assert set(KIND.levels.values()) <= set(KIND.modes)
