"""What a test does in an owner before it begins, whether it is forked or a program of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path


def in_owner(begin: Callable[[Path], object]) -> None:
    """To be called at the start of Python, by `sitecustomize`; `begin` is told the project's folder."""
    if "muster.app.owner" in sys.orig_argv:
        begin(Path(sys.orig_argv[-1]))
    elif is_shared_server():
        begin(Path.cwd())
    elif not {"run", "up"}.isdisjoint(sys.orig_argv):
        from muster.app import owner

        run = owner.run_owner

        def hooked(root: Path) -> int:
            begin(root)
            return run(root)

        owner.run_owner = hooked


def is_shared_server() -> bool:
    """Whether this process serves a store that others share."""
    return {"serve", "--store"}.issubset(sys.orig_argv)
