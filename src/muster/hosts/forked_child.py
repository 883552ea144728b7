"""What a process that forks keeps for itself: its child has a copy of all memory and files, but of no thread.

A lock or a socket in it would outlive the parent, and SQLite forbids to use a connection there.  Every command of
the CLI imports this module.
"""

from __future__ import annotations

import os
from weakref import WeakKeyDictionary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

_kept: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()


def keep_from_children(thing: T, leave: Callable[[T], object]) -> T:
    """`leave` is called with it in a forked child.  It takes no lock there: a thread that is gone may have it."""
    _kept[thing] = leave
    return thing


def _leave_all() -> None:
    for thing, leave in list(_kept.items()):
        leave(thing)
    _kept.clear()


os.register_at_fork(after_in_child=_leave_all)


def has_ended(pid: int) -> bool:
    """A zombie has."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib costs a command some ms
            state = file.read().rpartition(b") ")[2][:1]
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return state in (b"Z", b"X", b"x")
