"""Stages a tree on a disk that is full: `unshare -Urm python half_index.py FOLDER`.  Prints what it found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from muster.worker.commits import stage
from muster.worker.git import Committer, DiskFull, Repository


def main() -> None:
    folder = Path(sys.argv[1])
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], check=True)
    subprocess.run(["git", "init", "-q", folder], check=True)
    repository = Repository(folder, folder / ".git", Path(), Committer(folder))
    admin = repository.common
    for number in range(2000):
        (folder / f"{number:0200}").touch()
    repository.run("add", ".")
    repository.run("commit", "-q", "-m", "first")
    head = repository.run("rev-parse", "HEAD")
    (folder / "made").write_text("made")
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"0" * 4096)
        except OSError:
            file.truncate(file.tell() - (64 << 10))  # there is room for a part of the index
    told = {"refused": "", "left": [], "taken": ""}
    (admin / "muster-index.lock").touch()  # of one that was killed
    try:
        stage(repository, folder, admin, head)
    except DiskFull as error:
        told["refused"] = error.message
    told["left"] = [path.name for path in admin.glob("muster-index*")]
    filler.unlink()
    tree = stage(repository, folder, admin, head).tree
    told["taken"] = repository.run("show", f"{tree}:made")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
