"""Muster's tools for agents, through a real pipe and against a real owner."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from muster.agents.reports import SERVER, identity, mcp_server
from muster.engine.batch import drive
from muster.hosts.attempt_folders import attempt_folder, kept_artifact
from muster.mcp import server as mcp
from muster.model import commands as c
from muster.ports.agent import AttemptFolder
from patience import until

_BOUND = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # drop CAP_DAC_OVERRIDE, with which root may use any socket
os.execv(sys.argv[1], sys.argv[1:])
"""


class Pipe:
    """The server as an agent's CLI starts it: its environment tells nothing."""

    def __init__(self, folder: AttemptFolder, *before: str) -> None:
        command = [*before, *mcp_server(folder)]
        self.process = subprocess.Popen(command, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._number = 0

    def say(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def hear(self) -> dict:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, **params: object) -> dict:
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.say(json.dumps(request).encode())
        answer = self.hear()
        assert (answer["jsonrpc"], answer["id"]) == ("2.0", self._number)
        return answer

    def call(self, tool: str, /, **arguments: object) -> tuple[bool, str]:
        """Whether it failed, and what the model reads."""
        result = self.ask("tools/call", name=tool, arguments=arguments)["result"]
        [part] = result["content"]
        return result["isError"], part["text"]


@pytest.fixture
def folder(tmp_path, owner, root) -> AttemptFolder:
    folder = AttemptFolder(path=tmp_path / "attempt")
    folder.path.mkdir()
    told = identity({**owner.inside(), "MUSTER_WORKDIR": str(root)})
    folder.identity.write_bytes(told)
    return folder


@pytest.fixture
def start_pipe(folder) -> Iterator[Callable[..., Pipe]]:
    pipes: list[Pipe] = []

    def begin(*before: str) -> Pipe:
        pipes.append(Pipe(folder, *before))
        return pipes[-1]

    yield begin
    for pipe in pipes:
        pipe.process.kill()
        pipe.process.__exit__(None, None, None)


@pytest.fixture
def pipe(start_pipe) -> Pipe:
    return start_pipe()


def test_a_client_of_any_version_is_answered_and_nothing_ends_it(pipe):
    assert pipe.ask("server/discover")["error"]["code"] == -32601
    for version in mcp.VERSIONS:
        told = pipe.ask("initialize", protocolVersion=version, capabilities={}, clientInfo={})["result"]
        assert (told["protocolVersion"], told["serverInfo"]["name"]) == (version, SERVER)
    assert (
        pipe.ask("initialize", protocolVersion="2099-01-01")["result"]["protocolVersion"] == mcp.VERSIONS[0]
    )
    pipe.say(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
    pipe.say(b'{"jsonrpc":"2.0","id":7,"result":{}}')
    pipe.say(b"")
    for broken, code in ((b"{", -32700), (b"[" * 100_000, -32700), (b"\xff", -32700), (b"[1]", -32600)):
        pipe.say(broken)
        answer = pipe.hear()
        assert (answer["id"], answer["error"]["code"]) == (None, code)
    for method in ("resources/list", "prompts/list", "tools/cal"):
        assert pipe.ask(method)["error"]["code"] == -32601
    assert pipe.ask("tools/call", name="shutdown")["error"]["code"] == -32602
    assert pipe.ask("tools/call", name="ask", arguments=["x"])["error"]["code"] == -32602
    assert pipe.ask("ping")["result"] == {}
    pipe.process.stdin.close()
    assert pipe.process.wait() == 0


def test_between_two_talks_it_holds_hardly_more_than_an_empty_interpreter(start_pipe):
    """Each running agent has one, and talks to it for seconds."""
    pipe = start_pipe()
    pipe.ask("tools/list")
    waiting = psutil.Process(pipe.process.pid)
    until(lambda: waiting.children() == [], "nobody answers any more")
    empty = [sys.executable, "-I", "-S", "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(empty, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bare:
        bare.stdout.readline()
        assert _own_kb(waiting.pid) < _own_kb(bare.pid) + 500
        bare.stdin.close()
    pipe.say(b'{"jsonrpc":"2.0","id":6,"method":"ping"}\n{"jsonrpc":"2.0","id":7,"method":"ping"}')
    assert [pipe.hear()["id"], pipe.hear()["id"]] == [6, 7]
    until(lambda: waiting.children() == [], "nobody answers any more")
    pipe.process.stdin.close()
    assert pipe.process.wait() == 0


def _own_kb(pid: int) -> float:
    return psutil.Process(pid).memory_full_info().uss / 1024


def test_its_tools_are_the_verbs_of_muster_report(cli, pipe):
    listed = {tool["name"]: tool for tool in pipe.ask("tools/list")["result"]["tools"]}
    for name, tool in listed.items():
        assert cli("report", name, "--help").code == 0
        assert tool["inputSchema"]["type"] == "object"
        assert tool["inputSchema"].keys() >= {"properties", "required"}
    assert len(json.dumps(listed)) < 3500, "each agent's model reads all of it at each request"


def test_what_is_reported_arrives(owner, pipe):
    assert pipe.call("progress", percent=40, step="half of it", minutes_left=20) == (False, "Told.")
    api = owner.tasks()["api"]
    assert (api.percent, api.step) == (40, "half of it")
    for state, saved in (
        ("größer", "größer".encode()),
        ('{"n": [1]}', b'{"n": [1]}'),
        ({"n": [1]}, b'{"n": [1]}'),
        ("\ud800", b"?"),
    ):
        assert pipe.call("checkpoint", state=state) == (False, "Saved.")
        assert drive(owner.store.reads.checkpoint(api.id)).data == saved
    assert pipe.call("artifact", name="page", location="dist/x.html")[0] is False
    found = drive(owner.store.reads.artifacts(api.id))
    assert [(artifact.name, artifact.location) for artifact in found] == [("page", "dist/x.html")]
    (owner.root / "made.txt").write_text("what it has made")
    assert pipe.call("artifact", name="made", location=str(owner.root / "made.txt")) == (False, "Noted.")
    folder = attempt_folder(owner.root / ".muster" / "attempts", api.id, 1)
    assert kept_artifact(folder, "made") == b"what it has made"
    failed, said = pipe.call("progress", step="s" * 600, percent=None, minutes_left=None)
    assert (failed, said) == (False, "Told. the step was cut to 500 characters")
    assert pipe.call("done", result='{"rows": 120}')[0] is False
    owner.do(c.Complete(task_id=api.id, epoch=1, exit_code=0))
    assert json.loads(drive(owner.store.reads.texts(api.id)).result) == {"rows": 120}


def test_a_question_pauses_the_task(owner, pipe):
    failed, said = pipe.call("ask", question="Which of the two schemas is meant?")
    assert (failed, said.startswith("Asked. End your turn now")) == (False, True)
    api = owner.tasks()["api"]
    assert (api.status, api.question) == ("PAUSED", "Which of the two schemas is meant?")


def test_a_failure(owner, pipe):
    assert pipe.call("fail", message="no such table", kind="invalid")[0] is False
    owner.do(c.Complete(task_id=owner.tasks()["api"].id, epoch=1, exit_code=0))
    api = owner.tasks()["api"]
    assert (api.status, api.error_kind, api.error) == ("FAILED", "invalid", "no such table")


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("progress", {}, "there is nothing to report: say a percentage or a step"),
        ("progress", {"percent": 101}, "101 is not a percentage from 0 to 100"),
        ("progress", {"percent": float("nan")}, "nan is not a percentage"),
        ("progress", {"percent": "half"}, "percent is not a number; nothing was sent"),
        ("progress", {"percent": True}, "percent is not a number"),
        ("progress", {"message": "x"}, "message is not known; nothing was sent: it takes percent, step"),
        ("checkpoint", {}, "state is missing"),
        ("checkpoint", {"state": ""}, "the checkpoint is empty; nothing was sent, the last one is kept"),
        ("checkpoint", {"state": "x" * ((1 << 20) + 1)}, "more than 1048576 bytes; the last one is kept"),
        ("checkpoint", {"state": 7}, "state is not a text"),
        ("ask", {"question": " "}, "the question is empty; nothing was asked"),
        ("artifact", {"name": "x", "location": "link"}, "is a link out of the task's folder"),
        ("artifact", {"name": "", "location": "x"}, "NAME has 0 characters"),
        ("artifact", {"name": "x", "location": "a\0b"}, "NUL character"),
        ("done", {"result": "{rows: 1}"}, "the result is not JSON: "),
        ("fail", {"message": "m", "kind": "crsh"}, "there is no kind 'crsh'"),
        ("fail", {"message": "m", "kind": "lost"}, "an agent that can say so is not lost"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(owner, root, pipe, name, given, message):
    (root / "link").symlink_to("/etc/passwd")
    before = owner.fingerprint()
    failed, said = pipe.call(name, **given)
    assert failed, said
    assert message in said
    assert "\n" not in said
    assert owner.fingerprint() == before


@pytest.mark.parametrize("name", list(mcp.TOOLS))
def test_an_attempt_that_is_over_is_told_to_stop(owner, pipe, name):
    owner.do(c.Cancel(task_id=owner.tasks()["api"].id, actor="me"))
    given = dict.fromkeys(mcp.TOOLS[name].needs, "x") or ({"percent": 1} if name == "progress" else {})
    failed, said = pipe.call(name, **given)
    assert failed
    assert "attempt 1 is over" in said
    assert "another attempt may hold the task" in said


def test_a_report_waits_for_an_owner_that_is_started_again(owner, pipe):
    owner.stop()
    threading.Timer(0.5, owner.start).start()
    assert pipe.call("progress", percent=60) == (False, "Told.")
    assert owner.tasks()["api"].percent == 60


def test_an_owner_that_stays_away_is_an_error_in_the_end(owner, folder, monkeypatch):
    owner.stop()
    monkeypatch.setattr(mcp, "AWAY_S", 0.3)
    call = {"id": 1, "method": "tools/call", "params": {"name": "progress", "arguments": {"percent": 1}}}
    answer = mcp.McpServer(str(folder.identity)).answer(json.dumps(call).encode())
    assert answer is not None
    assert answer["result"]["isError"]
    assert "no owner answers" in answer["result"]["content"][0]["text"]


def test_a_socket_that_it_may_not_use_is_said_at_once(owner, start_pipe):
    """Not after the time that an owner may be away: then it would be another error."""
    owner.socket.chmod(0)
    failed, said = start_pipe(sys.executable, "-c", _BOUND).call("progress", percent=60)
    assert failed
    assert "this process may not reach Muster (Permission denied)" in said
    assert "muster: progress 40 TEXT" in said


@pytest.mark.parametrize("told", [None, b"", b"[]", b'{"MUSTER_TOKEN": "x"}'])
def test_without_an_identity_each_call_says_so(folder, pipe, told):
    folder.identity.unlink()
    if told is not None:
        folder.identity.write_bytes(told)
    failed, said = pipe.call("progress", percent=1)
    assert failed
    assert str(folder.identity) in said or "this is not inside a task" in said


def test_its_token_is_seen_nowhere(owner, pipe):
    pipe.ask("ping")
    for name in ("cmdline", "environ"):
        assert (
            owner.inside()["MUSTER_TOKEN"].encode()
            not in Path(f"/proc/{pipe.process.pid}/{name}").read_bytes()
        )
