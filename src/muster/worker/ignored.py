"""Files of a task's tree that git ignores, as far as somebody may miss them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from muster.worker.git import Repository
from muster.worker.merging import NAMED_MAX

DROPPINGS = (
    *("node_modules", "target", "venv", "coverage", "htmlcov", "__pycache__", "*.egg-info", ".?*/"),
    *(
        "*cache",
        "*.pyc",
        "*.o",
        "*.class",
        "*.tsbuildinfo",
        "*.log",
        "*.tmp",
        "*.swp",
        ".coverage*",
        ".DS_Store",
    ),
)
"""Names of what tools leave and make again: dependencies, caches, logs.  With a slash at its end, of folders."""
_COUNTED_MAX = 1000


def ignored_files(repository: Repository, path: Path) -> str:
    """As git lists them, with a NUL after each; a folder of which all is ignored is one of them."""
    what = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    return repository.run(*what, cwd=path)


def missed(repository: Repository, path: Path, before: str, droppings: tuple[str, ...]) -> list[str]:
    """What is in the tree of a task and not in `before`: each file, or folder with the number of its files."""
    there, names, found = set(before.split("\0")), (*DROPPINGS, *droppings), {}
    for name in ignored_files(repository, path).split("\0"):
        if not name or name in there or any(_drops(part, names) for part in _parts(name)):
            continue
        number = sum(1 for _ in _files(path / name, names)) if name.endswith("/") else 1
        if number:
            more = "more than " if number > _COUNTED_MAX else ""
            files = "1 file" if number == 1 else f"{more}{min(number, _COUNTED_MAX)} files"
            found[name] = f" ({files})" if name.endswith("/") else ""
    by = _by(repository, path, list(found)[:NAMED_MAX])
    return [_printable(f"{name}{number}{by.get(name, '')}") for name, number in found.items()]


def _by(repository: Repository, path: Path, names: list[str]) -> dict[str, str]:
    """Where it is no .gitignore that says so: whoever looks for the reason would not find it."""
    asked = repository.ask("check-ignore", "-v", "-z", "--stdin", cwd=path, given="\0".join(names))
    fields = iter(asked.stdout.split("\0"))
    rules = zip(fields, fields, fields, fields, strict=False)
    return {name: f" by {file}" for file, _, _, name in rules if not file.endswith(".gitignore")}


def _parts(name: str) -> Iterator[str]:
    """Each name on the way, those of folders with a slash."""
    *folders, last = name.split("/")
    yield from (f"{folder}/" for folder in folders)
    yield last


def _drops(part: str, names: tuple[str, ...]) -> bool:
    return any(fnmatchcase(part, name) or fnmatchcase(part, f"{name}/") for name in names)


def _files(folder: Path, names: tuple[str, ...]) -> Iterator[str]:
    number = 0
    for _, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if not _drops(f"{each}/", names)]
        for file in files:
            if not _drops(file, names):
                number += 1
                yield file
            if number > _COUNTED_MAX:
                return


def _printable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
