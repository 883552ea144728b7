"""Commits as a file, from one repository to another."""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Collection
from pathlib import Path

from muster.worker.git import GitFailed, Repository, refuse_full

_APART = "tmp_objdir-muster-"
"""As git's own begin: what a killed process has left is removed by `git gc`."""


def bundle(repository: Repository, path: Path, wanted: Collection[str], have: Collection[str]) -> bool:
    """Writes all of these commits, but what is in those that are there already; False where that is nothing.

    A commit of `have` that is not known here is none.  Raises GitFailed.
    """
    asked = "".join(f"{name}^{{commit}}\n" for name in have)
    told = repository.run("cat-file", "--batch-check=%(objectname)", given=asked).splitlines()
    known = [name for name in told if " " not in name]
    own = secrets.token_hex(4)
    refs = {f"refs/muster-bundle/{own}-{name}": name for name in wanted}
    repository.run("update-ref", "--stdin", given="".join(f"update {ref} {refs[ref]}\n" for ref in refs))
    draft = path.with_name(f"{path.name}.{own}")
    try:
        done = repository.ask(
            "bundle", "create", "--quiet", str(draft), *refs, *(f"^{name}" for name in known)
        )
        if done.returncode and "empty bundle" in done.stderr:
            return False
        if done.returncode:
            refuse_full(path.parent, done.stderr)
            raise GitFailed(f"git bundle failed: {done.stderr.strip()[-500:]}", "try it by hand")
        draft.replace(path)
        return True
    finally:
        draft.unlink(missing_ok=True)
        repository.run("update-ref", "--stdin", given="".join(f"delete {ref}\n" for ref in refs))


def unbundle(repository: Repository, path: Path) -> None:
    """Takes in its commits, behind no ref.  Raises GitFailed where it is broken or lacks what it builds on.

    All of it or nothing: git that gives up, as on a full disk, leaves in the repository what it had of a pack.
    """
    objects = repository.common / "objects"
    apart = objects / f"{_APART}{secrets.token_hex(8)}"
    apart.mkdir(mode=0o700)
    try:
        asked = ("-c", "transfer.fsckObjects=true", "bundle", "unbundle", str(path))
        repository.run(*asked, objects=apart)
        made = sorted((apart / "pack").glob("pack-*"), key=lambda one: one.suffix == ".idx")
        for one in made:  # git looks for the index, so that comes last
            if not (there := objects / "pack" / one.name).exists():
                there.parent.mkdir(exist_ok=True)
                one.rename(there)
    finally:
        shutil.rmtree(apart, ignore_errors=True)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_at(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)
