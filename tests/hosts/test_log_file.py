"""The log: lines of several processes while it is turned under them, and what a line says."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from pathlib import Path

from muster.hosts.log_file import LogFile, place_in
from muster.hosts.logs import REQUEST, JsonLine, about, read_line
from patience import PATIENCE_S, until

WRITER = """
import logging, sys
from pathlib import Path
from muster.hosts.log_file import LogFile
from muster.hosts.logs import log_as, log_lines

name, form, path, enough = sys.argv[1:]
log_lines(name, LogFile(Path(path)))
log_as(form)
number = 0
while not Path(enough).exists():
    logging.info("line %d of %s", number, name)
    number += 1
print(number)
"""
TURNS, SIZE = 20, 20_000


def test_no_line_is_lost_while_the_log_is_turned(tmp_path: Path) -> None:
    log, enough = LogFile(tmp_path / "muster.log"), tmp_path / "enough"
    writers = []
    for name, form in (("owner", "text"), ("worker", "json")):
        with log.path.open("ab") as file:
            argv = [sys.executable, "-c", WRITER, name, form, str(log.path), str(enough)]
            writers.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=file, text=True))
    for number in range(TURNS):
        until(lambda: log.path.exists() and log.path.stat().st_size > SIZE, "it is long enough")
        if number % 2:
            log.turn(SIZE, keep=TURNS)
        else:  # by any other program
            for old in range(number, 0, -1):
                log.old(old).rename(log.old(old + 1))
            log.path.rename(log.old(1))
    enough.touch()
    counts = [int(writer.communicate(timeout=PATIENCE_S)[0]) for writer in writers]
    assert len(log.all()) == TURNS + 1
    told = [read_line(line) for path in log.all() for line in path.read_text().splitlines()]
    for name, writer, count in zip(("owner", "worker"), writers, counts, strict=True):
        said = [message for process, pid, message in told if (process, pid) == (name, writer.pid)]
        assert said == [f"line {number} of {name}" for number in range(count)]
    assert len(told) == sum(counts), "and none is torn"


def test_old_logs_beyond_those_that_are_kept_go(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "muster.log")
    for number in range(5):
        with log.path.open("a") as file:
            begins = place_in(file.fileno())
            file.write(f"{number}\n")
        log.turn(size_max=1, keep=2)
        assert log.since(begins, 100) == f"{number}\n".encode(), "also where it was turned since"
    assert [path.read_text() for path in log.all()] == ["3\n", "4\n", ""]
    assert log.old(1).stat().st_mode & 0o777 == log.path.stat().st_mode & 0o777 == 0o600
    log.turn(size_max=1, keep=2)
    assert [path.read_text() for path in log.all()] == ["3\n", "4\n", ""], "a short one stays"


class Asked:
    id = "r-1"


def test_a_line_of_json_says_what_it_is_about() -> None:
    log, said = logging.getLogger("muster.here"), io.StringIO()
    handler = logging.StreamHandler(said)
    handler.setFormatter(JsonLine("owner"))
    log.addHandler(handler)
    log.propagate = False  # half a character is too much for who reports on tests
    token = REQUEST.set(Asked())
    try:
        with about(task="p/a", attempt=2):
            log.warning("read %s", "\udcff\nnext", extra={"worker": "worker-1"})
        try:
            raise ValueError("no such thing")
        except ValueError:
            log.exception("it failed")
    finally:
        REQUEST.reset(token)
        log.removeHandler(handler)
        log.propagate = True
    first, second = said.getvalue().splitlines()
    told = json.loads(first)
    assert told.pop("time").endswith("Z") and told.pop("pid") > 0
    assert told == {
        "level": "warning",
        "logger": "muster.here",
        "message": "read \udcff\nnext",
        "process": "owner",
        "task": "p/a",
        "attempt": 2,
        "request": "r-1",
        "worker": "worker-1",
    }
    assert "ValueError: no such thing" in json.loads(second)["exception"]
    assert read_line(first)[0::2] == ("owner", "read \udcff\nnext")


def test_a_line_that_nobody_has_logged_is_itself() -> None:
    for line in ("Traceback (most recent call last):", '{"a": 1}', "{", ""):
        assert read_line(line) == ("", 0, line)
