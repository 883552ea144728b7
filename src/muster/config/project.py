"""The folder that Muster works in, and where it keeps what.

Every command of the CLI imports this module: nothing here may be slow to import (the tree test checks it).
`pathlib` is, with the `urllib` that it brings: 7 ms of the 60 that a command may cost.
"""

from __future__ import annotations

import os

from muster.model.errors import BadConfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FILE_NAME = "muster.toml"
STATE_DIR_NAME = ".muster"
ROOT_VARIABLE = "MUSTER_ROOT"


class _Below:
    """A path within `.muster/`."""

    def __init__(self, *parts: str) -> None:
        self._parts = parts

    def __get__(self, project: Project, _: type) -> Path:
        return project.root.joinpath(STATE_DIR_NAME, *self._parts)


class Project:
    """A folder, and the paths in it."""

    __slots__ = ("folder",)

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Raises BadConfig where the path is not UTF-8: neither SQLite nor JSON can name it."""
        self.folder = os.fspath(root)
        try:
            self.folder.encode()
        except UnicodeEncodeError:
            told = os.fsencode(self.folder).decode(errors="replace")
            raise BadConfig(
                f"the path of {told} is not UTF-8; nothing was changed", "rename that folder, or use another"
            ) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Project) and self.folder == other.folder

    def __hash__(self) -> int:
        return hash(self.folder)

    def __repr__(self) -> str:
        return f"Project({self.folder!r})"

    def source_of(self, path: str | os.PathLike[str]) -> str:
        """What a plan file is known by: where it is in the project, so that both may be moved; or where it is."""
        folder, full = os.path.realpath(self.folder), os.path.realpath(path)
        inside = full.startswith(os.path.join(folder, ""))
        return os.path.relpath(full, folder) if inside else full

    @property
    def root(self) -> Path:
        from pathlib import Path

        return Path(self.folder)

    @property
    def socket(self) -> str:
        return os.path.join(self.folder, STATE_DIR_NAME, "muster.sock")

    @property
    def shares_store(self) -> bool:
        """Its server is one of several; there is nothing in this folder that anybody else could open."""
        return os.path.exists(os.path.join(self.folder, STATE_DIR_NAME, "store"))

    @property
    def config_file(self) -> Path:
        return self.root / FILE_NAME

    state_dir = _Below()
    store = _Below("state.db")
    witness = _Below("state.witness")
    """How far it has come, noted beside it whenever it is open."""
    key_file = _Below("key")
    """Seals the audit."""
    vault_key_file = _Below("vault.key")
    """Opens what is sealed in the store."""
    first_token_file = _Below("first-token")
    """Of an OWNER, where there was no terminal to show it on."""
    store_file = _Below("store")
    """The address, without its password, of the store that this folder's server shares with others."""
    store_witness = _Below("store.witness")
    """How far that server has come with it."""
    server_file = _Below("server")
    """The URL of the server whose tasks are done here."""
    worker_key_file = _Below("worker.key")
    """Proves to that server that its workers are those of this folder."""
    owner_lock = _Below("owner.lock")
    supervisor_lock = _Below("supervisor.lock")
    crew_file = _Below("crew")
    """The processes that its supervisor has started."""
    log_file = _Below("muster.log")
    homes_dir = _Below("homes")
    """Of agents with a HOME of their own."""
    seats_dir = _Below("seats")
    """A lock for each worker whose agents have a HOME of their own."""
    pull_requests = _Below("pull_requests.json")
    """Those that `muster pr` has opened, and what was said of them."""
    workers_dir = _Below("workers")
    """Those that have begun here for a server elsewhere, and have not said goodbye."""
    worktrees_dir = _Below("worktrees")
    attempts_dir = _Below("attempts")
    bundles_out_dir, bundles_in_dir = _Below("bundles", "out"), _Below("bundles", "in")
    """Commits on their way to and from workers of other hosts."""
    far_repository_dir = _Below("repository")
    """The part of a server's repository that workers here have."""
    mirror_dir = _Below("mirror")
    """Of a server that shares its store: its copy of the repository."""
    owed_dir = _Below("owed")
    """Work that the server has yet to be sent."""

    @property
    def has_store(self) -> bool:
        """Its own, or one that it shares: else its workers do the tasks of a server elsewhere, if any."""
        return self.has_begun or self.shares_store

    @property
    def has_begun(self) -> bool:
        """There is a store, or there has been one: its key is made after it."""
        return self.store.exists() or self.key_file.exists()


def find_project(start: str | os.PathLike[str], env: Mapping[str, str]) -> Project | None:
    """The project that `start` lies in: the nearest folder upwards with a `.muster/` or a `muster.toml`.

    MUSTER_ROOT in `env` overrides the search; BadConfig where it names no folder.
    """
    folder = os.path.realpath(start)
    if named := env.get(ROOT_VARIABLE):
        root = os.path.realpath(os.path.join(folder, named))
        if not os.path.isdir(root):
            raise BadConfig(
                f"{ROOT_VARIABLE} is {named!r}, which is not a folder",
                f"set {ROOT_VARIABLE} to the folder that holds {STATE_DIR_NAME}/, or unset it",
            )
        return Project(root)
    while not _is_project(folder):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return Project(folder)


def _is_project(folder: str) -> bool:
    """False as well where we may not look."""
    return os.path.isdir(os.path.join(folder, STATE_DIR_NAME)) or os.path.isfile(
        os.path.join(folder, FILE_NAME)
    )
