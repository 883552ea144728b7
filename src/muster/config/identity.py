"""Which folder a `.muster/` belongs to: a copy is another project, a moved folder is the same one (S19).

The record in it says where it was written: the path of the folder, and the inodes of it and of `.muster`.  A move
on one file system keeps the inodes; `cp`, `rsync`, `tar`, a restored backup and a move to another disk do not.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from pathlib import Path
from typing import NamedTuple

from muster.config.project import STATE_DIR_NAME, Project
from muster.hosts.plain_files import read_plain, replace_plain
from muster.model.errors import Conflict, ProjectCopied, Unavailable

ADOPT_HINT = "muster db adopt makes it a project of its own, which goes on with the tasks that are left"
ADOPT_HOST_HINT = (
    "muster db adopt makes it a folder of its own, whose workers leave alone what the original's have begun"
)
_BYTES_MAX = 1 << 16
_ID_BYTES = 8
_KEY_BYTES = 32
_HEADER_BYTES, _SCHEMA_AT = 100, 60
_SCHEMAS_OF_BEFORE = frozenset({0, *range(2, 9)})


class _Place(NamedTuple):
    device: int
    folder: int
    state: int


class _Record(NamedTuple):
    id: str
    path: str
    place: _Place


class Standing(NamedTuple):
    """What a folder is to the store in it."""

    id: str
    """Of the project that the record names; empty where there is no record."""
    origin: str | None = None
    """Where the record was written, when that is another place."""
    copied: bool = False
    """The store is another project's: nothing may be run or changed before a person has said so."""


def look(project: Project) -> Standing:
    record, here = _read(project), _place(project.folder)
    if record is None or here is None:
        return Standing("", copied=project.store.exists() and not _came_before_records(project))
    # The number of a device may be another one after a restart.
    same_disk = record.place.device == here.device or record.path == project.folder
    if not same_disk or record.place[1:] != here[1:]:
        return Standing(record.id, record.path, copied=True)
    if record.path == project.folder or _place(record.path) == here:
        return Standing(record.id)  # a bind mount shows one folder at two places
    return Standing(record.id, record.path)


def settle(project: Project) -> str:
    """The id of this project, recorded for where it is now.  Raises ProjectCopied."""
    fd = os.open(project.state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)  # two first commands must not make two projects of it
        refuse_copy(project)
        found = look(project)
        return found.id if found.id and found.origin is None else record_anew(project, found.id)
    finally:
        os.close(fd)


def record_anew(project: Project, project_id: str = "") -> str:
    """Makes the folder the project of this id, or one of its own."""
    place = _place(project.folder)
    assert place is not None, "`.muster/` is there"
    project_id = project_id or new_id()
    told = {"id": project_id, "path": project.folder, "place": place}
    replace_plain(_file(project), json.dumps(told).encode() + b"\n", lasting=True)
    return project_id


def new_id() -> str:
    return secrets.token_hex(_ID_BYTES)


def worker_key(project: Project) -> str:
    """What proves to a server elsewhere that these are the workers of this folder, however often they start."""
    path = project.worker_key_file
    if not path.exists():
        replace_plain(path, secrets.token_urlsafe(_KEY_BYTES).encode(), lasting=True)
    return read_plain(path, _BYTES_MAX).decode().strip()


def refuse_copy(project: Project) -> None:
    """Raises ProjectCopied."""
    found = look(project)
    if found.copied:
        raise copied_error(project, found)


def refuse_shared(project: Project, *, configured: bool = False) -> None:
    """Raises Unavailable in the folder of a server that shares its store: nobody else opens that from here."""
    if configured or project.shares_store:
        raise Unavailable(
            f"the server of {project.folder} shares its store with others, and is not up; nothing was done",
            "muster serve, with the --store or the settings that it had",
        )


def refuse_host(project: Project, *, shares_store: bool) -> None:
    """Raises Conflict in a folder of workers for a server elsewhere: with a store none starts there again.

    Raises as refuse_shared; `shares_store`: the settings say so.
    """
    refuse_shared(project, configured=shares_store)
    if project.server_file.exists() and not project.has_begun:
        server = project.server_file.read_text("utf-8").strip()
        raise Conflict(
            f"{project.folder} is a folder of workers for {server}, without tasks of its own; nothing was done",
            f"muster --server {server} asks that one",
        )


def copied_error(project: Project, found: Standing) -> ProjectCopied:
    hint = ADOPT_HINT if project.has_store else ADOPT_HOST_HINT
    return ProjectCopied(f"{_told(project, found)}; nothing was run or changed here", hint)


def _told(project: Project, found: Standing) -> str:
    if found.origin is None:
        return f"{project.store} was made in another folder, as far as this one's records tell"
    if found.origin == project.folder:
        return f"the .muster of {project.folder} was restored, or is a copy of the one that was made there"
    original = _read(Project(found.origin))
    if original is not None and original.id == found.id:
        return f"{project.folder} is a copy of {found.origin}, which is still there and may do the same tasks"
    return f"{project.folder} is a copy of {found.origin}, or was moved from there to another disk"


def _file(project: Project) -> Path:
    return project.state_dir / "identity"


def _read(project: Project) -> _Record | None:
    """None where there is none, or none that was written whole."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        told = json.loads(read_plain(_file(project), _BYTES_MAX))
        return _Record(str(told["id"]), str(told["path"]), _Place(*told["place"]))
    return None


def _came_before_records(project: Project) -> bool:
    """Whether a build before the first release has made the store, as its header says: none kept a record.

    That may say 0 while all is in the WAL; later builds write it at once.  It is not read where this process may
    have it open: to close it here would drop SQLite's locks.
    """
    if project.witness.exists():
        return False
    with contextlib.suppress(OSError), project.store.open("rb") as file:
        number = file.read(_HEADER_BYTES)[_SCHEMA_AT : _SCHEMA_AT + 4]
        return int.from_bytes(number) in _SCHEMAS_OF_BEFORE
    return False


def _place(folder: str) -> _Place | None:
    try:
        outer, inner = Path(folder).stat(), (Path(folder) / STATE_DIR_NAME).stat()
    except OSError:
        return None
    return _Place(outer.st_dev, outer.st_ino, inner.st_ino)
