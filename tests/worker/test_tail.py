"""What an agent prints is followed whole, but for lines that are for its adapter alone."""

from __future__ import annotations

from pathlib import Path

from muster.model.blackout import Blackout
from muster.model.commands import LOG_CHUNK_BYTES_MAX
from muster.worker.tail import Tail

NOISE = b'{"type":"stream_event"'


def shipped(tail: Tail) -> list[tuple[int, bytes]]:
    found = []
    while data := tail.read():
        found.append((tail.place, data))
        tail.acknowledge(len(data))
    return found


def test_lines_that_are_left_out_leave_no_gap(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    tail = Tail("stdout", path)
    tail.skip = NOISE
    path.write_bytes(b"one\n" + NOISE + b',"x":1}\ntwo\n' + NOISE[:9])
    assert tail.read() == b"one\ntwo\n"
    assert shipped(tail) == [(0, b"one\ntwo\n")], "what was not taken is read again"
    with path.open("ab") as file:
        file.write(NOISE[9:] + b"}\n" + NOISE + b"}\nthr")
    assert shipped(tail) == []
    with path.open("ab") as file:
        file.write(b"ee\nlast")
    assert shipped(tail) == [(8, b"three\n")]
    tail.skip_to_the_end()
    assert shipped(tail) == [(14, b"last")]


def test_a_line_of_any_length_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    long = b"x" * (2 * LOG_CHUNK_BYTES_MAX + 5)
    path.write_bytes(long + b"\n" + (NOISE + b"}\n") * 50_000 + b"end\n")
    tail = Tail("stdout", path)
    tail.skip = NOISE
    assert b"".join(data for _, data in shipped(tail)) == long + b"\nend\n"


def test_a_secret_in_two_parts_is_held_back_until_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    tail = Tail("stdout", path)
    tail.blackout = Blackout(["s3cret-value"])
    path.write_bytes(b"it is s3cret")
    assert shipped(tail) == [(0, b"it is ")]
    with path.open("ab") as file:
        file.write(b"-value, and s3")
    assert shipped(tail) == [(6, b"************, and ")]
    tail.skip_to_the_end()
    assert shipped(tail) == [(24, b"s3")]


def test_a_secret_with_lines_that_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "stdout"
    tail = Tail("stdout", path)
    tail.skip, tail.blackout = NOISE, Blackout(["s3cret-value"])
    path.write_bytes(b"a s3cret-value\n" + NOISE + b"}\nb s3cret-va")
    assert shipped(tail) == [(0, b"a ************\n")]
    with path.open("ab") as file:
        file.write(b"lue\n")
    assert shipped(tail) == [(15, b"b ************\n")]
