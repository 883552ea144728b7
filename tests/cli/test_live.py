"""The live watch: its state and drawing alone, and the whole of it on a real terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import random
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pyte
import pytest

from muster.cli.live import feed
from muster.cli.live.draw import draw
from muster.cli.live.state import LOG_LINES_MAX, News, Prompt, State
from muster.cli.output import Screen, width
from muster.client.api import Api
from muster.client.http import Connection
from muster.engine.batch import drive
from muster.model import commands as c
from muster.model.states import ErrorKind
from patience import PATIENCE_S
from pseudo_terminal import read_to_end

COLUMNS, ROWS = 100, 24


def task(number, status="PENDING", **more):
    row = {"id": number, "plan": "p", "key": f"t{number}", "title": f"Task {number}", "status": status}
    row |= {"state": {"PENDING": "ready", "ABORTED": "delayed"}.get(status, status.lower())}
    row |= {"epoch": 0, "why": f"reason {number}"}
    row |= {"agent": None, "wantedAgent": None, "percent": 0, "step": "", "startedAtMs": None}
    row |= {"actions": ["resume"] if status == "PAUSED" else ["pause", "cancel", "retry"]}
    return {**row, **more}


def news(tasks=None, *, log=(), log_of=None, told=""):
    return News(tasks=tasks, status=None, log=log, log_of=log_of, link="live", told=told)


def shown(state, height=5):
    return [row["id"] for row in state.window(height)]


def keyed(state, keys):
    return [asked for key in keys if (asked := state.key(key)) is not None]


# State


def test_nothing_on_the_screen_moves_and_the_choice_stays_whatever_arrives():
    chance = random.Random(7)
    state = State()
    numbers = set(range(100, 140))
    state.show(news([task(number) for number in numbers]))
    keyed(state, "j" * 12)
    before, chosen = shown(state), state.chosen
    for _ in range(200):
        numbers |= {chance.randrange(1, 400) for _ in range(3)}
        ended = {number for number in numbers if chance.random() < 0.3}
        arrived = [task(n, "COMPLETED" if n in ended else "RUNNING") for n in sorted(numbers)]
        chance.shuffle(arrived)
        state.show(news(arrived))
        after = shown(state)
        assert state.chosen == chosen
        assert after[: len(before)] == before, "a row has moved"
        before = after


def test_keys_move_the_choice_and_the_window_follows():
    state = State()
    state.show(news([task(number) for number in range(1, 31)]))
    assert shown(state) == [1, 2, 3, 4, 5]
    keyed(state, "jjjjj")
    assert (state.chosen, shown(state)) == (6, [2, 3, 4, 5, 6])
    keyed(state, ["G"])
    assert (state.chosen, shown(state)) == (30, [26, 27, 28, 29, 30])
    keyed(state, ["pgup", "k"])
    assert (state.chosen, shown(state)) == (24, [24, 25, 26, 27, 28])
    keyed(state, "gk")
    assert (state.chosen, shown(state)) == (1, [1, 2, 3, 4, 5])


def test_retry_and_cancel_are_asked_back_and_pause_is_not():
    state = State()
    state.show(news([task(1, "RUNNING"), task(2, "PAUSED")]))
    assert keyed(state, "c") == []
    assert state.confirm == Prompt("cancel", 1, "p/t1")
    assert keyed(state, "n") == []
    assert state.message == "nothing was changed"
    assert keyed(state, "cy") == [Prompt("cancel", 1, "p/t1")]
    assert keyed(state, "ry") == [Prompt("retry", 1, "p/t1")]
    assert keyed(state, "p") == [Prompt("pause", 1, "p/t1")]
    assert keyed(state, "jp") == [Prompt("resume", 2, "p/t2")]


def test_a_confirmation_is_for_the_task_that_was_chosen_then():
    state = State()
    state.show(news([task(1, "RUNNING"), task(2, "RUNNING")]))
    keyed(state, "c")
    state.show(news([task(2, "RUNNING")]))
    assert keyed(state, "y") == [Prompt("cancel", 1, "p/t1")]


def test_what_has_ended_is_hidden_until_asked_for_and_failures_are_not():
    state = State()
    state.show(news([task(1, "COMPLETED"), task(2), task(3, "FAILED")]))
    assert shown(state) == [2, 3]
    state.show(news([task(1, "COMPLETED"), task(2, "COMPLETED"), task(3, "FAILED")]))
    assert shown(state) == [2, 3]
    keyed(state, "a")
    assert shown(state) == [1, 2, 3]


def test_a_filter_is_typed_kept_and_dropped():
    state = State()
    state.show(news([task(number) for number in range(1, 31)]))
    keyed(state, [*"/T2x", "backspace", "9", "enter"])
    assert (shown(state), state.chosen, state.filter) == ([29], 29, "T29")
    assert keyed(state, "q") == []
    assert state.done
    keyed(state, ["esc"])
    assert (len(state.rows()), state.chosen) == (30, 29)


def test_what_fits_a_filter_no_more_stays_and_what_fits_now_comes_below():
    state = State()
    state.show(news([task(1), task(2, "RUNNING"), task(3, "RUNNING")]))
    keyed(state, [*"/running", "enter"])
    assert (shown(state), state.chosen) == ([2, 3], 2)
    state.show(news([task(1, "RUNNING"), task(2, "COMPLETED"), task(3, "RUNNING")]))
    assert (shown(state), state.chosen) == ([2, 3, 1], 2)
    keyed(state, [*"/running", "enter"])
    assert (shown(state), state.chosen) == ([1, 3], 3)


def test_a_filter_that_is_begun_anew_shows_all():
    state = State()
    state.show(news([task(1), task(2, "RUNNING")]))
    keyed(state, [*"/running", "enter"])
    assert shown(state) == [2]
    keyed(state, "/")
    assert (shown(state), state.chosen) == ([1, 2], 2)


def test_a_task_that_is_gone_is_followed_by_its_neighbour_and_the_window_stays():
    state = State()
    state.show(news([task(number) for number in range(1, 101)]))
    keyed(state, "j" * 49)
    assert (shown(state), state.chosen) == ([46, 47, 48, 49, 50], 50)
    state.show(news([task(number) for number in range(1, 101) if number not in (46, 50)]))
    assert (shown(state), state.chosen) == ([47, 48, 49, 51, 52], 51)
    state.show(news([task(number) for number in range(1, 46)]))
    assert (shown(state), state.chosen) == ([41, 42, 43, 44, 45], 45)


def test_nothing_is_done_to_a_task_that_is_not_shown():
    state = State()
    state.show(news([task(1, "RUNNING")]))
    keyed(state, [*"/nothing", "enter"])
    assert keyed(state, "pycyr") == []
    assert state.message == "no task is chosen"


def test_who_reads_in_an_attempt_is_not_taken_to_the_next_one():
    state = State()
    state.show(news([task(1, "RUNNING", epoch=1), task(2, "RUNNING", epoch=1)]))
    state.log_wanted()
    state.show(news(log=[str(n) for n in range(50)], log_of=(1, 1)))
    state.log_window(3)
    keyed(state, "K")
    state.show(news([task(1, "RUNNING", epoch=2), task(2, "RUNNING", epoch=1)]))
    assert (state.log_wanted(), state.log_window(3)) == ((1, 1), ["46", "47", "48"])
    keyed(state, "f")
    assert (state.log_wanted(), state.log) == ((1, 2), [])
    keyed(state, "Kj")
    assert state.log_wanted() == (2, 1)


def test_the_output_is_scrolled_no_further_than_its_beginning():
    state = State()
    state.show(news([task(1, "RUNNING", epoch=1)]))
    state.log_wanted()
    state.show(news(log=[str(n) for n in range(5)], log_of=(1, 1)))
    state.log_window(3)
    keyed(state, "K" * 20)
    assert state.log_window(3) == ["0", "1", "2"]
    keyed(state, "J")
    assert state.log_window(3) == ["1", "2", "3"]


def test_the_output_follows_until_it_is_scrolled_and_then_stands_still():
    state = State()
    state.show(news([task(1, "RUNNING", epoch=1)]))
    assert state.log_wanted() == (1, 1)
    state.show(news(log=[str(n) for n in range(50)], log_of=(1, 1)))
    assert state.log_window(3) == ["47", "48", "49"]
    keyed(state, "K")
    state.show(news(log=["50", "51"], log_of=(1, 1)))
    assert state.log_window(3) == ["46", "47", "48"]
    keyed(state, "f")
    assert state.log_window(3) == ["49", "50", "51"]
    state.show(news(log=["of another"], log_of=(2, 1)))
    assert state.log[-1] == "51"
    keyed(state, "KK")
    state.show(news(log=["x"] * LOG_LINES_MAX, log_of=(1, 1)))
    assert len(state.log) == LOG_LINES_MAX
    keyed(state, "f")
    state.show(news([task(1, "RUNNING", epoch=2)]))
    assert (state.log_wanted(), state.log, state.follow) == ((1, 2), [], True)


# What is asked for


def many(owner, count):
    specs = tuple(c.Spec(title=f"{n}", key=f"t{n}", max_retries=0) for n in range(count))
    owner.do(c.Enqueue(plan="many", source=None, tasks=specs, actor="user:ann"))
    owner.do(
        c.Register(
            worker_id="worker-abcdefgh",
            hostname="h",
            pid=1,
            pid_start=1,
            boot_id="boot",
            slots=9,
            agents=("shell",),
            general=("shell",),
        )
    )


def end(owner, key, job):
    owner.begin(job)
    if key == "t0":
        owner.do(c.Fail(task_id=job.task_id, epoch=1, kind=ErrorKind.CRASH, message="exit code 1"))
    else:
        owner.do(c.Complete(task_id=job.task_id, epoch=1, exit_code=0))


@pytest.mark.parametrize("between_s", [60, 0], ids=["asked for as a whole", "one by one"])
def test_what_was_seen_is_still_there_when_it_has_ended_among_many(empty, monkeypatch, between_s):
    monkeypatch.setattr(feed, "TASKS_MAX", 3)
    empty.do(
        c.Enqueue(
            plan="old",
            source=None,
            tasks=tuple(c.Spec(title="x", key=f"x{n}", done=True) for n in range(5)),
            actor="user:ann",
        )
    )
    many(empty, 3)
    connection = Connection(empty.socket)
    now_s = 0.0  # of a machine that has just started
    tasks = feed.Listing(Api(connection), None, lambda: now_s)

    def look():
        nonlocal now_s
        now_s += between_s
        found = tasks.news(drive(empty.store.reads.last_event_id()))
        return {row["key"]: row["status"] for row in found if row["plan"] == "many"}

    assert look() == {"t0": "PENDING", "t1": "PENDING", "t2": "PENDING"}
    assert tasks.cut
    for key, job in empty.claim("r", slots=2).items():
        end(empty, key, job)
    assert look() == {"t0": "FAILED", "t1": "COMPLETED", "t2": "PENDING"}
    between_s = 60
    assert look() == {"t0": "FAILED", "t1": "COMPLETED", "t2": "PENDING"}
    assert not tasks.cut
    connection.close()


def test_a_list_begins_anew_where_an_older_store_was_put_back(empty):
    many(empty, 3)
    connection = Connection(empty.socket)
    tasks = feed.Listing(Api(connection), None, lambda: 0.0)
    newest = drive(empty.store.reads.last_event_id())
    tasks.news(newest + 5)
    assert [row["key"] for row in tasks.news(newest) if row["plan"] == "many"] == ["t0", "t1", "t2"]
    connection.close()


# Drawing


@pytest.mark.parametrize("size", [(20, 4), (40, 10), (100, 24), (200, 60)])
@pytest.mark.parametrize("keys", ["", "?", "/x", "c"])
def test_a_frame_has_the_size_of_the_terminal(size, keys):
    state = State()
    state.show(news([task(n, "RUNNING", epoch=1, title="漢字" * 40, key="é" * 60) for n in range(1, 90)]))
    state.log_wanted()
    state.show(news(log=["\x1b[2J\x07" + "漢" * 500], log_of=(1, 1)))
    keyed(state, keys)
    lines = draw(state, size, Screen("never"), now_ms=0)
    assert len(lines) == size[1]
    assert max(map(width, lines)) <= size[0]
    assert not any("\x1b" in line or "\x07" in line for line in lines)


# On a terminal


class Console:
    """A command on a pseudo terminal, seen through a terminal emulator."""

    def __init__(self, root, *argv):
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._master, slave = pty.openpty()
        self.resize(COLUMNS, ROWS)
        self.before, self._slave = termios.tcgetattr(slave), slave
        self.after = None
        command = [sys.executable, "-m", "muster.cli.main", *argv]
        env = {**os.environ, "TERM": "xterm-256color", "PYTHONUTF8": "1"}
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
        self.process = subprocess.Popen(command, cwd=root, env=env, start_new_session=True, **streams)

    def resize(self, columns, rows):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def press(self, keys):
        os.write(self._master, keys.encode())

    def read(self, wait_s=0.05):
        if select.select([self._master], [], [], wait_s)[0]:
            self._take(os.read(self._master, 65536))

    def _take(self, data):
        self.raw += data
        self._stream.feed(data)

    def text(self):
        return "\n".join(self.screen.display)

    def until(self, fits):
        deadline_s = time.monotonic() + PATIENCE_S
        while not fits(self.text()):
            assert time.monotonic() < deadline_s, self.text()
            self.read()
        return self.text()

    def ends(self):
        deadline_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline_s, self.text()
            self.read()
        self.after = termios.tcgetattr(self._slave)
        os.close(self._slave)
        self._take(read_to_end(self._master))
        return self.process.returncode

    def row(self, name):
        return next((line for line in self.screen.display if f" {name} " in line), "")

    def close(self):
        self.process.kill()
        self.process.wait()
        if self.after is None:
            os.close(self._slave)
            os.close(self._master)


@pytest.fixture
def console(root):
    made = []

    def run(*argv):
        made.append(Console(root, *argv))
        return made[-1]

    yield run
    for each in made:
        each.close()


def test_it_shows_reasons_output_and_what_happens(owner, console):
    live = console("watch")
    live.until(
        lambda text: "billing/docs" in text and "waits for tests (FAILED)" in text and "● live" in text
    )
    live.until(lambda text: "● running" in live.row("billing/api"))
    live.press("G")
    live.until(
        lambda text: any(line.startswith(">") and "billing/other" in line for line in text.splitlines())
    )
    live.press("kk")
    live.until(lambda text: "3 failed" in text and "billing/tests #1" in text)
    owner.log(owner.tasks()["tests"].id, 1, b"one more line\n", offset=29)
    live.until(lambda text: "one more line" in text)
    owner.do(c.Complete(task_id=owner.tasks()["api"].id, epoch=1, exit_code=0))
    live.until(lambda text: "✓ completed" in live.row("billing/api"))


def test_a_cancel_needs_a_yes(owner, console):
    live = console("watch")
    live.until(lambda text: "billing/api" in text)
    live.press("gc")
    live.until(lambda text: "cancel billing/api?" in text)
    live.press("x")
    live.until(lambda text: "nothing was changed" in text)
    assert owner.tasks()["api"].status == "RUNNING"
    live.press("cy")
    live.until(lambda text: "⊘ cancelled" in live.row("billing/api"))
    assert owner.tasks()["api"].status == "CANCELLED"


def test_a_refusal_is_told(owner, console):
    live = console("watch")
    live.until(lambda text: "billing/api" in text)
    live.press("gry")
    live.until(lambda text: "billing/api is RUNNING: only" in text)


@pytest.mark.parametrize(
    ("leave", "code"), [("q", 0), ("\x03", 130), (signal.SIGTERM, 143)], ids=["q", "ctrl-c", "term"]
)
def test_the_terminal_is_left_as_it_was(owner, console, leave, code):
    live = console("watch")
    live.until(lambda text: "billing/api" in text)
    if isinstance(leave, str) and leave != "\x03":
        live.press(leave)
    else:
        os.kill(live.process.pid, signal.SIGINT if leave == "\x03" else leave)
    assert live.ends() == code
    assert live.after == live.before
    assert live.raw.rstrip().endswith(b"\x1b[?25h\x1b[?1049l")


def test_it_survives_a_narrow_terminal_and_an_owner_that_goes_away(owner, console):
    live = console("watch")
    live.until(lambda text: "billing/api" in text)
    live.resize(30, 8)
    live.until(lambda text: "● live" in text)
    live.resize(COLUMNS, ROWS)
    owner.stop()
    live.until(lambda text: "no owner" in text)
    owner.start()
    live.until(lambda text: "● live" in text)
    assert live.process.poll() is None


def test_keys_work_while_it_waits_for_a_crew(owner, console):
    owner.stop()
    live = console("watch")
    live.until(lambda text: "billing/api" in text and "this waits for one (muster up)" in text)
    live.press("?")
    live.until(lambda text: "retry the task" in text)
    live.press("x")
    owner.start()
    live.until(lambda text: "● live" in text)
    owner.stop()
    live.until(lambda text: "this waits for one" in text)
    live.press("q")
    assert live.ends() == 0


def test_lines_on_a_terminal(owner, console):
    live = console("watch", "--lines")
    live.until(lambda text: "billing/docs  waits for tests (FAILED)" in text)
    assert b"\x1b[?1049h" not in live.raw


def test_a_run_shows_how_far_it_is_below_its_events_and_takes_that_away(root, console):
    (root / "plan.md").write_text(
        "# P\n- [ ] Go {#go agent=shell}\n\n      until [ -e gate ]; do sleep 0.05; done\n"
    )
    live = console("run", "plan.md", "--workers", "1")
    live.until(lambda text: "● 1 running   go" in text and "p/go  running" in text)
    (root / "gate").touch()
    assert live.ends() == 0
    text = live.text()
    assert "p: 1 completed in" in text
    assert "● 1 running   go" not in text
