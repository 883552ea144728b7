"""What an agent or a plan wrote cannot reach a person's terminal, by whatever command it is shown."""

from __future__ import annotations

import io
import os
import pty
import re
import sys

import pytest

from muster.cli.main import main
from muster.cli.output import Screen
from muster.cli.terminal import gated, harmless
from muster.model import commands as c
from muster.model.states import ErrorKind

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
        os.set_blocking(reader, False)
        sent = b""
        while True:
            try:
                sent += os.read(reader, 1 << 16)
            except BlockingIOError:
                break
    os.close(reader)
    return sent


@pytest.fixture
def hostile(empty) -> None:
    spec = c.Spec(title=f"title {EVIL[:-2]}", key="evil", description=EVIL, agent="shell")
    empty.do(c.Enqueue(plan="p", source=None, tasks=(spec,), actor="user:ann"))
    empty.do(
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
    job = empty.claim("r1")["evil"]
    empty.begin(job)
    ids = {"task_id": job.task_id, "epoch": job.epoch}
    empty.do(c.Progress(**ids, percent=5, step=f"step {EVIL}"))
    empty.do(c.AddArtifact(**ids, name=f"name {EVIL}", location=f"place {EVIL}"))
    empty.do(c.Suspect(**ids, evidence=f"evidence {EVIL}"))
    empty.log(job.task_id, 1, f"log {EVIL}\n".encode())
    empty.do(c.Fail(**ids, kind=ErrorKind.INVALID, message=f"error {EVIL}"))


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
        ("task", "show", f"p/{EVIL[:-3]}"),
        (EVIL,),
    ],
    ids=lambda argv: " ".join(argv)[:16].encode("ascii", "replace").decode().replace("\x1b", "^"),
)
def test_every_command_is_harmless(hostile, capfd, monkeypatch, argv):
    sent = on_a_terminal(capfd, monkeypatch, *argv)
    assert sent, "nothing was shown, so nothing was proved"
    bare = _SGR.sub(b"", sent)
    assert not set(bare) & set(b"\x1b\x07\x00\x08")
    assert not {"\x9b", "\u202e"} & set(bare.decode())
    if argv[0] != "logs":
        assert b"\x1b[8m" not in sent, "hidden text"


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


@pytest.mark.parametrize("text", ["plain\n\ttext", "Größe ✓ 漢字", "\x1b[31mred\x1b[0m"])
def test_what_is_ours_passes(text):
    assert harmless(text) == text
