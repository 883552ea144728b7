"""Who prints without end is listened to, and watched all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from muster.worker.output_reader import OutputReader


class Endless:
    """Understands slower than the agent prints: after each part there is another one."""

    usage = session_usage = patience_s = None
    ended = False

    def __init__(self, stdout: Path) -> None:
        self._stdout = stdout
        self.heard = 0

    def feed(self, data: bytes) -> list[Any]:
        self.heard += len(data)
        with self._stdout.open("ab") as file:
            file.write(b"x" * 1000)
        return []


def test_a_flood_does_not_keep_the_worker_from_watching(tmp_path: Path) -> None:
    stdout = tmp_path / "stdout"
    stdout.touch()
    stream: Any = Endless(stdout)
    job: Any = None
    output_reader = OutputReader(job, stdout, stream, None)
    stdout.write_bytes(b"begins")
    for _ in range(3):
        before = stream.heard
        output_reader.listen()
        assert stream.heard > before
