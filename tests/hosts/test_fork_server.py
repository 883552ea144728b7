"""Processes that are forked by a server: whose children they are, what they inherit, and what outlives what.

The server is begun by a program of its own here: the process that runs the tests has threads.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from muster.hosts.fork_server import STATUS_UNKNOWN
from muster.hosts.process_table import read_proc
from patience import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only begun on Linux")

PARENT = '''\
"""Begins a server, then does what each line of its stdin says, and answers with a line of JSON."""
import json, os, resource, signal, sys, time
from pathlib import Path
import apsw
from muster.hosts.fork_server import ForkServer
from muster.hosts.local_host import become_subreaper
from muster.stores.sqlite import file  # a store of this process

folder = Path(sys.argv[1])
locked = open(folder / "open in the parent", "w")
os.dup2(locked.fileno(), 200)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
sys.stdin = os.fdopen(0)  # closes its number as it goes, like that of main() for one that was closed
os.environ["LATER"] = "told to what is forked"
apsw.randomness(1)
print("not yet written", end=" ")
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGINT, lambda *_: None)


def look():
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd") if int(fd) > 2]
    files = [os.readlink(link) for link in links if os.path.lexists(link)]  # one was there for the list alone
    print("to the log")
    told = {
        "files": files,
        "ppid": os.getppid(), "session": os.getsid(0), "cwd": os.getcwd(), "later": os.environ["LATER"],
        "path": sys.path[:1], "stdin": sys.stdin.read(), "draws": apsw.randomness(8).hex(),
        "signals": [signal.getsignal(n) is signal.SIG_DFL for n in (signal.SIGTERM,)],
    }
    (folder / "looked.new").write_text(json.dumps(told))
    os.rename(folder / "looked.new", folder / "looked")
    return 7


def load():
    def fails():
        raise ValueError("of no use")
    def bad_end():
        sys.exit(9)
    def sleeps():
        time.sleep(600)
    return {"look": look, "fails": fails, "bad end": bad_end, "sleeps": sleeps}


become_subreaper()
server = ForkServer.begin(load, folder / "log", str(folder), sys.argv[2:])
processes = {}
print(json.dumps(server.pid), flush=True)
for line in sys.stdin:
    word, name = line.split(maxsplit=1)
    name = name.strip()
    if word == "fork":
        process = server.fork(name)
        if process is not None:
            processes[process.pid] = process
        answer = process and process.pid
    elif word == "poll":
        answer = processes[int(name)].poll()
    elif word == "collect":
        answer = os.waitpid(int(name), 0)[1]
    elif word == "server":
        answer = server.pid
    else:
        answer = server.close()
    print(json.dumps(answer), flush=True)
'''


IGNORES_CHILDREN = """\
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


AGAIN = """\
import os, sys, time
from pathlib import Path
from muster.hosts.fork_server import serve_stdin
folder = Path(sys.argv[1])
held = open(folder / "open in the server that is to be")
serve_stdin(lambda: {"sleeps": lambda: time.sleep(600)}, folder / "log", str(folder))
"""


class Parent:
    def __init__(self, folder: Path, *before: str, again: Sequence[str] = ()) -> None:
        self.folder = folder
        script = folder / "parent.py"
        script.write_text(PARENT)
        self.process = subprocess.Popen(
            [sys.executable, *before, "-P", str(script), str(folder), *again],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        assert self.process.stdout is not None
        unwritten, _, pid = self.process.stdout.readline().rpartition(" ")
        assert unwritten == "not yet written"
        self.server = int(pid)

    def __call__(self, word: str, name: str = "-") -> Any:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{word} {name}\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def end_of(self, pid: int) -> int:
        codes: list[int | None] = []

        def ended() -> bool:
            codes.append(self("poll", str(pid)))
            return codes[-1] is not None

        until(ended, "it has ended")
        assert codes[-1] is not None
        return codes[-1]

    def log(self) -> str:
        return (self.folder / "log").read_text()


@contextmanager
def parent_in(folder: Path, *before: str, again: Sequence[str] = ()) -> Iterator[Parent]:
    parent = Parent(folder, *before, again=again)
    try:
        yield parent
    finally:
        parent.process.kill()
        parent.process.communicate()


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[Parent]:
    with parent_in(tmp_path) as made:
        yield made


def _gone(pid: int) -> bool:
    proc = read_proc(pid)
    return proc is None or proc.gone


def test_what_is_forked_is_a_child_with_nothing_of_its_parent_but_memory(parent: Parent) -> None:
    pid = parent("fork", "look")
    assert parent.end_of(pid) == 7
    told = json.loads((parent.folder / "looked").read_text())
    assert told["files"] == [], "a lock or a socket of the parent would outlive it"
    assert told["ppid"] == parent.process.pid and told["session"] == pid
    assert told["stdin"] == "" and told["cwd"] == str(parent.folder)
    assert told["later"] == "told to what is forked"
    assert told["signals"] == [True]
    assert parent.log() == "to the log\n", "what the parent had not yet written is its own"


def test_stdin_and_what_it_says_go_nowhere_and_to_the_log(parent: Parent) -> None:
    assert parent.end_of(parent("fork", "look")) == 7
    files = [Path(f"/proc/{parent.server}/fd/{number}").readlink() for number in range(3)]
    assert files == [Path(os.devnull), *[parent.folder / "log"] * 2]


@pytest.mark.promise("L4")
def test_how_it_ended_is_known_below_a_program_that_ignores_its_children(tmp_path: Path) -> None:
    with parent_in(tmp_path, "-c", IGNORES_CHILDREN) as parent:
        assert parent.end_of(parent("fork", "look")) == 7


def test_a_log_that_cannot_be_opened_is_for_the_parent_to_tell(tmp_path: Path) -> None:
    script = (
        "import sys\nfrom pathlib import Path\nfrom muster.hosts.fork_server import ForkServer\n"
        "server = ForkServer.begin(dict, Path(sys.argv[1]), '')\n"
        "assert server and server.fork('any') is None\n"
    )
    ran = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, stderr=subprocess.PIPE)
    assert ran.stderr == b""


@pytest.mark.promise("S10")
def test_two_draw_different_numbers_from_sqlite(parent: Parent) -> None:
    draws = []
    for _ in range(2):
        parent.end_of(parent("fork", "look"))
        draws.append(json.loads((parent.folder / "looked").read_text())["draws"])
    assert draws[0] != draws[1]


def test_it_is_seen_by_its_name_and_by_what_it_was_started_for(parent: Parent) -> None:
    pid = parent("fork", "sleeps")
    told = f"muster: sleeps {parent.folder}"
    until(lambda: Path(f"/proc/{pid}/cmdline").read_text().startswith(told), "ps shows it")
    env = Path(f"/proc/{pid}/environ").read_bytes()
    assert env == Path(f"/proc/{parent.process.pid}/environ").read_bytes(), "processes are found by it"
    os.kill(pid, signal.SIGTERM)
    assert parent.end_of(pid) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("name", "code", "said"), [("fails", 1, "ValueError: of no use"), ("bad end", 9, "")]
)
def test_an_error_is_told_and_ends_that_process_alone(
    parent: Parent, name: str, code: int, said: str
) -> None:
    assert parent.end_of(parent("fork", name)) == code
    assert said in parent.log()
    assert parent.end_of(parent("fork", "look")) == 7


@pytest.mark.promise("L4")
def test_a_server_that_was_killed_forks_no_more_and_takes_nobody_with_it(parent: Parent) -> None:
    pid = parent("fork", "sleeps")
    os.kill(parent.server, signal.SIGKILL)
    assert parent("fork", "look") is None
    assert parent("fork", "look") is None
    assert not _gone(pid)
    os.kill(pid, signal.SIGKILL)
    assert parent.end_of(pid) == -signal.SIGKILL


@pytest.mark.promise("L4")
def test_a_server_that_was_stopped_goes_on(parent: Parent) -> None:
    os.kill(parent.server, signal.SIGSTOP)
    assert parent.end_of(parent("fork", "look")) == 7
    assert parent("server") == parent.server


@pytest.mark.promise("L4")
def test_a_program_takes_the_place_of_a_server_that_has_died(tmp_path: Path) -> None:
    (tmp_path / "open in the server that is to be").touch()
    again = [sys.executable, "-P", "-c", AGAIN, str(tmp_path)]
    with parent_in(tmp_path, again=again) as parent:
        assert parent.end_of(parent("fork", "look")) == 7
        os.kill(parent.server, signal.SIGKILL)
        assert parent("fork", "sleeps") is None
        pid = parent("fork", "sleeps")
        until(lambda: Path(f"/proc/{pid}/cmdline").read_text().startswith("muster: sleeps"), "ps shows it")
        proc = read_proc(pid)
        assert proc is not None and (proc.ppid, proc.sid) == (parent.process.pid, pid)
        files = {link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()}
        assert files == {Path(os.devnull), tmp_path / "log"}
        os.kill(pid, signal.SIGKILL)
        assert parent.end_of(pid) == -signal.SIGKILL
        parent("close")
        assert parent("server") is None


def test_a_server_that_cannot_fork_is_not_replaced(tmp_path: Path) -> None:
    with parent_in(tmp_path, again=[sys.executable, "-P", "-c", "import of_another_version"]) as parent:
        assert parent.end_of(parent("fork", "look")) == 7
        os.kill(parent.server, signal.SIGKILL)
        assert parent("fork", "look") is None
        assert parent("server") is not None
        assert parent("fork", "look") is None
        assert parent("server") is None
        assert "No module named 'of_another_version'" in parent.log()


@pytest.mark.promise("L4")
def test_whose_status_somebody_else_has_collected_has_ended(parent: Parent) -> None:
    pid = parent("fork", "sleeps")
    os.kill(pid, signal.SIGKILL)
    assert parent("collect", str(pid)) == signal.SIGKILL
    assert parent.end_of(pid) == STATUS_UNKNOWN


def test_an_entry_that_cannot_be_had_is_told_in_the_log(parent: Parent) -> None:
    assert parent("fork", "unknown") is None
    assert "KeyError: 'unknown'" in parent.log()


@pytest.mark.promise("L4")
@pytest.mark.parametrize("stopped", [False, True])
def test_it_ends_with_its_parent_and_what_it_has_forked_goes_on(parent: Parent, stopped: bool) -> None:
    pid = parent("fork", "sleeps")
    if stopped:
        os.kill(parent.server, signal.SIGSTOP)
    parent.process.kill()
    parent.process.wait()
    until(lambda: _gone(parent.server), "the server has ended")
    assert not _gone(pid), "workers outlive a supervisor that was killed"
    os.kill(pid, signal.SIGKILL)


def test_closing_leaves_nothing(parent: Parent) -> None:
    parent("close")
    assert read_proc(parent.server) is None


def test_it_is_not_begun_beside_another_thread(tmp_path: Path) -> None:
    script = (
        "import sys, threading, time\nfrom pathlib import Path\nfrom muster.hosts.fork_server import ForkServer\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "assert ForkServer.begin(dict, Path(sys.argv[1]), '') is None\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "log")], check=True)
