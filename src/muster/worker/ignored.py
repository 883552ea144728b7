"""Files of a task's tree that git ignores or does not see, as far as somebody may miss them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from muster.model.file_names import in_words
from muster.worker.git import Repository
from muster.worker.merging import NAMED_MAX
from muster.worker.submodules import astray, links, unfinished

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


def note_ignored(repository: Repository, path: Path, note: Path, since: Path | None = None) -> None:
    """Adds to the file `note` what is ignored in the tree by now; only what is not in the note `since`."""
    found = {*_ignored(repository, path), *_of_submodules(repository, path)}
    found -= _noted(since) if since is not None else set()
    with note.open("ab") as file:
        file.write(os.fsencode("".join(f"{name}\0" for name in found)))


def _ignored(repository: Repository, path: Path) -> set[str]:
    """As git lists them; a folder of which all is ignored is one of them."""
    what = ("ls-files", "--others", "--ignored", "--exclude-standard", "--directory", "-z")
    return set(repository.run(*what, cwd=path).split("\0")) - {""}


def _noted(note: Path) -> set[str]:
    return set(os.fsdecode(note.read_bytes()).split("\0")) if note.exists() else set()


def missed(repository: Repository, path: Path, known: Path, droppings: tuple[str, ...]) -> list[str]:
    """What is in the tree of a task and not in the note `known`: files, and folders with the number of theirs."""
    names, found, inner = (*DROPPINGS, *droppings), {}, _of_submodules(repository, path)
    for name in sorted({*_ignored(repository, path), *inner} - _noted(known)):
        if any(_drops(part, names) for part in _parts(name)):
            continue
        number = sum(1 for _ in _files(path / name, names)) if name.endswith("/") else 1
        if number:
            more = "more than " if number > _COUNTED_MAX else ""
            files = "1 file" if number == 1 else f"{more}{min(number, _COUNTED_MAX)} files"
            found[name] = inner.get(name) or (f" ({files})" if name.endswith("/") else "")
    by = _by(repository, path, [name for name in found if name not in inner][:NAMED_MAX])
    return [f"{in_words(name)}{number}{by.get(name, '')}" for name, number in found.items()]


def lost(repository: Repository, path: Path, known: Path, droppings: tuple[str, ...]) -> list[str]:
    """Files that are in no repository, because they lie in the folder of a submodule that is not set up."""
    names = (*DROPPINGS, *droppings)
    found = astray(path, links(repository, path)) - _noted(known)
    return [in_words(each) for each in sorted(found) if not any(_drops(part, names) for part in _parts(each))]


def _of_submodules(repository: Repository, path: Path) -> dict[str, str]:
    """What no commit of ours can have, and why: git itself lists none of it as ignored."""
    linked = links(repository, path)
    found = dict.fromkeys(astray(path, linked), " in a submodule that is not set up")
    return found | dict.fromkeys(
        unfinished(repository, path, linked), " with changes that it has not committed"
    )


def _by(repository: Repository, path: Path, names: list[str]) -> dict[str, str]:
    """Where it is no .gitignore that says so: whoever looks for the reason would not find it."""
    asked = repository.ask("check-ignore", "-v", "-z", "--stdin", cwd=path, given="\0".join(names))
    fields = iter(asked.stdout.split("\0"))
    rules = zip(fields, fields, fields, fields, strict=False)
    return {name: f" by {in_words(file)}" for file, _, _, name in rules if not file.endswith(".gitignore")}


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
