"""Commands that only ask, at the very moment at which the owner of their project ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from command_line import muster

from muster.client.api import Api
from muster.client.http import ClientRequest, Connection, answers
from muster.config.project import Project
from muster.hosts.file_lock import Lock
from muster.model.errors import OwnerUnavailable
from muster_command import run_muster
from patience import PATIENCE_S, until

TESTS = Path(__file__).parents[1]
ASKING = """\
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from muster_command import run_muster
folder, number = Path(sys.argv[2]), int(sys.argv[3])
asks = [line.split() for line in sys.argv[4:]]
answered = refused = 0
while not (folder / "enough").exists():
    done = run_muster(folder, *asks[number % len(asks)])
    failed = done.returncode != 0 and "Reconciled" not in done.stdout
    answered, refused, number = answered + 1, refused + failed, number + 1
    if failed:
        print(done.args, done.stdout, done.stderr, file=sys.stderr)
    if answered == 1:
        print("answered", flush=True)
print(answered, refused)
"""
"""`orchestrator status` has answered as well where it ends by what it found: no crew, or one that ends."""
ASKS = [
    *("task show plan/one --json", "status", "task list", "why plan/one", "logs plan/one", "plan show plan"),
    *("inbox", "attempt list plan/one", "audit list", "orchestrator status"),
]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "muster.toml").write_text('agent = "shell"\n')
    (tmp_path / "plan.md").write_text(
        "# Plan\n- [ ] One {#one}\n  touch begun; until [ -e go ]; do sleep 0.05; done\n"
    )
    assert muster(tmp_path, "plan", "add", "plan.md")[0] == 0
    return Project(tmp_path)


@contextmanager
def running(project: Project) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-m", "muster.cli.main", "run", "plan.md", "--workers", "1"]
    with subprocess.Popen(argv, cwd=project.root, stdout=subprocess.DEVNULL) as run:
        try:
            until((project.root / "begun").exists, "the task has begun")
            yield run
            (project.root / "go").touch()
            assert run.wait(PATIENCE_S) == 0
        finally:
            run.kill()


def owner_of(project: Project) -> int:
    """Its pid, 0 while there is none."""
    if not answers(project.socket):
        return 0
    with closing(Api(Connection(project.socket))) as api, suppress(OwnerUnavailable):
        return int(api.get("/api/v1/owner")["pid"])
    return 0


@contextmanager
def asking(project: Project, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """So many who ask in a loop, each of whom has been answered once."""
    with ExitStack() as stack:
        askers = []
        for first in range(count):
            argv = [sys.executable, "-c", ASKING, str(TESTS), str(project.root), str(first), *ASKS]
            asker = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            askers.append(stack.enter_context(asker))
            stack.callback(asker.kill)
        for asker in askers:
            assert asker.stdout is not None and asker.stdout.readline() == "answered\n"
        yield askers


@pytest.mark.parametrize("number", [None, signal.SIGKILL, signal.SIGTERM])
def test_all_who_ask_while_an_owner_ends_are_answered(project: Project, number: int | None) -> None:
    """With the run, or before it: then its supervisor starts another one."""
    with running(project) as run, asking(project, 4) as askers:
        if number is not None:
            pid = owner_of(project)
            os.kill(pid, number)
            until(lambda: owner_of(project) not in (0, pid), "there is another owner")
        (project.root / "go").touch()
        assert run.wait(PATIENCE_S) == 0
        (project.root / "enough").touch()
        for asker in askers:
            out, err = asker.communicate(timeout=PATIENCE_S)
            assert out.split()[1] == "0", err


@contextmanager
def ending(project: Project, answer: bytes = b"") -> Iterator[list[bytes]]:
    """In the place of an owner: it takes one request, and ends, also without an answer."""
    lock, heard = Lock.take(project.owner_lock), []

    def end() -> None:
        caller, _ = listening.accept()
        with caller:
            heard.append(caller.recv(65536))
            listening.close()
            Path(project.socket).unlink()
            lock.release()
            caller.sendall(answer)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(project.socket))
        listening.listen()
        thread = threading.Thread(target=end)
        thread.start()
        yield heard
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


def test_what_only_asks_is_put_to_whoever_comes_next(project: Project) -> None:
    with ending(project) as heard:
        shown = run_muster(project.root, "task", "show", "plan/one", "--json")
    assert heard[0].startswith(b"GET ")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert json.loads(shown.stdout)["task"]["status"] == "PENDING"


def test_what_changes_something_is_not_sent_twice(project: Project) -> None:
    with ending(project) as heard:
        code, said = muster(project.root, "task", "add", "two")
    assert heard[0].startswith(b"POST ")
    assert code == 7 and "no owner answers" in said
    assert "two" not in muster(project.root, "task", "list")[1]


def answer_of(content: object) -> bytes:
    body = json.dumps(content).encode()
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_an_order_that_nobody_has_taken_is_given_to_whoever_comes_next(project: Project) -> None:
    task = json.loads(run_muster(project.root, "task", "show", "plan/one", "--json").stdout)["task"]
    with ending(project, answer_of({"taskId": task["id"], "epoch": None})) as heard:
        assert muster(project.root, "task", "pause", "plan/one")[0] == 0
    assert heard[0].startswith(b"GET /api/v1/resolve")
    assert "PAUSED" in run_muster(project.root, "task", "show", "plan/one", "--json").stdout


def test_nothing_was_sent_where_the_owner_had_hung_up_before(project: Project) -> None:
    with closing(Connection(project.socket)) as connection:
        with ending(project, answer_of({}).replace(b"close", b"keep-alive")):
            assert connection.request(ClientRequest("GET", "/")) == (200, b"{}")
        with pytest.raises(OwnerUnavailable):
            connection.request(ClientRequest("POST", "/"))
        assert not connection.sent
