"""Workers of another folder, and of another HOME: all that they say goes over TCP."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from test_run import folder, started, until

from muster.client.api import Api
from muster.client.http import Connection
from muster.model.errors import Unavailable
from muster_command import MUSTER
from muster_command import run_muster as muster
from patience import PATIENCE_S

__all__ = ["folder"]

REPORTS = 'muster report progress 40 --step half && muster report checkpoint --text saved && echo "on $PWD"'


class Served:
    """A server, with a token of each kind."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.url = folder, f"http://127.0.0.1:{port}"
        self.owner = self.said("token", "create", "all", "--member", "ada", "--role", "OWNER")
        self.worker = self.said(
            *("token", "create", "w", "--member", "ada", "--role", "ADMIN", "--scope", "serve")
        )

    def said(self, *words: str) -> str:
        done = muster(self.folder, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def told(self, *words: str) -> Any:
        return json.loads(self.said(*words, "--json"))

    @property
    def api(self) -> Api:
        return Api(Connection(self.url, self.owner))

    def answers(self) -> bool:
        try:
            return bool(self.api.get("/api/v1/whoami"))
        except Unavailable:
            return False

    def far(self) -> list[Any]:
        return [one for one in self.told("worker", "list") if "far" in one["agents"]]

    def status(self, ref: str) -> str:
        return str(self.told("task", "show", ref)["task"]["status"])


@pytest.fixture
def served(folder: Path) -> Iterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with (folder / "muster.toml").open("a") as settings:
        settings.write('[health]\nheartbeat = "500ms"\nlease = "3s"\nremote_lease = "4s"\n')
    assert muster(folder, "member", "set", "ada", "--role", "OWNER").returncode == 0
    found = Served(folder, port)
    with started(folder, "serve", "--listen", f"127.0.0.1:{port}", "--workers", "1") as server:
        until(found.answers, "the server answers")
        yield found
        muster(folder, "down")
        server.wait(PATIENCE_S)


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another host, as far as one machine can show it: a folder and a HOME of its own."""
    host = tmp_path_factory.mktemp("host")
    (host / "muster.toml").write_text('agent = "far"\n[agents.far]\ncommand = ["sh", "-c"]\n')
    return host


@contextmanager
def working(
    host: Path, served: Served, token: str, *more: str, url: str = ""
) -> Iterator[subprocess.Popen[str]]:
    env = {**os.environ, "HOME": str(host), "MUSTER_TOKEN": token}
    argv = [*MUSTER, "worker", "start", "--server", url or served.url, *more]
    with subprocess.Popen(argv, cwd=host, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)


def test_workers_elsewhere_outlive_the_stop_of_their_server(
    served: Served, elsewhere: Path, tmp_path: Path
) -> None:
    """What they hold is finished once, and they are known again when it is back."""
    go = tmp_path / "go"
    script = f"until [ -e {go} ]; do sleep 0.1; done; echo once >> {tmp_path}/done"
    with working(elsewhere, served, served.worker, "-n", "2") as process:
        until(lambda: len(served.far()) == 2, "the workers are known")
        served.said(
            *("task", "add", "t", "--plan", "p", "--key", "t", "--agent", "far", "--prompt", script),
            *("--retries", "0"),
        )
        until(lambda: served.status("p/t") == "RUNNING", "one is at work")
        before = {worker["id"] for worker in served.far()}
        assert muster(served.folder, "down").returncode == 0
        until(lambda: not served.answers(), "the server has ended")
        go.touch()
        port = served.url.rpartition(":")[2]
        with started(served.folder, "serve", "--listen", f"127.0.0.1:{port}", "--workers", "1") as server:
            until(served.answers, "it is back")
            until(lambda: served.status("p/t") == "COMPLETED", "what was held is done")
            until(lambda: len({one["id"] for one in served.far()} - before) == 2, "both are known again")
            assert process.poll() is None
            name = next(one["id"] for one in served.far() if one["id"] not in before)
            served.said("worker", "stop", name)
            until(lambda: name not in {one["id"] for one in served.far()}, "one is asked to end")
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=PATIENCE_S)[1]
            muster(served.folder, "down")
            server.wait(PATIENCE_S)
    assert (tmp_path / "done").read_text() == "once\n"
    assert said.count("the server was stopped: worker (pid ") == 2, said


@pytest.mark.promise("L1")
def test_a_killed_worker_elsewhere_is_told_by_who_takes_its_place(served: Served, elsewhere: Path) -> None:
    """Its host has seen it: the task does not wait until the server has missed it for a whole lease."""
    pids = elsewhere / "pids"
    script = f"echo $$ >> {pids}; test $(wc -l < {pids}) = 1 || exit 0; exec sleep 600"
    with working(elsewhere, served, served.worker):
        until(served.far, "the worker is known")
        add = ("task", "add", "t", "--plan", "p", "--key", "t", "--agent", "far", "--prompt", script)
        served.said(*add, "--retries", "0")
        until(pids.exists, "it is at work")
        (worker,) = served.far()
        os.kill(worker["pid"], signal.SIGKILL)
        until(lambda: served.status("p/t") == "COMPLETED", "another one has done it")
        assert not psutil.pid_exists(int(pids.read_text().split()[0])), "its agent was ended before"
        assert len(list((elsewhere / ".muster" / "workers").iterdir())) == 1
    first, _ = served.told("attempt", "list", "p/t")
    assert (first["status"], first["error"]) == ("lost", f"{worker['id']} has ended"), first
    assert not list((elsewhere / ".muster" / "workers").iterdir()), "who says goodbye is no predecessor"


def test_a_plan_may_name_an_agent_that_only_workers_elsewhere_have(served: Served, elsewhere: Path) -> None:
    """On the server's own machine as well, by every command that takes a plan."""
    plan = served.folder / "named.md"
    plan.write_text("# Named\n\n- [ ] Far {#t agent=far}\n\n  true\n")
    refused = muster(served.folder, "plan", "add", str(plan))
    assert refused.returncode == 2 and "nor offered by a worker" in refused.stderr
    with working(elsewhere, served, served.worker):
        until(served.far, "the worker is known")
        served.said("plan", "check", str(plan))
        served.said("plan", "add", str(plan), "--dry-run")
        served.said("plan", "add", str(plan))
        until(lambda: served.status("named/t") == "COMPLETED", "it is done there")


def test_a_worker_elsewhere_does_a_task_and_all_it_said_is_at_the_server(
    served: Served, elsewhere: Path
) -> None:
    with working(elsewhere, served, served.worker):
        until(served.far, "the worker is known")
        (worker,) = served.far()
        served.said(
            "task", "add", "far away", "--plan", "p", "--key", "t", "--agent", "far", "--prompt", REPORTS
        )
        until(lambda: served.status("p/t") == "COMPLETED", "it is done")
        env = {**os.environ, "HOME": str(elsewhere), "MUSTER_TOKEN": served.worker}
        second = muster(elsewhere, "worker", "start", "--server", served.url, env=env)
        assert second.returncode == 6 and f"workers run in {elsewhere} already (pid " in second.stderr
        assert "start with -n" in second.stderr and "muster status" not in second.stderr
    assert worker["hostname"].endswith("(network)"), "nobody can look after its processes from here"
    assert f"on {elsewhere}" in served.said("logs", "p/t")
    task = served.told("task", "show", "p/t")["task"]
    assert task["step"] == "half"
    assert [one["worker"] for one in served.told("attempt", "list", "p/t")] == [worker["id"]]
    until(lambda: not served.far(), "it said goodbye")
    refused = [
        muster(elsewhere, *words) for words in (("status",), ("up",), ("serve", "--listen", "[::1]:0"))
    ]
    assert [done.returncode for done in refused] == [6, 6, 6]
    assert all(f"folder of workers for {served.url}" in done.stderr for done in refused), refused
    with working(elsewhere, served, served.worker):
        until(served.far, "its workers start there all the same")


def test_what_was_made_elsewhere_is_read_here_with_that_host_gone(
    served: Served, elsewhere: Path, tmp_path: Path
) -> None:
    made = (
        "head -c 1300000 /dev/urandom > made.bin && muster report artifact made made.bin && cp made.bin $KEEP"
    )
    kept = tmp_path / "kept"
    with working(elsewhere, served, served.worker):
        until(served.far, "the worker is known")
        script = made.replace("$KEEP", str(kept))
        served.said("task", "add", "t", "--plan", "p", "--key", "t", "--agent", "far", "--prompt", script)
        until(lambda: served.status("p/t") == "COMPLETED", "it is done")
    shutil.rmtree(elsewhere)
    muster(served.folder, "artifact", "get", "p/t", "made", "-o", str(tmp_path / "got"))
    assert (tmp_path / "got").read_bytes() == kept.read_bytes()


def test_what_is_left_out_of_a_long_output_is_named_where_it_is(served: Served, elsewhere: Path) -> None:
    script = "head -c 9000000 /dev/zero | tr '\\0' x"
    with working(elsewhere, served, served.worker):
        until(served.far, "the worker is known")
        (worker,) = served.far()
        served.said("task", "add", "t", "--plan", "p", "--key", "t", "--agent", "far", "--prompt", script)
        until(lambda: served.status("p/t") == "COMPLETED", "it is done")
    told = muster(served.folder, "logs", "p/t").stderr
    file = told.partition("the whole of it is in ")[2].split()[0]
    assert f"{file} of the folder in which {worker['id']} ran on {worker['hostname']}" in told
    assert (elsewhere / file).stat().st_size == 9_000_000


def test_workers_whose_folder_is_moved_end_and_go_on_there(served: Served, elsewhere: Path) -> None:
    script = "echo $$ > new; mv new pid; test -e go || sleep 1000; echo on $PWD"
    moved = elsewhere.with_name("moved")
    with working(elsewhere, served, served.worker) as process:
        until(served.far, "the worker is known")
        served.said("task", "add", "t", "--plan", "p", "--key", "t", "--agent", "far", "--prompt", script)
        until((elsewhere / "pid").exists, "it runs")
        elsewhere.rename(moved)
        assert process.wait(PATIENCE_S) == 1
        said = process.stderr.read() if process.stderr is not None else ""
    assert f"{elsewhere} was moved to {moved} while workers were at work there; they are ended" in said
    assert f"muster -C {moved} worker start --server {served.url}" in said
    pid = int((moved / "pid").read_text())
    until(lambda: not psutil.pid_exists(pid), "what the agent has started is gone", 10)
    (moved / "go").touch()
    with working(moved, served, served.worker):
        until(lambda: served.status("p/t") == "COMPLETED", "it is done there")
    assert f"on {moved}" in served.said("logs", "p/t")


def test_killed_workers_leave_nothing_of_their_agents(served: Served, elsewhere: Path) -> None:
    script = "echo $$ > new-$MUSTER_TASK_ID; mv new-$MUSTER_TASK_ID pid-$MUSTER_TASK_ID; sleep 1000"
    with working(elsewhere, served, served.worker, "-n", "3") as process:
        until(served.far, "a worker is known")
        for n in range(3):
            served.said("task", "add", f"t{n}", "--plan", "p", "--agent", "far", "--prompt", script)
        until(lambda: len(list(elsewhere.glob("pid-*"))) == 3, "they run")
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == -signal.SIGINT
    pids = [int(path.read_text()) for path in elsewhere.glob("pid-*")]
    until(lambda: not any(map(psutil.pid_exists, pids)), "what the agents have started is gone", 10)


def test_workers_for_a_server_that_is_away_say_so_and_end_when_they_are_told_to(elsewhere: Path) -> None:
    env = {**os.environ, "HOME": str(elsewhere), "MUSTER_TOKEN": "mst_any"}
    with socket.create_server(("127.0.0.1", 0)) as away:
        url = f"http://127.0.0.1:{away.getsockname()[1]}"
        argv = [*MUSTER, "worker", "start", "--server", url]
        process = subprocess.Popen(argv, cwd=elsewhere, env=env, stderr=subprocess.PIPE, text=True)
        away.settimeout(PATIENCE_S)
        for _ in range(3):  # its command has asked, then its worker more than once
            away.accept()[0].close()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert f"no server answers at {url}" in said and "it is asked again until it answers" in said


def test_without_the_right_to_serve_no_worker_goes_on_and_the_cause_is_told(
    served: Served, elsewhere: Path
) -> None:
    reads = served.said("token", "create", "r", "--member", "ada", "--role", "VIEWER")
    for token, cause in (("mst_wrong", "nobody is known by this token"), (reads, "the right to serve")):
        with working(elsewhere, served, token) as process:
            assert process.wait(PATIENCE_S) == 4
            assert process.stderr is not None and cause in process.stderr.read()
        assert not (elsewhere / ".muster").exists(), "it leaves the folder as it is"
    token = served.said("token", "create", "gone", "--member", "ada", "--role", "ADMIN", "--scope", "serve")
    with working(elsewhere, served, token) as process:
        until(served.far, "the worker is known")
        number = next(one["id"] for one in served.told("token", "list") if one["name"] == "gone")
        served.said("token", "revoke", str(number))
        served.said("task", "add", "late", "--plan", "p", "--agent", "far", "--prompt", "true")
        assert process.wait(PATIENCE_S) == 1
        said = process.stderr.read() if process.stderr is not None else ""
    assert "ended with exit code 77: token gone was revoked" in said and "exit code 70" not in said
    assert said.count("ended with exit code") == 1, "no other try would be let in"
    (served.folder / "here").mkdir()
    done = muster(served.folder, "worker", "start", "--server", served.url, "--token", served.worker)
    assert done.returncode == 6 and "has a store of its own" in done.stderr
