"""The flag of a halted store, as other processes read it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from muster.stores.sqlite.halt import Cause, Flag, Halt


def test_a_flag_is_read_whole_while_it_is_written(tmp_path: Path) -> None:
    flag, halt, done = (
        Flag(tmp_path / "state.db"),
        Halt(Cause.REWOUND, "older than its work"),
        threading.Event(),
    )
    flag.leave(halt)

    def leave() -> None:
        for _ in range(300):
            flag.leave(halt)
        done.set()

    writer = threading.Thread(target=leave)
    writer.start()
    found = set()
    while not done.is_set():
        found.add(flag.read())
    writer.join()
    assert found == {halt}
    assert [path.name for path in tmp_path.iterdir()] == ["state.halted"]


@pytest.mark.promise("S17")
def test_an_owner_killed_while_it_halts_leaves_nothing_that_halts_the_next(tmp_path: Path) -> None:
    flag = Flag(tmp_path / "state.db")
    killed = tmp_path / "state.halted.4711"
    killed.write_text("unsyn")
    assert flag.read() is None, "half a cause is none; the next owner finds out by itself"
    flag.leave(Halt(Cause.UNSYNCED, "disk"))
    flag.lift()
    assert not list(tmp_path.iterdir())
