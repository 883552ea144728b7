"""What an agent or a plan wrote cannot reach a person's terminal, by whatever command it is shown."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from git_projects import git

from muster.cli.feed import EventPrinter
from muster.cli.main import main
from muster.cli.output import Screen
from muster.cli.terminal import gated, harmless
from muster.model import commands as c
from muster.model.refs import base_ref, kept_ref
from muster.model.states import ErrorKind
from patience import PATIENCE_S
from pseudo_terminal import read_to_end

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[8mhidden\x1b[5n\x9b31m\u202eback\x00\x08\r"
_SGR = re.compile(rb"\x1b\[[0-9;]*m")


def on_a_terminal(capfd, monkeypatch, *argv: str) -> bytes:
    """What the command sends to a terminal as its stdout and stderr."""
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        patch.setattr(sys, "stderr", terminal)
        main(argv)
        terminal.flush()
    return read_to_end(reader)


@pytest.fixture
def hostile(empty) -> None:
    spec = c.Spec(title=f"title {EVIL[:-2]}", key="evil", description=EVIL, agent="shell")
    empty.do(c.Enqueue(plan="p", source=None, tasks=(spec,), actor="user:ann"))
    empty.register()
    job = empty.claim("r1")["evil"]
    empty.begin(job)
    ids = {"task_id": job.task_id, "epoch": job.epoch}
    empty.do(c.Progress(**ids, percent=5, step=f"step {EVIL}"))
    empty.do(c.AddArtifact(**ids, name=f"name {EVIL}", location=f"place {EVIL}"))
    empty.do(c.Suspect(**ids, evidence=f"evidence {EVIL}"))
    empty.log(job.task_id, 1, f"log {EVIL}\n".encode())
    empty.do(c.Fail(**ids, kind=ErrorKind.INVALID, message=f"error {EVIL}"))
    work_kept(empty.root, job.epoch)


def work_kept(root: Path, epoch: int) -> None:
    """What the attempt has changed, as a worker keeps it: a file with such bytes in its name and its lines."""

    git(root, "init", "-q", "--template=")
    (root / f"name {EVIL[:8]}").write_text("before\n")
    git(root, "add", "--", f"name {EVIL[:8]}")
    git(root, "commit", "-qm", EVIL.replace("\0", ""))
    git(root, "update-ref", base_ref("p", "evil", epoch), "HEAD")
    (root / f"name {EVIL[:8]}").write_text(f"after {EVIL.replace(chr(0), '')}\n")
    git(root, "commit", "-qam", "x")
    git(root, "update-ref", kept_ref("p", "evil", epoch), "HEAD")


@pytest.mark.parametrize(
    "argv",
    [
        ("task", "list"),
        ("task", "show", "p/evil"),
        ("task", "show", "p/evil", "--json"),
        ("status",),
        ("inbox",),
        ("dead", "list"),
        ("logs", "p/evil"),
        ("audit", "list"),
        ("plan", "list"),
        ("plan", "show", "p"),
        ("plan", "graph", "p"),
        ("plan", "graph", "p", "--dot"),
        ("plan", "graph", "p", "--mermaid"),
        ("plan", "export", "p"),
        ("why", "p/evil"),
        ("attempt", "list", "p/evil"),
        ("attempt", "show", "p/evil"),
        ("attempt", "diff", "p/evil"),
        ("attempt", "diff", "p/evil", "--stat"),
        ("worktree", "list"),
        ("worktree", "clear"),
        ("task", "next"),
        ("worker", "list"),
        ("agent", "list"),
        ("claim", "list"),
        ("api", "GET", "/api/v1/agent-tasks"),
        ("api", "GET", "/api/v1/events"),
        ("task", "show", f"p/{EVIL[:-3]}"),
        (EVIL,),
    ],
    ids=lambda argv: " ".join(argv)[:24].encode("ascii", "replace").decode().replace("\x1b", "^"),
)
def test_every_command_is_harmless(hostile, capfd, monkeypatch, argv):
    sent = on_a_terminal(capfd, monkeypatch, *argv)
    assert sent, "nothing was shown, so nothing was proved"
    bare = _SGR.sub(b"", sent)
    assert not set(bare) & set(b"\x1b\x07\x00\x08")
    assert not {"\x9b", "\u202e"} & set(bare.decode())
    assert b"\x1b[8m" not in sent, "hidden text"


@pytest.mark.parametrize("how", [(), ("--lines",)], ids=["live", "lines"])
def test_what_is_watched_is_harmless(hostile, empty, how):
    """As a process on a terminal of its own: it shows what there is, and what happens then."""
    reader, writer = pty.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
    argv = [sys.executable, "-m", "muster.cli.main", "-C", str(empty.root), "watch", *how]
    env = {**os.environ, "TERM": "xterm"}
    watching = subprocess.Popen(argv, stdin=writer, stdout=writer, stderr=writer, env=env, close_fds=True)
    os.close(writer)
    try:
        sent = until_read(reader, b"", b"failed")
        spec = c.Spec(title=f"more {EVIL[:-3]}", key="more", description=EVIL, agent="shell")
        empty.do(c.Enqueue(plan="p", source=None, tasks=(spec,), actor=f"user {EVIL[:-3]}"))
        sent = until_read(reader, sent, b"more")
    finally:
        watching.kill()
        watching.wait()
        os.close(reader)
    assert b"\x1b]0;" not in sent and b"\x07" not in sent and b"\x00" not in sent and b"\x08" not in sent
    assert b"\x1b[8m" not in sent and b"\x1b[5n" not in sent
    assert not {"\x9b", "\u202e"} & set(sent.decode("utf-8", "replace"))


def until_read(fd: int, sent: bytes, word: bytes) -> bytes:
    deadline_s = time.monotonic() + PATIENCE_S
    while word not in sent:
        assert time.monotonic() < deadline_s, sent
        if select.select([fd], [], [], 0.1)[0]:
            sent += os.read(fd, 1 << 16)
    return sent


def test_what_a_command_forgets_to_clean_is_caught(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    with gated():
        Screen("always").line(f"{Screen('always').badge('failed')} {EVIL}")
        sys.stderr.writelines([EVIL])
        assert sys.stdout.isatty()
    assert sys.stdout is terminal
    text = terminal.getvalue()
    assert text.startswith("\x1b[31m") and "^[]0;owned^G^[[2J^[[8mhidden" in text
    assert not set("\x07\x00\x08\r\x9b\u202e") & set(text)


LINK = "\x1b]8;;{}\x1b\\{}\x1b]8;;\x1b\\"


@pytest.mark.parametrize(
    "text",
    [
        "plain\n\ttext",
        "Größe ✓ 漢字",
        "\x1b[31mred\x1b[0m",
        "\x1b[1;34mbold blue\x1b[0m",
        LINK.format("file:///tmp/report%201.html", "/tmp/report 1.html"),
        LINK.format("https://example.org/a", "https://example.org/a"),
    ],
)
def test_what_is_ours_passes(text):
    assert harmless(text) == text


@pytest.mark.parametrize(
    "text",
    [
        LINK.format("https://evil.example/", "https://example.org/"),
        LINK.format("javascript:alert(1)", "javascript:alert(1)"),
        LINK.format("file:///tmp/a", "/tmp/a\x1b[2J"),
    ],
)
def test_a_link_that_shows_another_address_is_none(text):
    assert "\x1b" not in harmless(text)


def test_a_footer_is_written_over_below_the_gate(monkeypatch):
    """What the printer itself moves on the terminal arrives; what an event says does not."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stdout", terminal)
    with gated():
        printer = EventPrinter(as_json=False, colour="never")
        assert printer.footer is not None
        printer.footer(f"1 running {EVIL}")
        printer.say("a remark")
    text = terminal.getvalue()
    assert text.count("\r\x1b[K") == 2
    assert "\x1b" not in text.replace("\r\x1b[K", "")
