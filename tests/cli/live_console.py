"""A command on a pseudo terminal, seen through a terminal emulator."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

import pyte

from patience import PATIENCE_S
from pseudo_terminal import read_to_end

COLUMNS, ROWS = 100, 24


def joined(text):
    """Without the ends of lines, where a sentence may be broken."""
    return " ".join(text.split())


class Console:
    """A command on a pseudo terminal, seen through a terminal emulator."""

    def __init__(self, root, *argv, size=(COLUMNS, ROWS), program=("-m", "muster.cli.main"), **env):
        self.screen = pyte.Screen(*size)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._master, slave = pty.openpty()
        self.resize(*size)
        self.before, self.slave = termios.tcgetattr(slave), slave
        self.after = None
        command = [sys.executable, *program, *argv]
        env = {**os.environ, "TERM": "xterm-256color", "PYTHONUTF8": "1", **env}
        streams = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
        self.process = subprocess.Popen(command, cwd=root, env=env, start_new_session=True, **streams)

    def resize(self, columns, rows):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(rows, columns)

    def press(self, keys):
        os.write(self._master, keys.encode())

    def choose(self, ref):
        """Only this task is left in the list, and chosen."""
        self.until(lambda text: ref in text and "● live" in text)
        self.press(f"/{ref}\r")
        self.until(lambda text: f"/{ref}" in text.splitlines()[1] and text.splitlines()[2].startswith(">"))

    def asked(self, ref, question):
        """The question of this task is open, and waits for an answer."""
        self.choose(ref)
        self.press("w")
        self.until(lambda text: question in text and "Your answer: _" in text)

    def foot(self):
        return self.screen.display[-1].rstrip()

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
        self.after = termios.tcgetattr(self.slave)
        os.close(self.slave)
        self._take(read_to_end(self._master))
        return self.process.returncode

    def row(self, name):
        return next((line for line in self.screen.display if f" {name} " in line), "")

    def close(self):
        self.process.kill()
        self.process.wait()
        if self.after is None:
            os.close(self.slave)
            os.close(self._master)
