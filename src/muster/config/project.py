"""The folder that Muster works in, and where it keeps what.

Every command of the CLI imports this module: nothing here may be slow to import (the tree test checks it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from muster.model.errors import BadConfig

FILE_NAME = "muster.toml"
STATE_DIR_NAME = ".muster"
ROOT_VARIABLE = "MUSTER_ROOT"


class Project:
    """A folder, and the paths in it."""

    __slots__ = ("root",)

    def __init__(self, root: Path) -> None:
        self.root = root

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Project) and self.root == other.root

    def __hash__(self) -> int:
        return hash(self.root)

    def __repr__(self) -> str:
        return f"Project({str(self.root)!r})"

    @property
    def config_file(self) -> Path:
        return self.root / FILE_NAME

    @property
    def state_dir(self) -> Path:
        return self.root / STATE_DIR_NAME

    @property
    def store(self) -> Path:
        return self.state_dir / "state.db"

    @property
    def socket(self) -> Path:
        return self.state_dir / "muster.sock"

    @property
    def owner_lock(self) -> Path:
        return self.state_dir / "owner.lock"

    @property
    def supervisor_lock(self) -> Path:
        return self.state_dir / "supervisor.lock"

    @property
    def log_file(self) -> Path:
        return self.state_dir / "muster.log"

    @property
    def old_log_file(self) -> Path:
        """What the log became when it was too long."""
        return self.state_dir / "muster.log.1"

    @property
    def homes_dir(self) -> Path:
        """Of agents with a HOME of their own."""
        return self.state_dir / "homes"

    @property
    def seats_dir(self) -> Path:
        """A lock for each worker whose agents have a HOME of their own."""
        return self.state_dir / "seats"

    @property
    def worktrees_dir(self) -> Path:
        return self.state_dir / "worktrees"

    @property
    def attempts_dir(self) -> Path:
        return self.state_dir / "attempts"


def find_project(start: Path, env: Mapping[str, str]) -> Project | None:
    """The project that `start` lies in: the nearest folder upwards with a `.muster/` or a `muster.toml`.

    MUSTER_ROOT in `env` overrides the search; BadConfig where it names no folder.
    """
    start = start.resolve()
    if named := env.get(ROOT_VARIABLE):
        root = (start / named).resolve()
        if not _is(Path.is_dir, root):
            raise BadConfig(
                f"{ROOT_VARIABLE} is {named!r}, which is not a folder",
                f"set {ROOT_VARIABLE} to the folder that holds {STATE_DIR_NAME}/, or unset it",
            )
        return Project(root)
    for folder in (start, *start.parents):
        if _is(Path.is_dir, folder / STATE_DIR_NAME) or _is(Path.is_file, folder / FILE_NAME):
            return Project(folder)
    return None


def _is(test: Callable[[Path], bool], path: Path) -> bool:
    try:
        return test(path)
    except OSError:  # up to Python 3.13 a parent that we may not look into raises here
        return False
