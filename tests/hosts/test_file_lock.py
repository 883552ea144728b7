"""One owner for one store: who only looks keeps nobody out."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from muster.hosts.file_lock import Lock, holder
from muster.model.errors import OwnerUnavailable


def test_a_lock_is_taken_while_others_look_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    Lock.take(path).release()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            holder(path)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    try:
        for _ in range(500):
            Lock.take(path).release()
    finally:
        over.set()
        for looker in lookers:
            looker.join()


def test_a_lock_that_is_held_names_its_holder_at_once(tmp_path: Path) -> None:
    held = Lock.take(tmp_path / "lock")
    with pytest.raises(OwnerUnavailable, match=r"is held by process \d+"):
        Lock.take(tmp_path / "lock")
    held.release()
    Lock.take(tmp_path / "lock").release()
