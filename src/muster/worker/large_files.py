"""The files that git-lfs keeps beside a repository: commits have pointers to them, and no bundle has more.

They go with a bundle as the files of one more commit, whose names are their digests.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Collection
from io import BytesIO
from pathlib import Path

from muster.model.errors import BadInput
from muster.worker.bundles import sha256_of
from muster.worker.git import Repository

_POINTER_BYTES_MAX = 1024
"""As git-lfs has it."""
_POINTER = re.compile(
    rb"\Aversion https://git-lfs\.github\.com/spec/v1\n(?:[^\n]+\n)*?oid sha256:([0-9a-f]{64})\n"
)
_NAME = re.compile(r"[0-9]+ blob ([0-9a-f]+)\t([0-9a-f]{64})")
_NOBODY = "Muster <muster@localhost> 0 +0000"
"""The same files make the same commit, so that a bundle which was cut off goes on."""


def large_files(repository: Repository, wanted: Collection[str], have: Collection[str]) -> dict[str, str]:
    """Of these commits, but not of those: digests of files that are kept here, with a path of each.

    A pointer whose file is not here was made elsewhere, and is there.  Raises GitFailed.
    """
    kept = _kept_in(repository)
    if not kept.is_dir():
        return {}
    asked = ("rev-list", "--objects", "--ignore-missing", *wanted, *(f"^{name}" for name in have))
    paths = dict(line.partition(" ")[::2] for line in repository.run(*asked).splitlines())
    named = "\n".join(name for name, path in paths.items() if path)
    told = repository.run("cat-file", "--batch-check", given=named).splitlines()
    small = [
        name
        for name, kind, size in (line.split() for line in told)
        if kind == "blob" and int(size) <= _POINTER_BYTES_MAX
    ]
    found = {}
    file = BytesIO(repository.ask_bytes("cat-file", "--batch", given="\n".join(small)).stdout)
    for name in small:
        size = int(file.readline().split()[2])
        pointer = _POINTER.match(file.read(size + 1)[:size])
        if pointer and _place(kept, digest := pointer[1].decode()).is_file():
            found[digest] = paths[name]
    return found


def commit_of_files(repository: Repository, digests: Collection[str]) -> str:
    """The commit that has them.  Raises GitFailed."""
    kept, names = _kept_in(repository), sorted(digests)
    given = "\n".join(str(_place(kept, digest)) for digest in names)
    blobs = repository.run("hash-object", "-w", "--no-filters", "--stdin-paths", given=given).split()
    lines = [f"100644 blob {blob}\t{digest}\n" for blob, digest in zip(blobs, names, strict=True)]
    tree = repository.run("mktree", given="".join(lines))
    text = f"tree {tree}\nauthor {_NOBODY}\ncommitter {_NOBODY}\n\nFiles of git-lfs\n"
    return repository.run("hash-object", "-t", "commit", "-w", "--stdin", given=text)


def keep_files(repository: Repository, commit: str) -> list[str]:
    """Where git-lfs looks for them; returns their digests.

    Raises BadInput where one is not what its name says, GitFailed, OSError.
    """
    kept, digests = _kept_in(repository), []
    for line in repository.run("ls-tree", commit).splitlines():
        named = _NAME.fullmatch(line)
        if named is None:
            raise BadInput("the files of git-lfs are not named by their digests; nothing was kept")
        blob, digest = named.groups()
        digests.append(digest)
        place = _place(kept, digest)
        if place.exists():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        draft = place.with_name(f"{digest}.{secrets.token_hex(4)}")
        try:
            with draft.open("wb") as file:
                repository.copy_blob(blob, file)
                os.fsync(file.fileno())
            if sha256_of(draft) != digest:
                raise BadInput(f"the file of git-lfs {digest} is not what its name says; nothing was kept")
            draft.replace(place)
        finally:
            draft.unlink(missing_ok=True)
    return digests


def _kept_in(repository: Repository) -> Path:
    told = repository.ask("config", "--path", "--get", "lfs.storage").stdout.strip()
    return repository.common / (told or "lfs") / "objects"


def _place(kept: Path, digest: str) -> Path:
    return kept / digest[:2] / digest[2:4] / digest
